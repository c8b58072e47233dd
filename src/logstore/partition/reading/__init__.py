"""Reading a log, from one immutable view of it."""
