"""Replication between processes: a :class:`Node` replicates its partitions with other nodes, and
:func:`follow` copies from one leader without a coordinator. ``docs/replication.md`` shows how.
"""

from logstore.replica.node.node import Node
from logstore.replica.standby import Standby, follow

__all__ = ["Node", "Standby", "follow"]
