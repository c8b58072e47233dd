"""What a coordinator does for the nodes of a cluster.

It keeps who is alive, who leads each partition, and which node is the controller. All changes are made by
compare-and-set, so that of several who try exactly one succeeds. It decides nothing itself: the rules in
:mod:`logstore.replica.rules` do.

Errors, for all calls:

* ``RetriableError``: the coordinator cannot be reached. A change may have been made all the same; the view
  shows it. ``LockedError``, which is one: a node id is in use.
* ``FencedError``: another has taken over. The session is lost, or the controller is no longer that.
* ``UsageError``: the call, the path or the cluster id is wrong.
* ``CorruptionError``: what is kept there cannot be read, or is older than what a node knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from logstore.clock import Clock
from logstore.errors import LogstoreError
from logstore.replica.rules.partition_state import Member, PartitionState, Registration

SESSION_MS = 10_000
"""A node that was not heard of for so long is gone. Kafka had 6 s, and has 18 s."""

TEXTS: Final = ("users", "acls", "quotas")
"""What the nodes have in common besides topics and groups, each as one text. What is in them is up to the
nodes."""
MOST_TEXT_BYTES: Final = 768 * 1024
"""Of one of them. ZooKeeper takes a megabyte, with the rest of the request."""

TopicPartition = tuple[str, int]


class Endpoint(NamedTuple):
    """Where clients and other nodes reach a node."""

    listener: str
    """Kafka's name of the listener."""
    host: str
    port: int
    protocol: str = "PLAINTEXT"
    """Kafka's name of the security protocol."""


class Node(NamedTuple):
    """What a node tells when it registers."""

    node_id: int
    disk_id: str
    """Of the directory with its logs: its ``directory.id``."""
    last_life: int
    """The life that was last stored on that disk, by ``remember``; 0 if none was."""
    is_whole: bool
    """Whether it has lost nothing that it had written since it last registered. If it was not stopped, that
    is so only if just its process ended, and not the machine."""
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    keeps_flushed: bool = True
    """Whether it has lost nothing since then that it had flushed."""


class LivingNode(NamedTuple):
    """A node that is registered."""

    registration: Registration
    endpoints: tuple[Endpoint, ...]


class ControllerSeat(NamedTuple):
    """Who is the controller."""

    member: Member
    epoch: int
    """Rises with each controller."""


class Topic(NamedTuple):
    """Of a topic, what its partitions have in common."""

    topic_id: UUID
    config: Mapping[str, str]
    """Settings by Kafka's names; those that are not there have their defaults."""


class NewTopic(NamedTuple):
    """A topic to create."""

    name: str
    states: Sequence[PartitionState]
    """Of its partitions."""
    config: Mapping[str, str] = MappingProxyType({})
    topic_id: UUID | None = None
    """None for one that there never was."""


class Text(NamedTuple):
    """One of ``TEXTS``."""

    data: str
    version: int
    """Rises with each change."""

    def __repr__(self) -> str:
        """Without what must not end up in a log."""
        return f"<Text of {len(self.data)} characters, version {self.version}>"


class View(NamedTuple):
    """What is known at a moment. It never changes: another one takes its place."""

    living: Mapping[int, LivingNode]
    controller: ControllerSeat | None
    topics: Mapping[str, Topic]
    partitions: Mapping[TopicPartition, PartitionState]
    groups: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    """The settings of groups that have some of their own, by Kafka's names. No watcher is told of them."""
    texts: Mapping[str, Text] = MappingProxyType({})
    """Those of ``TEXTS`` that are there."""

    @property
    def registrations(self) -> dict[int, Registration]:
        """Of the living nodes, for elections."""
        return {node_id: node.registration for node_id, node in self.living.items()}


class ViewChange(NamedTuple):
    """What a watcher is told. Of several quick changes of one thing it may be told only the last: a node that
    left and came back has another life."""

    view: View
    living: bool
    """Whether nodes came or left, or tell something else."""
    controller: bool
    topics: frozenset[str]
    """Topics that came or went, or have other settings."""
    partitions: frozenset[TopicPartition]
    """Partitions that came or went, or have another state."""
    texts: frozenset[str] = frozenset()
    """Those of ``TEXTS`` that have changed."""


class Outcome(NamedTuple):
    """What became of the change of a partition's state."""

    is_stored: bool
    state: PartitionState | None
    """The newest state. None if there is no such partition any more."""


Watcher = Callable[[ViewChange], None]


class Session(Protocol):
    """A node's registration, for one life."""

    @property
    def registration(self) -> Registration:
        """With the life, and what the node has kept from earlier ones."""
        ...

    @property
    def lease_until_ms(self) -> int:
        """Until then nobody else can be elected in this node's place. By the coordinator's clock; counted
        from before the last exchange with the coordinator. Never set back, except to 0 when the session is
        lost. Look at it before anything that only a leader or a controller may do."""
        ...

    @property
    def has_lease(self) -> bool:
        """Whether that is later than now."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether it is over: the node was taken for dead, has left, or registered again."""
        ...

    def leave(self) -> None:
        """Tell that the node is about to stop: no election prefers it any more."""
        ...

    def propose(self, changes: Mapping[TopicPartition, PartitionState]) -> dict[TopicPartition, Outcome]:
        """As a leader, replace states whose versions are still those of these. Each by itself. Waits for up
        to ``session_ms`` if the coordinator does not answer, and other changes of the session wait, too.

        Raises:
            FencedError: the session is lost.
            RetriableError: the outcome of some is not known.
        """
        ...

    def configure_group(
        self, group: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> Mapping[str, str]:
        """Replace the settings of a group: ``change`` gets the newest ones, maybe more than once, and returns
        what they are to be. Any node may do that. Returns the newest ones, which the view has a little later.

        Raises:
            FencedError: the session is lost.
        """
        ...

    def replace_text(self, name: str, change: Callable[[str | None], str]) -> Text:
        """Replace one of ``TEXTS``: ``change`` gets the newest one, or None if there is none, maybe more than
        once, and returns what it is to be. Any node may do that. Returns the newest one, which the view has a
        little later.

        Raises:
            UsageError: it would be larger than ``MOST_TEXT_BYTES``. Nothing is changed.
            FencedError: the session is lost.
        """
        ...

    def try_to_control(self) -> Control | None:
        """Become the controller, if there is none. None if there is one.

        Raises:
            FencedError: the session is lost.
        """
        ...

    def close(self) -> None:
        """Leave the cluster at once. The coordinator stays usable. You may call it again."""
        ...


class Control(Protocol):
    """What only the controller may do. Each call raises ``FencedError`` when another one has begun."""

    @property
    def epoch(self) -> int: ...

    def change(self, changes: Mapping[TopicPartition, PartitionState]) -> dict[TopicPartition, Outcome]:
        """Like :meth:`Session.propose`. Cost: of 1,000 partitions some hundredths of a second
        with files, and 0.7 s with ZooKeeper."""
        ...

    def create_topic(
        self,
        name: str,
        states: Sequence[PartitionState],
        *,
        topic_id: UUID | None = None,
        config: Mapping[str, str] | None = None,
    ) -> UUID:
        """A topic with these partitions. Returns its id.

        Raises:
            TopicExistsError: there is one.
        """
        ...

    def create_topics(self, topics: Sequence[NewTopic]) -> list[UUID | LogstoreError]:
        """Topics, each of them whole or not at all: the id of each, or why it was not made, as
        :meth:`create_topic` raises it. Cost: one change with files; with ZooKeeper one for each 500 texts, of
        which a topic has four, and each partition two."""
        ...

    def delete_topic(self, name: str) -> None:
        """
        Raises:
            UnknownTopicError: there is none.
        """
        ...

    def add_partitions(self, name: str, first: int, states: Sequence[PartitionState]) -> None:
        """More partitions of a topic, from the number ``first`` on: how many it has.

        Raises:
            UnknownTopicError: there is none.
            RetriableError: it has another number of partitions, or is being changed.
        """
        ...

    def configure_topic(self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Replace the settings of a topic: ``change`` gets the newest ones, maybe more than once, and returns
        what they are to be. The view has them a little later.

        Raises:
            UnknownTopicError: there is none.
        """
        ...

    def resign(self) -> None:
        """Let another node be the controller."""
        ...


class Coordinator(Protocol):
    """Safe to use from many threads. A forked child opens its own."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def session_ms(self) -> int:
        """After how long a process of which nothing is heard is taken for dead."""
        ...

    @property
    def clock(self) -> Clock:
        """Whose ``monotonic_ms`` leases are told in."""
        ...

    @property
    def view(self) -> View:
        """What was told last; others may have changed something since."""
        ...

    def read_state(self, partition: TopicPartition) -> PartitionState | None:
        """The newest state. None if there is no such partition."""
        ...

    def was_deleted(self, topic_id: UUID) -> bool:
        """Whether somebody has deleted this topic. That it is not in the view may mean less: its text may be
        damaged, or the coordinator may have lost what it had."""
        ...

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call ``watcher`` with everything there is, and then after each change, in order, from one thread
        of the coordinator. If the coordinator was away, it is told the difference when that is back. An
        error of the watcher is logged. Returns what ends it."""
        ...

    def register(
        self,
        node: Node,
        remember: Callable[[int], None],
        *,
        on_lost: Callable[[], None] | None = None,
        wait_ms: int = 0,
    ) -> Session:
        """Begin a life of a node.

        If this coordinator has a session of the node, that is lost. An election may follow before this
        returns.

        Args:
            remember: stores the life that it is given on the node's disk, durably. It is called before
                anybody hears of this life; maybe more than once, with rising numbers.
            on_lost: called once, from a thread of the coordinator, if the session is lost; not after
                ``close``, nor when the node registers again. It must not wait: that thread keeps the lease of
                the next session.
            wait_ms: how long to wait for an earlier process of the node to be taken for dead.

        Raises:
            LockedError: the node id is in use.
            CorruptionError: the node has lived longer than the coordinator knows: this is an older copy of
                it.
        """
        ...

    def close(self) -> None:
        """End the session, too. You may call it again."""
        ...
