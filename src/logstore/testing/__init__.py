"""The test kit that ships with logstore: a clock that tests set by hand, a disk in memory, power cuts at
every point of a program's life, a disk that fails on command, a network in one thread, what clients saw, and
a Kafka that is there in milliseconds."""

from logstore.testing.clock import ManualClock
from logstore.testing.explorer import CrashError, Explored, Scenario, explore, reproduce
from logstore.testing.faults import FAULTS, Fault, FaultyFiles, Moment
from logstore.testing.history import Anomaly, History
from logstore.testing.kafka_servers import KafkaServers, kafka
from logstore.testing.memory import Image, MemoryFiles, trace_lines
from logstore.testing.simulator import Network, NetworkFaults, World
from logstore.wire.listener.intercepting import Delay, Drop, DropAnswer, HangUp, Intercepted, Refuse

__all__ = [
    "FAULTS",
    "Anomaly",
    "CrashError",
    "Delay",
    "Drop",
    "DropAnswer",
    "Explored",
    "Fault",
    "FaultyFiles",
    "HangUp",
    "History",
    "Image",
    "Intercepted",
    "KafkaServers",
    "ManualClock",
    "MemoryFiles",
    "Moment",
    "Network",
    "NetworkFaults",
    "Refuse",
    "Scenario",
    "World",
    "explore",
    "kafka",
    "reproduce",
    "trace_lines",
]
