"""The test kit that ships with logstore: a clock that tests set by hand, a disk in memory, power cuts at
every point of a program's life, and a disk that fails on command."""

from logstore.testing.clock import ManualClock
from logstore.testing.explorer import CrashError, Explored, Scenario, explore, reproduce
from logstore.testing.faults import FAULTS, Fault, FaultyFiles, Moment
from logstore.testing.memory import Image, MemoryFiles, trace_lines

__all__ = [
    "FAULTS",
    "CrashError",
    "Explored",
    "Fault",
    "FaultyFiles",
    "Image",
    "ManualClock",
    "MemoryFiles",
    "Moment",
    "Scenario",
    "explore",
    "reproduce",
    "trace_lines",
]
