"""A coordinator on a tree.

Locks: ``_registering`` is held during a registration, ``_watchers_lock`` for single looks.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from logstore.arguments import check_callable, check_least, shown
from logstore.clock import Clock
from logstore.errors import RetriableError, UsageError, of_place
from logstore.format.metadata import encode_base64_uuid
from logstore.lock import ForkFlag
from logstore.replica.coordination import layout
from logstore.replica.coordination.control import read_state
from logstore.replica.coordination.interface import Node, TopicPartition, View, ViewChange, Watcher
from logstore.replica.coordination.registration import Registering
from logstore.replica.coordination.session import TreeSession, require
from logstore.replica.coordination.tree import Changed, Create, Tree
from logstore.replica.coordination.view import ViewMaker
from logstore.replica.rules.partition_state import PartitionState
from logstore.warning import inform, warn


class _NoClusterError(UsageError):
    """There is no cluster, and none was to be made."""


def no_cluster(place: str) -> UsageError:
    return of_place(
        _NoClusterError(
            f"there is no cluster in {place}. Check the name, or put back what was there; if that is lost, "
            "the node that has everything can begin a new cluster: logstore serve --config FILE --new-cluster"
        )
    )


class TreeCoordinator:
    """See :class:`~logstore.replica.coordination.interface.Coordinator`."""

    def __init__(self, tree: Tree, cluster_id: str | None = None, *, create: bool = True) -> None:
        """
        Args:
            cluster_id: what the cluster's id has to be. If there is no cluster yet, it gets this one, or
                without one an id of its own.
            create: whether to begin a cluster if there is none. False for a node that has a cluster already:
                if that is not here, nothing is made.

        Raises:
            UsageError: it is another cluster, or there is none.
            RetriableError: the tree cannot be reached.
        """
        if cluster_id is not None and (type(cluster_id) is not str or not cluster_id):
            raise UsageError(f"cluster_id is {shown(cluster_id)}; it must be text, or None")
        self._tree = tree
        self._process = uuid.uuid4().hex
        self._fork_flag = ForkFlag.watch()
        self._is_closed = False
        self._maker = ViewMaker()
        self._watchers: list[Watcher] = []
        self._new_watchers: list[Watcher] = []
        self._watchers_lock = threading.Lock()
        self._registering = threading.Lock()
        self._session: TreeSession | None = None
        try:
            if not create and tree.read(layout.CLUSTER_ID) is None:
                raise no_cluster(tree.name)
            self.cluster_id = self._begin(cluster_id)
            tree.follow(self._tell)
        except BaseException:
            tree.close()
            raise

    @classmethod
    def exists(cls, *args: Any, **options: Any) -> bool:
        """Whether there is a cluster. None is begun.

        Args:
            args, options: those of the coordinator.

        Raises:
            UsageError, RetriableError: that cannot be told: as the coordinator.
        """
        try:
            cls(*args, **options, create=False).close()
        except _NoClusterError:
            return False
        return True

    def _begin(self, cluster_id: str | None) -> str:
        """Create what is always there. Returns the cluster's id."""
        own_id = cluster_id or encode_base64_uuid(uuid.uuid4())
        texts = dict.fromkeys(layout.ALWAYS_THERE, "")
        texts[layout.CLUSTER_ID] = layout.encode_cluster_id(own_id)
        texts[layout.CONTROLLER_EPOCH] = texts[layout.LAST_LIFE] = layout.encode_number(0)
        deadline = time.monotonic() + self._tree.patience_ms / 1000
        while missing := [path for path in texts if self._tree.read(path) is None]:
            if time.monotonic() > deadline:
                raise RetriableError(f"{self._tree.name} did not create {missing[0]} in time")
            self._tree.commit([Create(path, texts[path]) for path in missing])
        found = layout.decode_cluster_id(require(self._tree, layout.CLUSTER_ID).data)
        if cluster_id not in (None, found):
            raise of_place(UsageError(f"{self._tree.name} belongs to cluster {found}, not to {cluster_id}"))
        return found

    def close(self) -> None:
        """Let go of it; close the node first. You may call it again."""
        if self._is_closed or self._fork_flag.is_forked:
            return
        if self._session is not None:
            self._session.close()
        self._is_closed = True
        self._tree.close()

    def check_usable(self) -> None:
        """Check that this process may use it.

        Raises:
            ForkedError: this is a forked child.
            ClosedError: it is closed.
        """
        self._fork_flag.check_usable(self, is_closed=self._is_closed)

    @property
    def session_ms(self) -> int:
        return self._tree.patience_ms

    @property
    def clock(self) -> Clock:
        return self._tree.clock

    @property
    def view(self) -> View:
        return self._maker.view

    def read_state(self, partition: TopicPartition) -> PartitionState | None:
        self.check_usable()
        return read_state(self._tree, partition)

    def was_deleted(self, topic_id: uuid.UUID) -> bool:
        self.check_usable()
        return self._tree.read(layout.deleted_path(topic_id)) is not None

    # Watching

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        check_callable(watcher, "watcher")
        self.check_usable()
        with self._watchers_lock:
            self._new_watchers.append(watcher)
        self._tree.wake()

        def end() -> None:
            with self._watchers_lock:
                for watchers in (self._new_watchers, self._watchers):
                    if watcher in watchers:
                        watchers.remove(watcher)

        return end

    def _tell(self, changed: Changed) -> None:
        """Runs in the tree's thread."""
        change = self._maker.apply(changed)
        with self._watchers_lock:
            known, new = self._watchers, self._new_watchers
            self._watchers, self._new_watchers = known + new, []
        session = self._session
        if session is not None:
            session.look(change.view)
        if any(change[1:]):
            for watcher in known:
                _call(watcher, change)
        for watcher in new:
            _call(watcher, self._maker.all_of_it())

    # Registering

    def register(
        self,
        node: Node,
        remember: Callable[[int], None],
        *,
        on_lost: Callable[[], None] | None = None,
        wait_ms: int = 0,
    ) -> TreeSession:
        check_least("node_id", node.node_id, 0)
        check_least("last_life", node.last_life, 0)
        check_least("wait_ms", wait_ms, 0)
        check_callable(remember, "remember")
        self.check_usable()
        with self._registering:
            self._end_session_of(node)
            lease = self._tree.begin_session(on_lost or (lambda: None))
            try:
                registered = Registering(self._tree, node, remember, self._process).run(lease, wait_ms)
            except BaseException:
                lease.end()
                self._tree.end_session()
                raise
            session = TreeSession(self._tree, lease, registered, lambda: self._maker.view, self.check_usable)
            self._session = session
        inform("node %d begins its life %d", node.node_id, session.registration.life)
        self._tree.wake()  # what was told before did not reach the session
        return session

    def _end_session_of(self, node: Node) -> None:
        session = self._session
        if session is None or session.is_lost:
            return
        if session.registration.node_id != node.node_id:
            raise UsageError(
                f"this coordinator has registered node {session.registration.node_id}; "
                f"node {node.node_id} needs one of its own"
            )
        session.end()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._tree.name!r}>"


def _call(watcher: Watcher, change: ViewChange) -> None:
    try:
        watcher(change)
    except Exception as error:
        warn("a watcher of the coordinator failed: %s: %s", type(error).__name__, error)
