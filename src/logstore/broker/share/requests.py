"""What is asked of a broker about share groups (KIP-932), and what it answers."""

from __future__ import annotations

from collections.abc import Callable
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


class ShareGroupConfig(NamedTuple):
    """The settings of a share group: those of its first member, until the last has left. The names are
    Kafka's with underscores for dots, without their beginning ``group.share.`` or ``share.``."""

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


class ShareGroupHeartbeat(NamedTuple):
    """A member joins, is alive, or leaves."""

    group: str
    member_id: str
    member_epoch: int
    topics: tuple[str, ...] = ()
    client_id: str = ""
    config: ShareGroupConfig = ShareGroupConfig()
    """What the member takes the group's settings to be. Not of the protocol, where they are the broker's."""


class ShareGroupHeartbeatResult(NamedTuple):
    """What a member hears: all partitions of its topics are its own and the others'."""

    error: ErrorCode
    member_id: str = ""
    member_epoch: int = LEAVING
    assignment: tuple[TopicPartition, ...] = ()
    message: str | None = None


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

    partition: TopicPartition
    batches: tuple[AcknowledgeBatch, ...]


class ShareAcknowledgeRequest(NamedTuple):
    """Members say what became of records."""

    group: str
    member_id: str
    partitions: tuple[AcknowledgePartition, ...]
    durable: bool = False
    """Answer when a power cut cannot undo it. Not of the protocol."""


class AcknowledgedPartition(NamedTuple):
    """What became of the acknowledgements of one partition: ``refused`` are those of records that the member
    does not have any more."""

    partition: TopicPartition
    error: ErrorCode
    refused: tuple[AcknowledgeBatch, ...] = ()
    message: str | None = None
    was_stored: bool = False
    """With an error: the rest was taken in all the same, but a power cut can undo it. Not of the
    protocol."""


class ShareAcknowledgeResult(NamedTuple):
    """The answer to a :class:`ShareAcknowledgeRequest`, in its order."""

    partitions: tuple[AcknowledgedPartition, ...]


class ShareFetchRequest(NamedTuple):
    """Take records that are available, and wait for some if there are none."""

    group: str
    member_id: str
    partitions: tuple[TopicPartition, ...]
    """In the order in which they are looked at."""
    max_records: int = 500
    max_wait_ms: int = 500
    max_bytes: int = 1024 * 1024
    """The most of each partition. A first batch that is larger is returned whole."""


class AcquiredRecords(NamedTuple):
    """The records from ``first`` to ``last`` are the member's; offsets without a record may be among them."""

    first: int
    last: int
    delivery_count: int


class ShareFetchedPartition(NamedTuple):
    """What a member gets of one partition. The batches may hold records that are others'."""

    partition: TopicPartition
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


class ShareGroupMember(NamedTuple):
    """A member, as an administrator sees it."""

    member_id: str
    client_id: str
    topics: tuple[str, ...]


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
    """Offsets between start and end that wait for a worker: they were released, or their lock ran out."""
    high_watermark: int
    """The same as ``end_offset`` if the log cannot be opened."""

    @property
    def waiting_count(self) -> int:
        """Offsets that no worker has: that were never given to one, were released, or put off."""
        return self.available_count + self.high_watermark - self.end_offset


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
