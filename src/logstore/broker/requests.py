"""What is asked of a broker, and what it answers, in the terms of Kafka's protocol.

A request names as many partitions or topics as it likes, and each has an error code of its own in the result:
one that fails does not fail the others. Nothing here touches single records.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.kept import KeptFetch, KeptPartition
from logstore.broker.transactions.requests import TransactionalProducer
from logstore.model import Bytes, Isolation, OffsetAndMetadata, TopicPartition

ACKS_NONE: Final = 0
"""The batch was handed over."""
ACKS_LEADER: Final = 1
"""The batch is in the log, and survives the end of the process."""
ACKS_ALL: Final = -1
"""The batch is in the log of every in-sync replica; where there is one replica, it is durable."""

EARLIEST: Final = -2
"""ListOffsets: the log start offset."""
LATEST: Final = -1
"""ListOffsets: the end of what the isolation shows."""
MAX_TIMESTAMP: Final = -3
"""ListOffsets: the record with the largest timestamp (KIP-734)."""

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
NO_NODE: Final = -1


class ProducePartition(NamedTuple):
    """One batch for one partition."""

    partition: TopicPartition
    data: Bytes
    leader_epoch: int = NO_EPOCH
    """The epoch in which the caller leads: in another one nothing is appended."""


class ProduceRequest(NamedTuple):
    """Append batches. One for each partition, as current clients send them."""

    acks: int
    """``ACKS_NONE``, ``ACKS_LEADER`` or ``ACKS_ALL``."""
    timeout_ms: int
    """How long ``ACKS_ALL`` may wait."""
    partitions: tuple[ProducePartition, ...]
    transactional_id: str | None = None
    """Of the producer, if the batches are part of its transaction."""
    begins_at_zero: bool = False
    """Whether the producer has an epoch for each transaction (KIP-890), and so begins with sequence 0 in each
    partition."""


class ProducedPartition(NamedTuple):
    """What became of a batch."""

    partition: TopicPartition
    error: ErrorCode
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = -1
    """The timestamp of the records, if the topic has ``LogAppendTime``."""
    log_start_offset: int = NO_OFFSET
    message: str | None = None
    """Why it was refused."""
    records: tuple[int, ...] = ()
    """For which of its records, if it is for single ones (KIP-467)."""


class ProduceResult(NamedTuple):
    """The answer to a :class:`ProduceRequest`, in its order."""

    partitions: tuple[ProducedPartition, ...]


class FetchPartition(NamedTuple):
    """Where to read one partition."""

    partition: TopicPartition
    offset: int
    max_bytes: int = 1024 * 1024
    """The most for this partition. A first batch that is larger is returned whole (KIP-74)."""
    leader_epoch: int = NO_EPOCH
    """The leader epoch that the caller expects (KIP-320)."""
    topic_id: uuid.UUID | None = None
    """The topic that the offset is of: one that was made again under its name has another id, and the answer
    is ``UNKNOWN_TOPIC_ID``. None takes any."""
    last_fetched_epoch: int = NO_EPOCH
    """The leader epoch of what the caller has in front of the offset: with it the answer says whether the
    caller's log has parted from this one (KIP-595)."""
    log_start_offset: int = NO_OFFSET
    """Where the log of a follower begins: what was deleted is gone there, too (KIP-107)."""


class Fetcher(NamedTuple):
    """A follower that fetches (KIP-903)."""

    node_id: int
    life: int
    """Kafka's broker epoch; -1 if it is not told."""


class FetchRequest(NamedTuple):
    """Read batches, and wait for them if there are too few (a long poll)."""

    partitions: tuple[FetchPartition, ...]
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    isolation: Isolation = Isolation.HIGH_WATERMARK
    replica: Fetcher | None = None
    """The follower that asks; None if it is a consumer. A follower reads at ``LOG_END``."""
    kept: KeptFetch | None = None
    """The partitions of a fetch that is repeated. ``partitions`` are then those of which a follower has news,
    and nothing is read for them. Only a broker that has the logs itself knows it."""
    rack: str = ""
    """Where the consumer is: it may be told to read from a replica there (KIP-392)."""


class AbortedProducer(NamedTuple):
    """From ``first_offset`` on the producer's records are of an aborted transaction, up to its marker."""

    producer_id: int
    first_offset: int


class DivergingEpoch(NamedTuple):
    """What a leader knows of the epochs that a follower asked about: its largest epoch up to that, and where
    that ends in its log. -1 and -1: it knows of none."""

    epoch: int
    end_offset: int


class FetchedPartition(NamedTuple):
    """Whole, checked batches of one partition; the first may begin below the offset that was asked for."""

    partition: TopicPartition
    error: ErrorCode
    data: Bytes = b""
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    aborted: tuple[AbortedProducer, ...] = ()
    """With :attr:`.Isolation.COMMITTED`: what the reader leaves out."""
    next_offset: int = NO_OFFSET
    """Where to go on: behind ``data``, and behind a gap that compaction left; after damage, behind what is
    damaged, if that is known. The protocol has no such field; what comes through it goes on behind the last
    batch."""
    message: str | None = None
    topic_id: uuid.UUID | None = None
    """Of the topic that was read; None if it has none, or is not known."""
    diverging: DivergingEpoch | None = None
    """The caller's log has parted from this one: it cuts its own, and asks again."""
    preferred_id: int = NO_NODE
    """The node that the consumer is to read from, instead of this one (KIP-392). Nothing was read."""
    last_epoch: int = NO_EPOCH
    """The leader epoch of what ends at ``next_offset``; -1 if nothing was read, or that is not known."""


class Reassignment(NamedTuple):
    """A partition on its way to other nodes."""

    replicas: tuple[int, ...]
    """The nodes that have it or get it."""
    adding: tuple[int, ...]
    """Those of them that get it."""
    removing: tuple[int, ...]
    """Those of them that lose it when the others have it."""


class FetchResult(NamedTuple):
    """The answer to a :class:`FetchRequest`, in its order."""

    partitions: tuple[FetchedPartition, ...]
    kept: tuple[KeptPartition, ...] = ()
    """Of a fetch that is repeated: whose results these are. All others are as the last answer said."""


class ListOffsetsPartition(NamedTuple):
    """Which offset of one partition."""

    partition: TopicPartition
    timestamp_ms: int
    """``EARLIEST``, ``LATEST``, ``MAX_TIMESTAMP``, or a time: the first record at or after it."""
    leader_epoch: int = NO_EPOCH


class ListOffsetsRequest(NamedTuple):
    """Look up offsets."""

    partitions: tuple[ListOffsetsPartition, ...]
    isolation: Isolation = Isolation.HIGH_WATERMARK


class ListedOffset(NamedTuple):
    """An offset that was looked up; ``NO_OFFSET`` if no record is as new as the time."""

    partition: TopicPartition
    error: ErrorCode
    timestamp_ms: int = -1
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    message: str | None = None


class ListOffsetsResult(NamedTuple):
    """The answer to a :class:`ListOffsetsRequest`, in its order."""

    partitions: tuple[ListedOffset, ...]


class EpochPartition(NamedTuple):
    """The end of which leader epoch."""

    partition: TopicPartition
    epoch: int
    current_leader_epoch: int = NO_EPOCH


class EpochEnd(NamedTuple):
    """Where an epoch ended, or the largest one below it (KIP-101); -1 if none is known."""

    partition: TopicPartition
    error: ErrorCode
    epoch: int = NO_EPOCH
    end_offset: int = NO_OFFSET
    message: str | None = None


class OffsetsForLeaderEpochRequest(NamedTuple):
    """Look up where leader epochs ended."""

    partitions: tuple[EpochPartition, ...]


class OffsetsForLeaderEpochResult(NamedTuple):
    """The answer, in the order of the request."""

    partitions: tuple[EpochEnd, ...]


class DeleteRecordsPartition(NamedTuple):
    """Delete the records below ``offset``; below the high watermark, if it is -1."""

    partition: TopicPartition
    offset: int


class DeletedRecords(NamedTuple):
    """The log start offset afterwards."""

    partition: TopicPartition
    error: ErrorCode
    log_start_offset: int = NO_OFFSET
    message: str | None = None


class DeleteRecordsRequest(NamedTuple):
    """Delete the beginning of partitions."""

    partitions: tuple[DeleteRecordsPartition, ...]


class DeleteRecordsResult(NamedTuple):
    """The answer, in the order of the request."""

    partitions: tuple[DeletedRecords, ...]


class MetadataRequest(NamedTuple):
    """What topics there are."""

    topics: tuple[str, ...] | None = None
    """Their names; None is all."""


class PartitionMetadata(NamedTuple):
    """Who has a partition."""

    partition: int
    error: ErrorCode
    leader_id: int
    leader_epoch: int
    replica_ids: tuple[int, ...]
    isr_ids: tuple[int, ...]
    eligible_ids: tuple[int, ...] = ()
    """Those that are not in sync, and have all that was acknowledged: they may be elected (KIP-966)."""

    @property
    def is_somewhere(self) -> bool:
        """Whether any node has it, though none may lead it now."""
        return self.leader_id >= 0 or bool(self.replica_ids)


class TopicMetadata(NamedTuple):
    """A topic and its partitions, by their numbers."""

    name: str
    error: ErrorCode
    topic_id: uuid.UUID | None = None
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()
    message: str | None = None


class MetadataResult(NamedTuple):
    """The answer to a :class:`MetadataRequest`."""

    cluster_id: str
    topics: tuple[TopicMetadata, ...]


class SettingKind(IntEnum):
    """The type of a setting, numbered as in Kafka's protocol (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """Where the value of a setting comes from, numbered as in Kafka's protocol (KIP-226)."""

    TOPIC = 1
    BROKER = 2
    """Given while the node runs."""
    STATIC_BROKER = 4
    """Given when the node was started."""
    DEFAULT = 5
    GROUP = 8


class Setting(NamedTuple):
    """A setting, in Kafka's spelling."""

    name: str
    value: str
    is_default: bool
    kind: SettingKind = SettingKind.UNKNOWN
    default: str | None = None
    """The value that it has if nobody sets it."""
    documentation: str | None = None
    """What it means, if that was asked for and is known."""
    source: ConfigSource | None = None
    """Of one that is not the default: where it is from, if it is not the topic's own, or what the node was
    started with."""
    for_new_topics: str | None = None
    """Of a topic's: what the node was started with for new topics, if that is not the default."""


class NewTopic(NamedTuple):
    """A topic to create."""

    name: str
    partition_count: int = 1
    settings: Mapping[str, str] = {}
    """In Kafka's spelling, such as ``retention.ms``. The others are the store's."""
    replication_factor: int = -1
    """How many nodes have each partition; -1 leaves it to the broker."""
    assignments: tuple[tuple[int, ...], ...] | None = None
    """The ids of the nodes that are to have each partition. None leaves it to the broker."""


class CreateTopicsRequest(NamedTuple):
    """Create topics."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False


class TopicOutcome(NamedTuple):
    """What became of a topic in a request that changes it."""

    name: str
    error: ErrorCode
    message: str | None = None
    topic_id: uuid.UUID | None = None
    """Of a topic that was created."""
    partition_count: int = -1
    """Of a topic that was created, or would be."""
    replication_factor: int = 1
    """The same of its replicas."""
    settings: tuple[Setting, ...] = ()
    """The same of its settings, all of them (KIP-525)."""


class TopicsResult(NamedTuple):
    """The answer to a request that changes topics, in its order."""

    topics: tuple[TopicOutcome, ...]


class DeleteTopicsRequest(NamedTuple):
    """Delete topics with all their records."""

    names: tuple[str, ...]


class MorePartitions(NamedTuple):
    """Give a topic ``partition_count`` partitions in all."""

    name: str
    partition_count: int
    assignments: tuple[tuple[int, ...], ...] | None = None
    """The ids of the nodes that hold each of the new partitions. None leaves it to the broker."""


class CreatePartitionsRequest(NamedTuple):
    """Give topics more partitions."""

    topics: tuple[MorePartitions, ...]
    validate_only: bool = False


class DescribedConfig(NamedTuple):
    """A topic's settings."""

    name: str
    error: ErrorCode
    settings: tuple[Setting, ...] = ()
    message: str | None = None


class DescribeConfigsRequest(NamedTuple):
    """The settings of topics."""

    names: tuple[str, ...]
    with_store: bool = False
    """The settings of the store, too."""
    with_documentation: bool = False


class DescribeConfigsResult(NamedTuple):
    """The answer, in the order of the request."""

    topics: tuple[DescribedConfig, ...]
    store: tuple[Setting, ...] = ()
    """Under the names of a broker's settings in Kafka."""


class ConfigChange(NamedTuple):
    """Changes of a topic's settings, in Kafka's spelling. None gives a setting its default again."""

    name: str
    settings: Mapping[str, str | None]
    appended: Mapping[str, str] = {}
    """What is added to lists, such as ``compact`` to ``cleanup.policy``; divided by commas."""
    subtracted: Mapping[str, str] = {}
    """What is taken out of lists."""
    replaces: bool = False
    """All other settings get their defaults again."""


class AlterConfigsRequest(NamedTuple):
    """Change settings of topics; all others stay (KIP-339)."""

    changes: tuple[ConfigChange, ...]
    validate_only: bool = False


class DescribeLogDirsRequest(NamedTuple):
    """How much room partitions take (KIP-113, KIP-827)."""

    partitions: tuple[TopicPartition, ...] | None = None
    """None is all."""


class LogDirectorySize(NamedTuple):
    """A directory, and what is in it."""

    path: str
    error: ErrorCode = ErrorCode.NONE
    sizes: Mapping[TopicPartition, int] = {}
    """The bytes of each partition's ``.log`` files. Partitions that are not here are left out."""
    total_bytes: int = -1
    """The size of the volume; -1 if it is not known."""
    usable_bytes: int = -1
    """What may still be written to it."""
    message: str | None = None


class DescribeLogDirsResult(NamedTuple):
    """The directories of the broker."""

    error: ErrorCode
    directories: tuple[LogDirectorySize, ...] = ()
    message: str | None = None


class InitProducerIdRequest(NamedTuple):
    """An id for an idempotent producer, or the next epoch for a transactional one (KIP-98). The latter's open
    transaction is aborted, and an older producer with its transactional id is shut out."""

    transactional_id: str | None = None
    transaction_timeout_ms: int = -1
    """After so long an open transaction is aborted."""
    producer_id: int = -1
    """Of a producer that goes on (KIP-360); -1 of one that starts."""
    producer_epoch: int = -1


class InitProducerIdResult(NamedTuple):
    """The producer's id, and the epoch that it sends with."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1
    message: str | None = None


# Committed offsets ----------------------------------------------------------------------------------------


class OffsetCommitRequest(NamedTuple):
    """Commit offsets of a group, all of them or none."""

    group: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    generation: int = -1
    """The member's, or its epoch in the newer protocol; -1 with an empty member id for those that are no
    members."""
    member_id: str = ""
    instance_id: str | None = None
    transaction: TransactionalProducer | None = None
    """They are part of this producer's transaction, and count when it is committed (TxnOffsetCommit)."""
    topic_ids: Mapping[TopicPartition, uuid.UUID] = {}
    """Of the topics that offsets were read in, where that is known. If another has the name now, the code is
    ``UNKNOWN_TOPIC_ID``: the offset means nothing there."""


class OffsetCommitResult(NamedTuple):
    """What became of each partition's offset."""

    errors: Mapping[TopicPartition, ErrorCode]
    message: str | None = None

    @property
    def error(self) -> ErrorCode:
        """The first that is one."""
        return next((code for code in self.errors.values() if code is not ErrorCode.NONE), ErrorCode.NONE)


class OffsetDeleteRequest(NamedTuple):
    """Delete offsets of a group (KIP-496)."""

    group: str
    partitions: tuple[TopicPartition, ...]


class OffsetDeleteResult(NamedTuple):
    """What became of each partition's offset; the error is the group's, and then nothing was deleted."""

    error: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode] = {}
    message: str | None = None


class OffsetFetchRequest(NamedTuple):
    """Look up what a group has committed."""

    group: str
    partitions: tuple[TopicPartition, ...] | None = None
    """None is all that it has offsets of."""
    require_stable: bool = False
    """Answer ``UNSTABLE_OFFSET_COMMIT`` for what an open transaction is about to replace (KIP-447)."""
    member_id: str | None = None
    """Of a member of the newer protocol, which must be in its epoch (KIP-848); None of all others."""
    member_epoch: int = -1


class OffsetFetchResult(NamedTuple):
    """The committed offsets; partitions without one are left out."""

    error: ErrorCode
    offsets: Mapping[TopicPartition, OffsetAndMetadata] = {}
    unstable: frozenset[TopicPartition] = frozenset()
    message: str | None = None
