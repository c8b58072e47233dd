"""Machines and a network that exist in one thread, driven by a seed: see :class:`World`."""

from logstore.testing.simulator.network import Network, NetworkFaults, World

__all__ = ["Network", "NetworkFaults", "World"]
