"""Reading a partition that another process may be writing."""
