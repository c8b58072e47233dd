"""A cluster of nodes in this process, coordinated through files."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack

import logstore
from logstore.errors import LogstoreError
from logstore.replica import Node
from logstore.replica.coordination.files import FileCoordinator
from logstore.replica.node.controller.adopting import cluster_id_for, was_node

SESSION_MS = 2_000


def eventually(check, seconds=20.0):
    """What the check returns once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return found


class Cluster:
    """Nodes 1 to ``count``, each with a store of its own."""

    def __init__(self, path, count=3, *, session_ms=SESSION_MS, config=None, **options):
        self._path = path
        self._config = config
        self._session_ms = session_ms
        self._options = options
        self._open = {}
        self.nodes = {}
        self.stores = {}
        for node_id in range(1, count + 1):
            self.start(node_id)
        # one of which the controller has not heard gets no replicas of a topic that is made at once
        eventually(lambda: all(len(each.view.living) == count for each in self.nodes.values()))

    def start(self, node_id, *, directory=None, **options):
        with ExitStack() as stack:
            place = self._path / (directory or f"node-{node_id}")
            store = stack.enter_context(logstore.open(place, config=self._config))
            coordinator = self.coordinate(cluster_id_for(store), create=not was_node(store))
            stack.callback(coordinator.close)
            settings = {"replica_lag_time_max_ms": 1_000, **self._options, **options}
            node = Node(store, node_id, coordinator=coordinator, **settings)
            stack.callback(node.close)
            self.nodes[node_id], self.stores[node_id] = node, store
            self._open[node_id] = stack.pop_all()
        return node

    def coordinate(self, cluster_id, *, create):
        return FileCoordinator(
            self._path / "cluster", session_ms=self._session_ms, cluster_id=cluster_id, create=create
        )

    def stop(self, node_id):
        del self.nodes[node_id], self.stores[node_id]
        self._open.pop(node_id).close()

    def crash(self, node_id):
        """The process ends without a word; the machine has what it has written."""
        node = self.nodes[node_id]
        node._hand_over = lambda: None
        node._life.note_stopped = lambda: None
        self.stop(node_id)

    def cut_off(self, node_id):
        """Nobody reaches the node any more."""
        self.nodes[node_id]._listener.close()

    def let_follow_nobody(self, node_id):
        """The node reaches no other any more; others reach it, and it the coordinator."""
        self.nodes[node_id]._fetchers.endpoint_of = lambda leader_id: None

    def wipe(self, node_id):
        shutil.rmtree(self._path / f"node-{node_id}")

    def close(self):
        for node_id in list(self._open):
            self.stop(node_id)

    @property
    def addresses(self):
        return [node.address for node in self.nodes.values()]

    @property
    def view(self):
        return next(iter(self.nodes.values())).view

    def leader_of(self, partition):
        """The node that leads, once one does."""

        def leader():
            return next((each for each in self.nodes.values() if partition in each.led), None)

        return eventually(leader)

    def state_of(self, partition):
        return self.view.partitions[partition]

    def wait_for_isr(self, partition, count):
        """So many are in sync; and those of them that run hold the partition: of a new one it is said before
        they have heard of it."""
        try:
            eventually(
                lambda: partition in self.view.partitions and len(self.state_of(partition).isr) == count
            )
        except AssertionError as error:
            raise AssertionError(f"{partition}: {self.view.partitions.get(partition)}") from error
        for each in self.state_of(partition).isr:
            eventually(lambda each=each: self._holds(each.node_id, partition))

    def _holds(self, node_id, partition):
        try:
            return node_id not in self.stores or self.log(node_id, partition) is not None
        except LogstoreError:
            return False

    def log(self, node_id, partition):
        return self.stores[node_id].directory.log(partition)
