"""What is asked of a broker about share groups (KIP-932), and what it answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import AbortedProducer
from logstore.broker.share.partition import Acknowledgement
from logstore.model import Bytes, Isolation, TopicPartition

T = TypeVar("T")

Done = Callable[[T], object]
"""Called once with a result, without a lock held."""

JOINING: Final = 0
"""ShareGroupHeartbeat: the member epoch of a member that joins."""
LEAVING: Final = -1
"""ShareGroupHeartbeat: the member epoch of a member that leaves."""

LONG_SESSION_MS: Final = 3_600_000
"""A member in this process that was not heard of for so long is gone. Its locks run out much earlier."""
HEARTBEAT_INTERVAL_MS: Final = 5_000
"""How often a member is to be heard of if nothing else is said."""
NOT_BEGUN: Final = -1
"""The start offset of a group that has not begun with a partition."""
UNKNOWN_LAG: Final = -1

ASSIGNOR: Final = "simple"
"""Kafka's name of the only way to assign partitions here: all to each member."""


class TopicIdPartition(NamedTuple):
    """A partition, and the id of its topic: one that is made later under the same name has another."""

    partition: TopicPartition
    topic_id: uuid.UUID

    def __str__(self) -> str:
        return str(self.partition)


class ShareGroupConfig(NamedTuple):
    """The settings of a share group: those of its first member, until the last has left, but for what an
    administrator changes meanwhile. The names are Kafka's with underscores for dots, without their beginning
    ``group.share.`` or ``share.``."""

    record_lock_duration_ms: int = 30_000
    """How long a worker has a record."""
    delivery_count_limit: int = 5
    """How often a record is delivered."""
    partition_max_record_locks: int = 2_000
    """How many records of a partition workers may have at a time."""
    auto_offset_reset: str = "earliest"
    """Where the group begins in a partition that is new to it: ``earliest`` or ``latest``."""
    isolation: Isolation = Isolation.HIGH_WATERMARK
    """How far it sees."""
    dead_letter_topic: str | None = None
    """Takes records that were rejected or delivered too often (KIP-1191)."""
    copies_dead_letters: bool = True
    """Whether they go there themselves, or headers alone, which say where each is."""


class ShareGroupHeartbeat(NamedTuple):
    """A member joins, is alive, or leaves."""

    group: str
    member_id: str
    member_epoch: int
    topics: tuple[str, ...] | None = None
    """What the member subscribes to; None: the same as before."""
    client_id: str = ""
    config: ShareGroupConfig | None = None
    """What the member takes the group's settings to be; None: those of the others, or the defaults. Not of
    the protocol, where they are the broker's."""
    client_host: str = ""
    rack_id: str | None = None
    session_timeout_ms: int = LONG_SESSION_MS
    """When the member is gone if it is not heard of. Not of the protocol, where it is the group's."""
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS
    """How often it is told to be heard of. The same."""
    waits_for_topics: bool = False
    """A topic that is not there is no error, and comes with a later heartbeat. Not of the protocol, where it
    is always so."""
    has_session: bool = False
    """LEAVING: its share session is open. What it has goes to the others when that ends, and until then it
    may say what became of it. Not of the protocol."""


class ShareGroupHeartbeatResult(NamedTuple):
    """What a member hears: all partitions of its topics are its own and the others'."""

    error: ErrorCode
    member_id: str = ""
    member_epoch: int = LEAVING
    """To be sent with the next heartbeat."""
    assignment: tuple[TopicIdPartition, ...] = ()
    message: str | None = None
    is_new: bool = False
    """Whether the member has not heard of this assignment yet."""
    heartbeat_interval_ms: int = 0
    """When to send the next one."""


class AcknowledgeBatch(NamedTuple):
    """What a member says of the records from ``first`` to ``last``."""

    first: int
    last: int
    kind: Acknowledgement
    available_at_ms: int = 0
    """RELEASE: no worker gets them earlier; milliseconds since the epoch. Not of the protocol."""
    reason: str = ""
    """RELEASE, REJECT: why, for the dead-letter topic. Not of the protocol."""


class AcknowledgePartition(NamedTuple):
    """Of one partition."""

    partition: TopicIdPartition
    batches: tuple[AcknowledgeBatch, ...]
    is_whole: bool = False
    """If one of them is refused, so are the others: the protocol has one code for all."""


class ShareAcknowledgeRequest(NamedTuple):
    """Members say what became of records."""

    group: str
    member_id: str
    partitions: tuple[AcknowledgePartition, ...]
    durable: bool = False
    """Answer when a power cut cannot undo it. Not of the protocol."""
    releases_rest: bool = False
    """All else that the member has goes back, too: its share session ends (epoch -1)."""


class AcknowledgedPartition(NamedTuple):
    """What became of the acknowledgements of one partition: ``refused`` are those of records that the member
    does not have any more. ``UNKNOWN_TOPIC_ID``: the topic was deleted, and maybe made again."""

    partition: TopicIdPartition
    error: ErrorCode
    refused: tuple[AcknowledgeBatch, ...] = ()
    message: str | None = None
    was_stored: bool = False
    """With an error: the rest was taken in all the same, but a power cut can undo it. Not of the
    protocol."""


class ShareAcknowledgeResult(NamedTuple):
    """The answer to a :class:`ShareAcknowledgeRequest`, in its order."""

    partitions: tuple[AcknowledgedPartition, ...]
    error: ErrorCode = ErrorCode.NONE
    """Why none was taken in: the member is not known, or share groups cannot be read."""
    lock_duration_ms: int = 0
    """How long renewed records are the member's, from now on (KIP-1222)."""


class ShareFetchRequest(NamedTuple):
    """Say what became of records, then take others that are available, and wait for some if there are none.

    Both are stored at once. If an acknowledgement is refused, the answer does not wait for records.
    """

    group: str
    member_id: str
    partitions: tuple[TopicIdPartition, ...]
    """In the order in which they are looked at."""
    max_records: int = 500
    """0: take none, and do not wait."""
    max_wait_ms: int = 500
    max_partition_bytes: int = 1024 * 1024
    """The most of each partition. A first batch that is larger is returned whole. Not of the protocol."""
    max_bytes: int = 2**31 - 1
    """The most of all partitions together; the same."""
    min_bytes: int = 1
    """Wait until about so many are available."""
    acknowledgements: tuple[AcknowledgePartition, ...] = ()
    """Of any partitions that the group works on."""
    durable: bool = False
    """Answer when a power cut cannot undo the acknowledgements, and then do not wait for records. Not of the
    protocol."""
    begins: bool = False
    """Whether the member has not fetched here before, in its present share session."""


class AcquiredRecords(NamedTuple):
    """The records from ``first`` to ``last`` are the member's; offsets without a record may be among them."""

    first: int
    last: int
    delivery_count: int


class ShareFetchedPartition(NamedTuple):
    """What a member gets of one partition. The batches may hold records that are others'."""

    partition: TopicIdPartition
    error: ErrorCode
    data: Bytes = b""
    acquired: tuple[AcquiredRecords, ...] = ()
    aborted: tuple[AbortedProducer, ...] = ()
    """If the group sees committed records only: what the member leaves out."""
    message: str | None = None


class ShareFetchResult(NamedTuple):
    """The answer to a :class:`ShareFetchRequest`: only partitions that have something, or an error."""

    error: ErrorCode
    partitions: tuple[ShareFetchedPartition, ...] = ()
    lock_duration_ms: int = 0
    """How long the records are the member's, from now on."""
    message: str | None = None
    acknowledged: tuple[AcknowledgedPartition, ...] = ()
    """What became of the acknowledgements, in the request's order; none if ``error`` says so."""


class ShareGroupMember(NamedTuple):
    """A member, as an administrator sees it."""

    member_id: str
    client_id: str
    topics: tuple[str, ...]
    epoch: int = 0
    client_host: str = ""
    rack_id: str | None = None
    assignment: tuple[TopicIdPartition, ...] = ()
    """As the member has heard of it."""


class SharePartitionState(NamedTuple):
    """How far a share group is in one partition."""

    partition: TopicPartition
    start_offset: int
    """All below is done."""
    end_offset: int
    """From here on no worker was given anything."""
    acquired_count: int
    """Offsets that workers have now."""
    available_count: int
    """Offsets between start and end that wait for a worker: they were released, or their lock ran out. Also
    those that failed, and wait for a dead-letter topic that takes them."""
    high_watermark: int
    """The same as ``end_offset`` if the log cannot be opened."""

    @property
    def waiting_count(self) -> int:
        """Offsets that no worker has: that were never given to one, were released, or put off, or wait for a
        dead-letter topic that takes them."""
        return self.available_count + self.high_watermark - self.end_offset

    @property
    def undone_count(self) -> int:
        """Offsets that are not done: that wait, or that a worker has."""
        return self.waiting_count + self.acquired_count


class ShareOffsetsQuery(NamedTuple):
    """Where a share group is."""

    group: str
    partitions: tuple[TopicPartition, ...] | None = None
    """None: in all partitions that it has begun."""


class ShareOffset(NamedTuple):
    """Where a share group is in one partition."""

    partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    start_offset: int = NOT_BEGUN
    """All below is done."""
    leader_epoch: int = 0
    lag: int = UNKNOWN_LAG
    """How many offsets are not done (KIP-1226)."""


class ShareGroupOffsets(NamedTuple):
    """The answer to a :class:`ShareOffsetsQuery`."""

    error: ErrorCode
    group: str
    partitions: tuple[ShareOffset, ...] = ()
    message: str | None = None


class AlterShareOffsets(NamedTuple):
    """Set where a share group is. What it has done from there on does not count any more."""

    group: str
    offsets: tuple[tuple[TopicPartition, int], ...]


class AlterShareOffsetsResult(NamedTuple):
    """What became of each."""

    error: ErrorCode
    """Why nothing was changed."""
    errors: Mapping[TopicPartition, ErrorCode] = MappingProxyType({})
    message: str | None = None


class DeleteShareOffsets(NamedTuple):
    """Forget what a share group has done of topics."""

    group: str
    topics: tuple[str, ...]


class DeleteShareOffsetsResult(NamedTuple):
    """What became of each."""

    error: ErrorCode
    """Why nothing was changed."""
    errors: Mapping[str, ErrorCode] = MappingProxyType({})
    message: str | None = None


class ListShareGroupsResult(NamedTuple):
    """The names of all share groups."""

    error: ErrorCode
    groups: tuple[str, ...] = ()
    message: str | None = None


class DescribedShareGroup(NamedTuple):
    """A share group, as an administrator sees it."""

    error: ErrorCode
    group: str
    state: str = "Dead"
    """Kafka's name of it: ``Stable`` with members, ``Empty`` without, ``Dead`` if it is not known."""
    members: tuple[ShareGroupMember, ...] = ()
    partitions: tuple[SharePartitionState, ...] = ()
    message: str | None = None
    epoch: int = 0
    """Counts the changes of members, subscriptions and partitions; the assignment is always that of it."""
    assignor: str = ASSIGNOR
