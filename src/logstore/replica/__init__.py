"""Replication between processes: a :class:`Node` replicates its partitions with other nodes, and
:func:`follow` copies from one leader without a coordinator. Nodes meet in a :class:`FileCoordinator` or a
:class:`ZooKeeperCoordinator`. :func:`leave_cluster` makes a node's directory a store that is alone again.
``docs/replication.md`` shows how.
"""

from typing import TYPE_CHECKING, Any

from logstore.replica.coordination.files import FileCoordinator
from logstore.replica.leaving import leave_cluster
from logstore.replica.node.node import Node
from logstore.replica.standby import Standby, follow

if TYPE_CHECKING:
    from logstore.replica.coordination.zookeeper import ZooKeeperCoordinator

__all__ = ["FileCoordinator", "Node", "Standby", "ZooKeeperCoordinator", "follow", "leave_cluster"]


def __getattr__(name: str) -> Any:
    """Kazoo is an extra."""
    if name == "ZooKeeperCoordinator":
        from logstore.replica.coordination.zookeeper import ZooKeeperCoordinator

        return ZooKeeperCoordinator
    raise AttributeError(f"module 'logstore.replica' has no attribute {name!r}")
