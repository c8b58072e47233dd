"""The simulator's coordinator by itself, to compare with."""

from __future__ import annotations

from logstore.replica.rules.partition_state import PartitionState
from logstore.testing.simulator.coordinator import Coordinator
from logstore.testing.simulator.network import World


class Answers:
    """A node that listens to nothing."""

    def __getattr__(self, name):
        return lambda *said: None


def new_coordinator(node):
    return Coordinator(World(0), PartitionState((1,), None, 0, ()), {1: node}, lambda: None)
