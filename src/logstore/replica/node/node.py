"""A node of a cluster.

Threads: one for what the coordinator tells and for time that passes, one that stores proposals, one that
looks at logs that have grown, one for elections, and one for each leader that is followed. They end with
:meth:`Node.close`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Self
from uuid import UUID

from logstore.arguments import check_flag, check_least, shown
from logstore.config import TopicConfig
from logstore.errors import LockedError, LogstoreError, RetriableError, StorageError, UsageError
from logstore.logdir.directory import CREATED_AT_A_TIME, LogDirectory
from logstore.logdir.kept import Kept
from logstore.model import TopicPartition
from logstore.replica.coordination.interface import (
    SESSION_MS,
    TEXTS,
    Control,
    Coordinator,
    Endpoint,
    Session,
    Topic,
    View,
    ViewChange,
)
from logstore.replica.coordination.interface import Node as Telling
from logstore.replica.node.assigning import Assignment, config_of, live_entry
from logstore.replica.node.broker import NodeBroker
from logstore.replica.node.controller.administering import Administering
from logstore.replica.node.controller.adopting import Adoption, check_no_copies
from logstore.replica.node.controller.changing import ClusterTopics
from logstore.replica.node.controller.controlling import Controlling
from logstore.replica.node.controller.deciding import Decisions, TopicRules
from logstore.replica.node.controller.passing_on import ThroughController
from logstore.replica.node.fetching import Fetchers
from logstore.replica.node.life import LifeFile
from logstore.replica.node.limiting import CatchUpLimit
from logstore.replica.node.partition import PartitionReplica
from logstore.replica.node.peers import Peers
from logstore.replica.node.shared_texts import SharedTexts
from logstore.replica.rules.leading import ReplicaConfig
from logstore.replica.rules.partition_state import Member, PartitionState
from logstore.schedule import start_thread
from logstore.store import Store
from logstore.turns import flushed_at_a_time, take_turns
from logstore.warning import inform, warn
from logstore.wire.addresses import Address
from logstore.wire.listener.listener import Listener
from logstore.wire.remote.connections.dialing import Tls
from logstore.wire.remote.connections.settings import Sasl, check_sasl
from logstore.wire.remote.fetches.following import LeaderLink, Links
from logstore.wire.security.acls import kept_acls
from logstore.wire.security.security import protocol_of
from logstore.wire.security.tls import check_client_tls
from logstore.wire.security.users import kept_users

MAX_NODE_ID: Final = 2**31 - 1
_MAX_RACK_BYTES: Final = 255
"""Clients are told it with each node, and the protocol has room for 32 KiB."""
_MOST_REPLICAS: Final = 2**15 - 1
"""The protocol's number for them has 16 bits."""
_TICK_SECONDS: Final = 0.25
_FIRST_WAIT_SESSIONS: Final = 2
"""For an earlier process of the node to be taken for dead: with ZooKeeper that is when its session ends."""
_WAIT_MS: Final = 1_000
"""For an earlier life of the node to end, at a time."""
_AGAIN_SECONDS: Final = 0.5
_STRAYS: Final = (
    "the cluster does not know the topics %s of %s: they are kept, and not served. If the coordinator is an "
    "older copy, put back a newer one. Otherwise copy the directory while the node is stopped, and bring "
    "them in again: replica.leave_cluster() of the copy, an empty directory for each node that has them, and "
    "logstore bridge push"
)
_STOP_SECONDS: Final = 10
_HAND_OVER_SECONDS: Final = 5.0


class Node:
    """A store that is one of several: it leads some partitions, follows others, and answers clients.

    Use it in a ``with`` statement, or call :meth:`close`, which hands over what the node leads. The store and
    the coordinator stay open; close them after the node. While the node runs, append through its listener:
    ``logstore.connect(node.address)``.
    """

    def __init__(
        self,
        store: Store,
        node_id: int,
        *,
        coordinator: Coordinator,
        listener: str = "127.0.0.1:0",
        advertised: str | None = None,
        rack: str | None = None,
        replication_factor: int | None = None,
        replica_lag_time_max_ms: int = 30_000,
        leader_imbalance_check_interval_seconds: int = 300,
        follower_replication_throttled_rate: int | None = None,
        read_from_followers: bool = False,
        peer_tls: Tls | None = None,
        peer_sasl: Sasl | None = None,
        **settings: Any,
    ) -> None:
        """
        Args:
            store: open for writing, and not in use by clients yet.
            node_id: its number in the cluster, 0 or above. It stays the same for this directory.
            coordinator: what the nodes of the cluster have in common.
            listener: where clients and other nodes connect to: host and port, ``0`` for a free one.
            advertised: what they are told, if that is another address. Without it, of a listener at
                ``0.0.0.0``, they are told the machine's full name, and a warning says so.
            rack: where the node is. Replicas are placed on different racks.
            replication_factor: of topics that are created without one. While fewer nodes live, such topics
                are refused, as Kafka does. None: 3, or as many as live. It is the controller's setting that
                counts. Internal topics have as many replicas as they can.
            replica_lag_time_max_ms: a follower that has not caught up for so long leaves the in-sync
                replicas.
            leader_imbalance_check_interval_seconds: how often partitions are given back to the first of
                their replicas, while this node is the controller; 0 for never. A node that leads at least
                nine tenths of what prefers it is left as it is.
            follower_replication_throttled_rate: how many bytes per second all replicas of the node together
                copy that are not in sync, as after an absence, or where partitions move to. None: as many as
                they can. Replicas that are in sync are not held up.
            read_from_followers: consumers that tell their rack (``client.rack``) read from a follower
                there, if the leader is in another one (KIP-392). They see a record some milliseconds later.
                It is the leader's setting that counts.
            peer_tls: how to check other nodes, and what to show them, if they listen with ``tls``.
            peer_sasl: who this node is at other nodes, if they listen with ``sasl_enabled_mechanisms``.
            settings: of the listener: see :meth:`.Store.listen`.

        Raises:
            UsageError: the directory is of another node or of another cluster; the store is a node already;
                a topic is a copy of a leader's, and was not promoted; an argument is wrong; or the store has
                more users, ACLs or quotas than a cluster can.
            LockedError: another process has the node id, and was still there after two sessions, at least 20
                seconds.
            RetriableError: the coordinator cannot be reached.
            CorruptionError: ``users.json`` or ``acls.json`` is damaged; says what to do.
        """
        _check_place(store, node_id, coordinator)
        _check_rest(rack, peer_tls, peer_sasl)
        read_from_followers = check_flag(read_from_followers, "read_from_followers")
        _check_most_replicas(replication_factor)
        balance_seconds = leader_imbalance_check_interval_seconds
        _check_pace(replica_lag_time_max_ms, balance_seconds, follower_replication_throttled_rate)
        self.node_id, self.rack = node_id, rack
        self._store, self._coordinator = store, coordinator
        self._lag_ms = replica_lag_time_max_ms
        self._tick_seconds = max(_TICK_SECONDS, min(1.0, replica_lag_time_max_ms / 4_000))
        self._tick_at = 0.0
        self.directory: LogDirectory = store.directory
        self._enter()
        self._life = LifeFile(self.directory.files, self.directory.path, node_id)
        self._replicas: dict[TopicPartition, PartitionReplica] = {}
        self._assignment = Assignment(self.directory, node_id, coordinator)
        self._session: Session | None = None
        self._member = Member(node_id, 0)
        self._lock = threading.Lock()
        self._changes: list[ViewChange] = []
        self._applied = coordinator.view
        """The newest of the changes that were acted on."""
        self._proposed: dict[PartitionReplica, PartitionState] = {}
        self._grown, self._living = set[PartitionReplica](), set[int]()
        self._coming: list[str] = []
        """Topics to hold with the next steps: hundreds of new ones do not keep the others from what happens
        to them meanwhile."""
        self._configs: dict[str, tuple[Topic, TopicConfig]] = {}
        """Of the cluster's topics, as they were asked for last."""
        self._bell, self._proposal_bell, self._growth_bell = (threading.Event() for _ in range(3))
        self._is_closing = self._is_closed = False
        self._trouble: str | None = None
        self._failure: LogstoreError | None = None
        self._listener: Listener | None = None
        self._has_begun = False
        """Whether it was told of everything once, with a controller."""
        self._links = Links(f"logstore-node-{node_id}", tls=peer_tls, sasl=peer_sasl)
        self._reaches = protocol_of(has_tls=peer_tls is not None, has_sasl=peer_sasl is not None)
        self._limit = CatchUpLimit(follower_replication_throttled_rate, self.now_ms)
        self._fetchers = Fetchers(lambda: self._member, self._endpoint_of, self._connect, self._limit)
        self._decisions = Decisions(self._rules_of)
        self._adoption = Adoption(self.directory, coordinator)
        self._controlling = Controlling(
            lambda: self._coordinator.view, self._decisions, self._prepare, balance_seconds
        )
        self._broker = self._make_broker(replication_factor, read_from_followers=read_from_followers)
        store.serve_through(self._broker)
        self._threads: list[threading.Thread] = []
        self._begin_or_abandon(listener, advertised, settings)

    def _begin_or_abandon(self, listener: str, advertised: str | None, settings: dict[str, Any]) -> None:
        try:
            self._begin(listener, advertised, settings)
        except BaseException:
            self._abandon()
            raise

    def _enter(self) -> None:
        """Make the directory the node's."""
        home = self.directory.context.home
        if home.is_node_here:
            raise UsageError(f"{home.path} is a running node already: close that one first, or use it")
        check_no_copies(self._store)
        self.directory.join(self._coordinator.cluster_id, self.node_id)
        home.is_node_here, home.has_lost = True, False  # what opening the logs has found is left in a file

    def _begin(self, listener: str, advertised: str | None, settings: dict[str, Any]) -> None:
        self._texts = self._share_texts()
        self._listener = self._store.listen(listener, advertised=advertised, **settings)
        if self._listener.is_advertised_by_guess:
            warn(
                "node %d listens at %s, and tells clients and other nodes to connect to %s: if they do not "
                "know this machine by that name, give advertised",
                self.node_id,
                listener,
                self._listener.advertised,
            )
        self._register(wait_ms=_FIRST_WAIT_SESSIONS * max(SESSION_MS, self._coordinator.session_ms))
        self._texts.give(is_first=self._coordinator.view.living.keys() <= {self.node_id})
        for run, what in ((self._run, "node"), (self._propose_all, "proposals"), (self._grow, "growth")):
            thread = start_thread(run, f"logstore-{what}-{self.node_id}", what="to run a node")
            self._threads.append(thread)
        self._unwatch = self._coordinator.watch(self._note_change)

    def _share_texts(self) -> SharedTexts:
        """From now on users, ACLs and quotas are the cluster's: a user that it has removed cannot log in."""
        kept: dict[str, Kept[Any]] = {
            "users": kept_users(self._store.users),
            "acls": kept_acls(self._store.acls),
            "quotas": self._broker.kept_quotas,
        }
        texts = SharedTexts(kept, self.cluster_id, lambda: self._session)
        texts.take(self._coordinator.view, TEXTS)
        return texts

    def _make_broker(self, replication_factor: int | None, *, read_from_followers: bool) -> NodeBroker:
        def view() -> View:
            return self._coordinator.view

        def control() -> Control | None:
            return self._controlling.control

        def session() -> Session | None:
            return self._session

        self._changing = ClusterTopics(self.directory, view, control, replication_factor)
        peers = Peers(self._endpoint_of, self._connect)
        return NodeBroker(
            self.directory,
            self.node_id,
            self._replicas,
            view,
            ThroughController(self.node_id, self._changing, view, session, peers),
            self._is_coming,
            peers,
            session,
            self._was_deleted,
            Administering(view, self._decisions, control, self._limit),
            read_from_followers=read_from_followers,
            lag_ms=self._lag_ms,
        )

    def _prepare(self, control: Control, view: View) -> None:
        """Make sure, as the controller, that there is what a cluster with topics has."""
        assert self._session is not None  # it controls in it
        has_adopted = self._adoption.adopt(control, self._session, view, self._member)
        if has_adopted or view.topics:
            self._changing.ensure_coordinators(control, view)

    # What is known

    @property
    def address(self) -> str:
        """Where it listens, with the port that the system has chosen."""
        assert self._listener is not None
        return self._listener.address

    @property
    def cluster_id(self) -> str:
        return self._coordinator.cluster_id

    @property
    def is_controller(self) -> bool:
        """Whether it elects leaders now."""
        seat = self._coordinator.view.controller
        return seat is not None and seat.member == self._member

    @property
    def led(self) -> tuple[TopicPartition, ...]:
        """The partitions that it leads."""
        return tuple(sorted(each.partition for each in self._replicas.copy().values() if each.leads))

    @property
    def view(self) -> View:
        """What is known of the cluster."""
        return self._coordinator.view

    @property
    def failure(self) -> LogstoreError | None:
        """Why it is no node any more, if its disk has failed: it has left the cluster, and others lead. Close
        it, look after the disk, open the store again, and start another one."""
        return self._failure

    @property
    def member(self) -> Member:
        return self._member

    @property
    def has_lease(self) -> bool:
        session = self._session
        return session is not None and session.has_lease

    def now_ms(self) -> int:
        return int(time.monotonic() * 1000)

    # The coordinator

    def _register(self, *, wait_ms: int) -> None:
        assert self._listener is not None
        advertised = self._listener.advertised
        if advertised.path:
            raise UsageError(f"a node listens at a host and a port, not at {advertised.path}")
        protocol = self._listener.protocol
        endpoint = Endpoint(protocol, advertised.host, advertised.port, protocol)
        telling = Telling(
            self.node_id,
            str(self.directory.identity.directory_id),
            self._life.last_life,
            self._life.is_whole,
            (endpoint,),
            self.rack,
            self._life.keeps_flushed,
        )
        if not telling.keeps_flushed:
            warn(
                "node %d has lost records that it had flushed: partitions with other replicas are led by "
                "those that have everything, or by nobody unless unclean_leader_election_enable allows it",
                self.node_id,
            )
        self._session = self._coordinator.register(
            telling, self._life.remember, on_lost=self._bell.set, wait_ms=wait_ms
        )
        self._member = self._session.registration.member
        self._life.note_registered()
        self._controlling.begin(self._session)

    def _note_change(self, change: ViewChange) -> None:
        """Runs in the coordinator's thread."""
        with self._lock:
            self._changes.append(change)
        self._controlling.note(change)
        self._bell.set()

    def _run(self) -> None:
        while not self._is_closing:
            self._bell.wait(_TICK_SECONDS)
            self._bell.clear()
            try:
                self._step()
                if self._trouble is not None:
                    inform("node %d goes on", self.node_id)
                self._trouble = None
            except LogstoreError as error:
                if str(error) != self._trouble:
                    warn("node %d cannot go on: %s; it tries again until it can", self.node_id, error)
                self._trouble = str(error)
                time.sleep(_AGAIN_SECONDS)

    def _step(self) -> None:
        if self._failure is not None:
            return
        if self.directory.context.home.has_lost:
            self._fail("records that were flushed are gone")
            return
        session = self._session
        if session is None or session.is_lost:
            self._begin_again()
        with self._lock:
            changes, self._changes = self._changes, []
        if changes:
            self._act_on(changes)
        if self._coming:
            self._hold(self._applied, self._coming[:CREATED_AT_A_TIME])
            del self._coming[:CREATED_AT_A_TIME]
            self._bell.set()
        now = time.monotonic()
        if now >= self._tick_at:
            self._tick_at = now + self._tick_seconds
            self._texts.write_copies()
            self._hold_again()
            for replica in list(self._replicas.values()):
                if replica.has_failed:
                    self._fail(f"{replica.partition} must be reopened")
                    return
                self._guarded(replica, replica.on_tick)
                self._fetchers.check(replica)
        self._broker.look()

    def _fail(self, why: str) -> None:
        """The disk has failed under a log: what the system holds of it in memory may be gone, and a start
        would not notice. Others are to lead."""
        self._failure = StorageError(f"node {self.node_id} has left the cluster: {why}")
        warn("%s", self._failure)
        with suppress(LogstoreError):  # the disk may take nothing
            self._life.note_lost()
        if self._session is not None:
            self._session.close()
        for replica in list(self._replicas.values()):
            self._guarded(replica, replica.on_tick)  # none has a lease
            self._fetchers.let_go(replica)

    def _begin_again(self) -> None:
        """The session was lost: another life, having lost nothing."""
        for replica in list(self._replicas.values()):
            self._guarded(replica, replica.on_tick)  # none has a lease
        try:
            self._register(wait_ms=_WAIT_MS)
        except LockedError as error:
            raise RetriableError(f"the node id is in use: {error}") from error
        inform("node %d has registered again", self.node_id)
        for replica in list(self._replicas.values()):
            self._guarded(replica, replica.begin_life)

    def _act_on(self, changes: list[ViewChange]) -> None:
        """
        Raises:
            LogstoreError: not all could be done; it is done together with what comes next.
        """
        try:
            self._apply(changes)
        except LogstoreError:
            with self._lock:
                self._changes[:0] = changes
            raise

    def _apply(self, changes: list[ViewChange]) -> None:
        self._applied = view = changes[-1].view
        self._texts.take(view, {name for each in changes for name in each.texts})
        partitions = {TopicPartition(*one) for each in changes for one in each.partitions}
        names = {name for each in changes for name in each.topics} | {each.topic for each in partitions}
        remade = self._assignment.remade(view, names)
        for partition in [each for each in self._replicas if each.topic in remade]:
            self._release(partition)  # epochs and versions of the one say nothing of the other
        if remade:  # their states may look the same
            partitions.update(TopicPartition(*each) for each in view.partitions if each[0] in remade)
        coming = self._assignment.coming(view, names)[CREATED_AT_A_TIME:]
        self._coming = list(dict.fromkeys([*self._coming, *coming]))
        mine = {each for each in partitions if _is_replica(view, each, self.node_id)}
        others = {each for each in partitions - mine if not self._knows_better(view, each)}
        for partition in others:
            self._release(partition)
        self._assignment.apply(view, frozenset(names.difference(coming)))
        for partition in others:
            if partition in view.partitions:
                self._assignment.let_go(partition, view)
        if not self._has_begun and view.controller is not None:
            self._has_begun = True
            strays = self._assignment.drop_deleted(view)
            if self.is_controller:  # then it takes its own along
                strays = [name for name in strays if not self._adoption.is_own(name)]
            if strays:
                warn(_STRAYS, ", ".join(strays), self._store.path)
        deleted = self._assignment.note_topics(view, names)
        if deleted:
            self._broker.forget_topics(deleted)
        self._replicate(view, mine, names)
        if any(each.living for each in changes):
            self._note_living(view)
            self._fetchers.look_again()

    def _hold_again(self) -> None:
        """What could not be held when it came, or deleted when it went: there may be room on the disk now."""
        self._assignment.let_go_again(self._applied)
        self._coming = list(dict.fromkeys([*self._coming, *sorted(self._assignment.undone)]))

    def _hold(self, view: View, given: Iterable[str]) -> None:
        """Hold what these topics have here, and replicate it."""
        names = frozenset(given)
        self._assignment.apply(view, names)
        theirs = [TopicPartition(*each) for each in view.partitions if each[0] in names]
        self._replicate(view, [each for each in theirs if _is_replica(view, each, self.node_id)], names)

    def _replicate(self, view: View, partitions: Iterable[TopicPartition], names: Iterable[str]) -> None:
        """Replicate those partitions of these topics that are held."""
        told = []
        for partition in partitions:
            replica = self._replica_of(partition, view)
            if replica is not None:
                told.append((replica, view.partitions[partition]))
        self._configure(frozenset(names), view)
        take_turns(self._tell, told, at_a_time=flushed_at_a_time(self.directory.files))
        for replica, _ in told:  # when all have heard: whoever copies begins anew with each that is added
            self._fetchers.follow(replica)

    def _knows_better(self, view: View, partition: TopicPartition) -> bool:
        """Whether the node has heard already, as an answer, of a later state of the partition than the view
        has: what the view says of it may be over."""
        replica, state = self._replicas.get(partition), view.partitions.get(partition)
        return replica is not None and state is not None and replica.newest_version > state.version

    def _note_living(self, view: View) -> None:
        """Nobody waits for nodes that are gone."""
        gone, self._living = self._living - view.living.keys(), set(view.living)
        if gone:
            for replica in list(self._replicas.values()):
                self._guarded(replica, lambda replica=replica: replica.on_gone(gone))  # type: ignore[misc]

    def _tell(self, told: tuple[PartitionReplica, PartitionState]) -> None:
        replica, state = told
        self._guarded(replica, lambda: replica.on_state(state))

    def _replica_of(self, partition: TopicPartition, view: View) -> PartitionReplica | None:
        replica = self._replicas.get(partition)
        if replica is None:
            entry = live_entry(self.directory, partition.topic)
            topic = view.topics.get(partition.topic)
            is_held = entry is not None and topic is not None and entry.topic_id == topic.topic_id
            if entry is None or not is_held or not entry.holds(partition.partition):
                return None  # what cannot be held was told
            config = self._replica_config(partition.topic, view)
            replica = self._replicas[partition] = PartitionReplica(self, partition, entry.topic_id, config)
        return replica

    def _release(self, partition: TopicPartition) -> None:
        """The partition is gone, or on other nodes."""
        replica = self._replicas.pop(partition, None)
        if replica is not None:
            self._fetchers.let_go(replica)
            self._guarded(replica, replica.close)
            self._broker.forget_partition(partition)

    def _configure(self, names: frozenset[str], view: View) -> None:
        for partition, replica in self._replicas.items():
            if partition.topic in names:
                config = self._replica_config(partition.topic, view)
                if replica.config != config:
                    replica.configure(config)

    @staticmethod
    def _guarded(replica: PartitionReplica, call: Callable[[], object]) -> None:
        """Trouble of one partition is not another's."""
        try:
            call()
        except LogstoreError as error:
            replica.note_trouble(error)

    # Settings

    def _topic_config(self, name: str) -> TopicConfig | None:
        """Cost: 50 µs, and nothing until the topic has other settings: it is asked for each partition."""
        topic = self._coordinator.view.topics.get(name)
        if topic is None:
            self._configs.pop(name, None)
            return None
        known, config = self._configs.get(name, (None, None))
        if config is None or known is not topic:
            try:
                config = config_of(self.directory, topic)
            except LogstoreError:
                config = self.directory.config.topic
            self._configs[name] = topic, config
        return config

    def _is_durable(self, name: str, view: View) -> bool:
        """Whether each replica of the topic flushes what it tells of: a setting of the topic itself."""
        topic = view.topics.get(name)
        return topic is not None and topic.config.get("acks.all.durable") == "true"

    def _replica_config(self, name: str, view: View) -> ReplicaConfig:
        config = self._topic_config(name) or self.directory.config.topic
        return ReplicaConfig(self._lag_ms, config.min_insync_replicas, self._is_durable(name, view))

    def _rules_of(self, name: str) -> TopicRules | None:
        config = self._topic_config(name)
        if config is None:
            return None
        return TopicRules(
            config.min_insync_replicas,
            self._is_durable(name, self._coordinator.view),
            config.unclean_leader_election_enable,
        )

    # What replicas ask for

    def propose(self, replica: PartitionReplica, state: PartitionState) -> None:
        with self._lock:
            self._proposed[replica] = state
        self._proposal_bell.set()

    def _propose_all(self) -> None:
        while not self._is_closing:
            self._proposal_bell.wait()
            self._proposal_bell.clear()
            with self._lock:
                proposed, self._proposed = self._proposed, {}
            session = self._session
            if not proposed or session is None:
                continue
            proposed = {each: state for each, state in proposed.items() if self._has(each)}
            changes: dict[tuple[str, int], PartitionState] = {
                replica.partition: state for replica, state in proposed.items()
            }
            try:
                outcomes = session.propose(changes)
            except LogstoreError as error:
                inform("proposals were not stored, and are made again: %s", error)
                continue
            for replica in proposed:
                state = outcomes[replica.partition].state
                if state is not None:
                    self._guarded(replica, lambda replica=replica, state=state: replica.on_state(state))  # type: ignore[misc]

    def _has(self, replica: PartitionReplica) -> bool:
        """Whether it was not released meanwhile: its partition may be that of another topic by now."""
        return self._replicas.get(replica.partition) is replica

    def note_growth(self, replica: PartitionReplica) -> None:
        self._grown.add(replica)
        self._growth_bell.set()

    def _grow(self) -> None:
        while not self._is_closing:
            self._growth_bell.wait()
            self._growth_bell.clear()
            while self._grown:
                replica = self._grown.pop()
                self._guarded(replica, replica.on_growth)

    def _is_coming(self, topic: str) -> bool | None:
        """None if nobody can say."""
        try:
            return self._coordinator.read_state((topic, 0)) is not None
        except LogstoreError:
            return None  # clients that want it ask again

    def _was_deleted(self, topic_id: UUID) -> bool:
        """False if the coordinator cannot be asked."""
        try:
            return self._coordinator.was_deleted(topic_id)
        except LogstoreError:
            return False

    def _endpoint_of(self, node_id: int) -> Endpoint | None:
        living = self._coordinator.view.living.get(node_id)
        return living.endpoints[0] if living is not None and living.endpoints else None

    def _connect(self, endpoint: Endpoint) -> LeaderLink:
        """
        Raises:
            UsageError: the node there expects what this one was not given.
        """
        if endpoint.protocol != self._reaches:
            raise UsageError(
                f"the node at {endpoint.host}:{endpoint.port} listens with {endpoint.protocol}, and this one "
                f"connects with {self._reaches}: see peer_tls and peer_sasl"
            )
        return self._links.to(Address(endpoint.host, endpoint.port))

    # The end

    def close(self) -> None:
        """Hand over what the node leads, and leave the cluster. You may call it again.

        Waits until other nodes lead what this one has led, for up to 5 seconds if there is none that can.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._hand_over()
        self._abandon()
        if self._failure is None:
            self.directory.checkpoint()
            self._life.note_stopped()

    def _hand_over(self) -> None:
        session = self._session
        if session is None or session.is_lost:
            return
        try:
            session.leave()
            deadline = time.monotonic() + _HAND_OVER_SECONDS
            while time.monotonic() < deadline and (self._has_successors() or self._has_not_heard()):
                time.sleep(0.02)
        except LogstoreError as error:
            warn("node %d leaves without handing over: %s", self.node_id, error)

    def _has_successors(self) -> bool:
        """Whether it leads a partition that another could lead."""
        view = self._coordinator.view
        others = view.living.keys() - {self.node_id}
        return any(
            state.leader is not None
            and state.leader.node_id == self.node_id
            and any(each.node_id in others for each in state.isr)
            for state in view.partitions.values()
        )

    def _has_not_heard(self) -> bool:
        """Whether a replica here has yet to act on it that another leads. What waits at it is answered then,
        and it follows: it counts as in sync until the session ends, and the new leader waits for it."""
        partitions = self._coordinator.view.partitions
        return any(
            replica.leads
            and (state := partitions.get(partition)) is not None
            and state.leader is not None
            and state.leader.node_id != self.node_id
            for partition, replica in list(self._replicas.items())
        )

    def _abandon(self) -> None:
        """End everything, in an order in which nothing asks for what is gone."""
        self._is_closing = True
        self._controlling.stop()
        for bell in (self._bell, self._proposal_bell, self._growth_bell):
            bell.set()
        if self._listener is not None:
            self._listener.close()
        self._broker.close()
        self._fetchers.close()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)
        for replica in self._replicas.values():
            self._guarded(replica, replica.close)
        if getattr(self, "_unwatch", None) is not None:
            self._unwatch()
        self._links.close()
        if self._session is not None:
            self._session.close()
        self.directory.context.home.is_node_here = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Node {self.node_id} of {self.cluster_id}>"


def _check_place(store: Store, node_id: int, coordinator: Coordinator) -> None:
    check_least("node_id", node_id, 0)
    if node_id > MAX_NODE_ID:
        raise UsageError(f"node_id is {node_id}; it must be {MAX_NODE_ID} or below")
    if not isinstance(store, Store):
        raise UsageError(f"store is {shown(store)}; it must be what logstore.open() returns")
    if not hasattr(coordinator, "cluster_id"):
        raise UsageError(
            f"coordinator is {shown(coordinator)}; it must be a FileCoordinator or a ZooKeeperCoordinator"
        )


def _check_most_replicas(replication_factor: int | None) -> None:
    if replication_factor is not None:
        check_least("replication_factor", replication_factor, 1)
        if replication_factor > _MOST_REPLICAS:
            raise UsageError(f"replication_factor is {replication_factor}; at most {_MOST_REPLICAS}")


def _check_pace(lag_ms: int, balance_seconds: int, throttled_rate: int | None) -> None:
    check_least("replica_lag_time_max_ms", lag_ms, 1)
    if throttled_rate is not None:
        check_least("follower_replication_throttled_rate", throttled_rate, 1)
    check_least("leader_imbalance_check_interval_seconds", balance_seconds, 0)


def _check_rest(rack: object, peer_tls: object, peer_sasl: object) -> None:
    """
    Raises:
        UsageError: one is of the wrong type.
    """
    if rack is not None and (not isinstance(rack, str) or not 0 < len(rack.encode()) <= _MAX_RACK_BYTES):
        raise UsageError(
            f"rack is {shown(rack)}; it must be a name of at most {_MAX_RACK_BYTES} bytes, or None"
        )
    check_client_tls(peer_tls, "peer_tls")
    check_sasl(peer_sasl, "peer_sasl")


def _is_replica(view: View, partition: TopicPartition, node_id: int) -> bool:
    state = view.partitions.get(partition)
    return state is not None and node_id in state.replicas
