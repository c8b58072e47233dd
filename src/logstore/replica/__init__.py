"""Replication between processes: a :class:`Node` replicates its partitions with other nodes, and
:func:`follow` copies from one leader without a coordinator. :func:`leave_cluster` makes a node's directory a
store that is alone again. ``docs/replication.md`` shows how.
"""

from logstore.replica.leaving import leave_cluster
from logstore.replica.node.node import Node
from logstore.replica.standby import Standby, follow

__all__ = ["Node", "Standby", "follow", "leave_cluster"]
