"""Clients that mean no good, beside others whose records are counted."""
