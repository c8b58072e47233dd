"""The values that cross the public API: records, isolation levels, small named results.

Values only: nothing here reads a file, a clock or a configuration.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple

Header = tuple[str, bytes | None]
"""A record header: key (UTF-8 text) and value."""

Bytes = bytes | bytearray | memoryview
"""What the engine accepts where it takes bytes. Results are always ``bytes``."""

NO_TIMESTAMP_MS = -1
"""The timestamp of a record that has none (magic 0, or written so)."""


class Record(NamedTuple):
    """One record as it was read. Use the fields by name.

    ``offset`` is its logical number in the partition, ``timestamp_ms`` milliseconds since the epoch or -1,
    ``key`` and ``value`` are None when null (a null value is a tombstone in a compacted topic), ``headers``
    a tuple of (key, value) pairs in the order written.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class NewRecord(NamedTuple):
    """One record to append. Without a timestamp it takes the clock's time of the append."""

    value: Bytes | None
    key: Bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None


class TopicPartition(NamedTuple):
    """A partition's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Isolation(Enum):
    """How far a reader may see. Source: Kafka's fetch isolation, and one level of our own."""

    LOG_END = "log_end"
    """Everything appended."""
    HIGH_WATERMARK = "high_watermark"
    """What is replicated: below the high watermark. On a single replica that is the log end."""
    COMMITTED = "committed"
    """Below the last stable offset, without the records of aborted transactions."""
    DURABLE = "durable"
    """What a power cut cannot take back: below the durable offset."""


class TimestampType(IntEnum):
    """Bit 3 of a batch's attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class AppendOrigin(Enum):
    """Who appends; decides which checks apply (Kafka's AppendOrigin)."""

    CLIENT = "client"
    """A producer: its sequence numbers are checked, control batches are refused."""
    COORDINATOR = "coordinator"
    """Markers, and group and transaction state."""
    REPLICATION = "replication"
    """A follower, or replay at recovery: the leader has checked already."""


class ProducerIdentity(NamedTuple):
    """An idempotent producer's stamp on a batch (KIP-98): id, epoch, and the sequence of its first record."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool = False


class OffsetAndTimestamp(NamedTuple):
    """The answer of a lookup by time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None


class AbortedTransaction(NamedTuple):
    """One entry of a transaction index: the producer, its first offset, the offset of the abort marker, and
    the last stable offset when the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
