"""The rules of replication, pure: what happened in, what is to be done out. No I/O, no clock, no thread. The
simulator in :mod:`logstore.testing.simulator` runs them."""
