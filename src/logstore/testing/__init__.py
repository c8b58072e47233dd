"""The test kit that ships with logstore: a clock that a test sets by hand, a disk in memory, and power cuts
at every point of a program's life."""

from logstore.testing.clock import ManualClock
from logstore.testing.explorer import CrashError, Explored, Scenario, explore, reproduce
from logstore.testing.memory import Image, MemoryFiles, trace_lines

__all__ = [
    "CrashError",
    "Explored",
    "Image",
    "ManualClock",
    "MemoryFiles",
    "Scenario",
    "explore",
    "reproduce",
    "trace_lines",
]
