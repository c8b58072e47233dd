"""What a handler knows besides the request: who asks, and what is asked."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple, Protocol

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.counting import ConnectionCounts, RequestCounts
from logstore.broker.pending import Pending
from logstore.broker.requests import Reassignment
from logstore.broker.share.kept import ShareStates
from logstore.broker.share.requests import ShareGroupConfig
from logstore.logdir.acls import CLUSTER_NAME, Operation, ResourceType
from logstore.model import TopicPartition
from logstore.wire.handlers.answer_memory import AnswerMemory, AnswerRoom
from logstore.wire.handlers.fetch_sessions import FetchSessions
from logstore.wire.handlers.settings import ListenerConfig
from logstore.wire.handlers.share_sessions import ShareSessions
from logstore.wire.security.acls import Acls
from logstore.wire.security.audit import note_failed_login
from logstore.wire.security.sasl import SaslServer
from logstore.wire.security.security import Security
from logstore.wire.security.users import Users


class TopicIds(Protocol):
    """The topics' names and ids, which clients use one like the other."""

    @property
    def stamp(self) -> object:
        """Another object after each change of them."""
        ...

    def id_of(self, name: str) -> uuid.UUID | None:
        """None if there is no such topic."""
        ...

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        """None if there is no such topic."""
        ...

    def has(self, partition: TopicPartition) -> bool:
        """Whether there is such a partition."""
        ...


class GroupSettings(Protocol):
    """The settings that groups were given."""

    def names(self) -> tuple[str, ...]:
        """Those that have some."""
        ...

    def own(self, group: str) -> Mapping[str, str]:
        """Those of one, by Kafka's names."""
        ...

    def defaults(self) -> Mapping[str, str]:
        """What they are without."""
        ...

    def config_of(self, group: str) -> ShareGroupConfig:
        """What a first member gives a share group."""
        ...

    def share_times_of(self, group: str) -> tuple[int, int]:
        """How long a member of a share group has before it is gone, and how often it is to be heard of, in
        milliseconds."""
        ...

    def alter(self, group: str, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Change some; None gives one its default again. Raises LogstoreError."""
        ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where clients reach the node, as they are told."""

    host: str
    port: int


class CoordinatorKind(IntEnum):
    """What is coordinated, numbered as in Kafka's protocol."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class BrokerEndpoint(NamedTuple):
    """Where clients reach a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class LeaderElsewhere(NamedTuple):
    """Who leads a partition."""

    node_id: int
    leader_epoch: int
    endpoint: BrokerEndpoint


class Moved(NamedTuple):
    """What became of the wish to move a partition."""

    error: ErrorCode
    message: str | None = None


class ClusterNodes(Protocol):
    """The nodes of a cluster, as they are now."""

    def brokers(self) -> tuple[BrokerEndpoint, ...]:
        """Those that live."""
        ...

    def controller_id(self) -> int:
        """Which of them changes topics; -1 if none does now."""
        ...

    def leader_of(self, partition: TopicPartition) -> LeaderElsewhere | None:
        """Which of them leads the partition; None if none does now."""
        ...

    def coordinator_of(self, kind: CoordinatorKind, key: str) -> int:
        """Which node coordinates a group or the transactions of an id; -1 if none does now."""
        ...

    def elect(
        self, partitions: Collection[TopicPartition] | None, *, is_unclean: bool
    ) -> Mapping[TopicPartition, ErrorCode] | None:
        """Let preferred leaders lead these partitions, or all; or anybody those that have no leader. None if
        another node does that.

        Raises:
            LogstoreError: it cannot be done now.
        """
        ...

    def reassign(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None], *, may_change_factor: bool
    ) -> Mapping[TopicPartition, Moved] | None:
        """Move partitions to these nodes, or call off (None) what moves. None if another node does that.

        Raises:
            LogstoreError: it cannot be done now.
        """
        ...

    def moving(self) -> Mapping[TopicPartition, Reassignment]:
        """The partitions that move."""
        ...

    def throttle(self, settings: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Limit how fast this node copies what is not in sync, by Kafka's names; None ends a limit.

        Raises:
            InvalidConfigError: it has no such setting, or this is no rate.
        """
        ...

    def throttles(self) -> Mapping[str, str]:
        """Those that were set."""
        ...


@dataclass(frozen=True, slots=True)
class Node:
    """The node that answers, behind one of its listeners."""

    node_id: int
    cluster_id: str
    endpoint: Endpoint
    topics: TopicIds
    config: ListenerConfig
    broker: Broker
    """Asked for what no quota counts, such as whether a topic exists."""
    security: Security = field(default_factory=Security)
    fetch_sessions: FetchSessions = field(default_factory=FetchSessions)
    share_sessions: ShareSessions = field(default_factory=ShareSessions)
    group_settings: GroupSettings = field(kw_only=True)
    cluster: ClusterNodes | None = None
    """None: the node is alone."""
    share_states: ShareStates | None = None
    """For other nodes; None: the node is alone."""
    answer_memory: AnswerMemory = field(
        default_factory=lambda: AnswerMemory(ListenerConfig().fetch_memory_bytes)
    )
    requests: RequestCounts = field(default_factory=RequestCounts)
    """Where what was refused counts."""
    connections: ConnectionCounts = field(default_factory=ConnectionCounts)
    """Who came to this listener, and was not let in."""
    store_path: str = ""
    """Where the files are. No error tells clients of it."""

    def brokers(self) -> tuple[BrokerEndpoint, ...]:
        """All that clients may ask."""
        if self.cluster is None:
            return (BrokerEndpoint(self.node_id, self.endpoint.host, self.endpoint.port),)
        return self.cluster.brokers()

    @property
    def controller_id(self) -> int:
        """Which of them changes topics; -1 if none does now."""
        return self.node_id if self.cluster is None else self.cluster.controller_id()

    def coordinator_of(self, kind: CoordinatorKind, key: str) -> BrokerEndpoint | None:
        """Who coordinates it; None if nobody does now."""
        wanted = self.node_id if self.cluster is None else self.cluster.coordinator_of(kind, key)
        return next((each for each in self.brokers() if each.node_id == wanted), None)


@dataclass(slots=True)
class Call:
    """One client's connection, as handlers see it. The client's id is that of the request at hand."""

    node: Node
    broker: Broker
    """As this client: it is held to its quotas."""
    principal: str
    """Such as ``User:alice``."""
    host: str
    client_id: str = ""
    software: str = ""
    """What its program is made with, as clients tell since KIP-511."""
    sasl: SaslServer | None = None
    """The logins of this connection; None if nobody has to log in."""
    refused: ResourceType | None = None
    """Of the request at hand: the first resource that the client asked for and may not use."""
    room: AnswerRoom = field(init=False)
    """For its answer."""

    def __post_init__(self) -> None:
        self.room = AnswerRoom(self.node.answer_memory)

    @property
    def users(self) -> Users | None:
        """None if nobody has to log in."""
        return self.node.security.users

    @property
    def acls(self) -> Acls | None:
        """None if everyone may do everything."""
        return self.node.security.acls

    def note_failed_login(self, claimed: str | None, mechanism: str | None, reason: str) -> None:
        """The client did not prove to be who it claims to be; None if it has not even come to that."""
        self.node.connections.note_failed_login()
        note_failed_login(claimed, self.host, mechanism, reason)

    @property
    def session_lifetime_ms(self) -> int:
        """After which the client has to log in again; 0: never."""
        return self.node.config.connections_max_reauth_ms

    def allows(
        self, operation: Operation, resource_type: ResourceType, name: str, *, is_noted: bool = True
    ) -> bool:
        """Whether the client may do it. ``is_noted=False`` where it has not asked for this by name."""
        is_allowed = self.node.security.allows(
            self.principal, self.host, operation, resource_type, name, is_noted=is_noted
        )
        if is_noted and not is_allowed and self.refused is None:
            self.refused = resource_type
        return is_allowed

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """The same of some resource of the type (KIP-679)."""
        return self.node.security.allows_any(self.principal, self.host, operation, resource_type)

    def allows_topic(self, operation: Operation, name: str) -> bool:
        """The same of a topic."""
        return self.allows(operation, ResourceType.TOPIC, name)

    def allows_group(self, operation: Operation, name: str) -> bool:
        """The same of a group."""
        return self.allows(operation, ResourceType.GROUP, name)

    def allows_cluster(self, operation: Operation, *, is_noted: bool = True) -> bool:
        """The same of the cluster. ``is_noted=False`` where another right is as good."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_noted=is_noted)

    def allows_transactions(self, operation: Operation, name: str) -> bool:
        """The same of a transactional id."""
        return self.allows(operation, ResourceType.TRANSACTIONAL_ID, name)

    def authorized_operations(
        self, resource_type: ResourceType, name: str, operations: Iterable[Operation]
    ) -> int:
        """A bit for each of the operations that the client may do (KIP-430)."""
        return sum(1 << each for each in operations if self.allows(each, resource_type, name, is_noted=False))


def told(name: str, code: ErrorCode, message: str | None) -> str | None:
    """What clients are told of a topic's error, in words: not which other topics there are, which they may
    not be allowed to see."""
    return f"there is no topic {name!r}" if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else message


class NoAnswer(Enum):
    """Stands for the response if there is none."""

    NO_ANSWER = "the client waits for none"
    HANG_UP = "the client can be told only by closing the connection"


NO_ANSWER: Final = NoAnswer.NO_ANSWER
HANG_UP: Final = NoAnswer.HANG_UP


class Answers(Protocol):
    """A module of this package's rooms. It may also have ``refuse_all(call, request, code, version)``: what a
    test refuses that could be carried out, with all that clients need to take the error in."""

    def answer(self, call: Call, request: Any, version: int) -> Pending[Any] | Any:
        """The response, or what will be one; ``NO_ANSWER`` or ``HANG_UP`` instead."""
        ...

    def refuse(self, request: Any, code: ErrorCode, version: int) -> Any:
        """A response that says of everything in the request what went wrong; ``HANG_UP`` where the client
        waits for none."""
        ...
