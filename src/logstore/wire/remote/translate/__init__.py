"""Requests of the seam as the protocol has them, and its responses as the seam has them. Values in, values
out: nothing here knows a connection."""
