"""The test kit that ships with logstore: a clock that a test sets by hand."""

from logstore.testing.clock import ManualClock

__all__ = ["ManualClock"]
