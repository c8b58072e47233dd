"""Reading a log that another process writes."""
