"""Where the tests have their coordinators: in a directory, or in ZooKeeper."""

from __future__ import annotations

import threading
import time
import uuid

from logstore.replica.coordination.files import FileCoordinator
from logstore.replica.coordination.interface import Endpoint, Node
from logstore.replica.rules.partition_state import Member, PartitionState

SESSION_MS = 1_500
"""Long enough for a busy machine, short enough for a test to wait for it."""
WAIT_S = 20.0


def open_coordinator(kind, where, **options):
    options = {"session_ms": SESSION_MS, **options}
    if kind == "files":
        return FileCoordinator(where, **options)
    from logstore.replica.coordination.zookeeper import ZooKeeperCoordinator

    return ZooKeeperCoordinator(where, **options)


class Place:
    """What a test opens its coordinators in. They are closed at its end."""

    def __init__(self, kind, where):
        self.kind = kind
        self.where = where
        self._opened = []

    def open(self, **options):
        coordinator = open_coordinator(self.kind, self.where, **options)
        self._opened.append(coordinator)
        return coordinator

    def close(self):
        for each in self._opened:
            each.close()


def directory(tmp_path):
    return Place("files", str(tmp_path / "coordinator"))


def chroot(server):
    """A path of its own on a server."""
    return Place("zookeeper", f"{server.address}/{uuid.uuid4().hex}")


class Disk:
    """What a node has on its disk, as far as a coordinator is concerned."""

    def __init__(self, disk_id="disk"):
        self.disk_id = disk_id
        self.life = 0

    def remember(self, life):
        assert life > self.life
        self.life = life

    def node(self, node_id, *, is_whole=True, rack=None):
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092 + node_id)
        return Node(node_id, self.disk_id, self.life, is_whole, (endpoint,), rack)


def register(coordinator, node_id, disk=None, **options):
    disk = disk or Disk(f"disk of {node_id}")
    return coordinator.register(disk.node(node_id), disk.remember, **options)


def eventually(look, why=None):
    """What ``look`` returns, as soon as that is true."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(why() if why is not None else "it did not come true in time")


def create_topic(control, name="t", *, replicas=((1, 2),), **options):
    return control.create_topic(name, [new_state(nodes) for nodes in replicas], **options)


def new_state(replicas):
    """Of a partition that nobody leads yet."""
    return PartitionState(tuple(replicas), None, 0, tuple(Member(each, 0) for each in replicas))


def elected(state, member):
    """The state with another leader, in a new epoch."""
    return state._replace(leader=member, leader_epoch=state.leader_epoch + 1)


class Told:
    """What a watcher was told."""

    def __init__(self, coordinator):
        self.changes = []
        self._lock = threading.Lock()
        self.end = coordinator.watch(self._take)

    def _take(self, change):
        with self._lock:
            self.changes.append(change)

    @property
    def view(self):
        """The last one; None before the first."""
        return self.changes[-1].view if self.changes else None
