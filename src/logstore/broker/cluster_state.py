"""How the cluster is to which a broker belongs, for people who watch over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ClusterState(NamedTuple):
    """As one of its nodes knows it. What is said of leaders is of the partitions that this node leads."""

    living_count: int
    """Nodes that live."""
    is_controller: bool
    """Whether this node is the one that elects leaders."""
    offline_count: int
    """Partitions of the whole cluster that have no leader."""
    led_count: int
    under_replicated_count: int
    """Those of which not all replicas are in sync."""
    under_min_isr_count: int
    """Those that take nothing with ``acks=all``, because too few replicas are in sync."""
    lags: Mapping[int, int]
    """How many records each other node lacks of the partition of which it lacks most."""
