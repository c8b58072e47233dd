"""The values that cross the public API: records, isolation levels, small named results.

Values only: nothing here reads a file, a clock or a configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

from logstore.build import compiled

Header = tuple[str, bytes | None]
"""A record header: key (UTF-8 text) and value."""

Bytes = bytes | bytearray | memoryview
"""What the engine accepts where it takes bytes. Results are always ``bytes``."""


Moment = int | datetime
"""A time: milliseconds since the epoch, or a datetime with its time zone (without one it is refused)."""


def how_to_make_int(value: object) -> str:
    """What a message adds about a value that is nearly an int: a number of numpy, a time."""
    kind = type(value)
    if hasattr(kind, "__index__") and not issubclass(kind, int):
        return f"; int() makes it of a {kind.__name__}"
    return ""


class BoundToProcess:
    """What cannot leave the process that opened it, nor be there twice."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """
        Raises:
            TypeError: always; what pickles and copies expect.
        """
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied; another process opens the store itself, "
            "with read_only=True while this one writes"
        )


NO_TIMESTAMP_MS = -1
"""The timestamp of a record that has none (magic 0, or written so)."""


class _RecordFields(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class Record(_RecordFields):
    """One record as it was read. Use the fields by name.

    ``offset`` is its logical number in the partition, ``timestamp_ms`` milliseconds since the epoch or -1,
    ``key`` and ``value`` are None when null (a null value is a tombstone in a compacted topic), ``headers``
    a tuple of (key, value) pairs in the order written.

    A record is immutable, and equal to the tuple of its fields. TypeError for a field of another type,
    OverflowError for a number beyond 64 bits.
    """

    __slots__ = ()

    def __new__(
        cls,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...] = (),
    ) -> Self:
        numbers = _int64("offset", offset), _int64("timestamp_ms", timestamp_ms)
        _check_payload("key", key)
        _check_payload("value", value)
        if not isinstance(headers, tuple):
            raise TypeError(f"headers is {type(headers).__name__}; it must be a tuple of pairs")
        return tuple.__new__(cls, (*numbers, key, value, headers))

    if not TYPE_CHECKING:  # its signature stays the named tuple's

        @classmethod
        def _make(cls, iterable):
            return cls(*iterable)

    def _replace(self, **changes: Any) -> Self:
        return type(self)(**self._asdict() | changes)

    __replace__ = _replace

    def __reduce__(self) -> tuple[type[Record], tuple[Any, ...]]:
        return Record, tuple(self)

    def __repr__(self) -> str:
        """Takes a record of any class; long values are shortened."""
        headers = ", ".join(f"({key!r}, {_shown(value)})" for key, value in self.headers[:_SHOWN_HEADERS])
        if len(self.headers) > _SHOWN_HEADERS:
            headers += f", ... {len(self.headers)} headers"
        elif len(self.headers) == 1:
            headers += ","
        return (
            f"{type(self).__name__}(offset={self.offset}, timestamp_ms={self.timestamp_ms}, "
            f"key={_shown(self.key)}, value={_shown(self.value)}, headers=({headers}))"
        )


_INT64_MAX = (1 << 63) - 1
_SHOWN_BYTES = 64
_SHOWN_HEADERS = 8


def _int64(name: str, number: Any) -> int:
    if not isinstance(number, int):
        raise TypeError(f"{name} is {type(number).__name__}; it must be int")
    if not -_INT64_MAX - 1 <= number <= _INT64_MAX:
        raise OverflowError(f"{name} {number} does not fit 64 bits")
    return int(number)


def _check_payload(name: str, payload: Any) -> None:
    if payload is not None and not isinstance(payload, bytes):
        raise TypeError(f"{name} is {type(payload).__name__}; it must be bytes or None")


def _shown(payload: bytes | None) -> str:
    if payload is None or len(payload) <= _SHOWN_BYTES:
        return repr(payload)
    return f"{payload[:_SHOWN_BYTES]!r}... {len(payload)} bytes"


PlainRecord = Record
"""The record class in plain Python: what the compiled one behaves like, and what it asks in rare cases."""

if not TYPE_CHECKING and compiled is not None:
    Record = compiled.Record
    for _name in ("__doc__", "__annotations__", "__match_args__", "_fields", "_field_defaults"):
        setattr(Record, _name, getattr(PlainRecord, _name))
    Sequence.register(Record)  # as a tuple is one: for ``match`` statements too


class NewRecord(NamedTuple):
    """One record to append. Without a timestamp it takes the clock's time of the append."""

    value: Bytes | None
    key: Bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: Moment | None = None


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


class Role(Enum):
    """What a log is to its partition's other replicas. Stored with the log."""

    ALONE = "alone"
    """The only replica: its high watermark is its end."""
    LEADER = "leader"
    """Others copy it: the high watermark is what its owner says that they have."""
    FOLLOWER = "follower"
    """It copies a leader: the high watermark is what its owner was told by that."""


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
