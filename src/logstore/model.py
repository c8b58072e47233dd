"""The values that cross the public API: records, isolation levels, small named results.

Values only: nothing here reads a file, a clock or a configuration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self

from logstore.build import compiled

Header = tuple[str, bytes | None]
"""A record header: key and value. In a key that was not written as UTF-8, U+FFFD stands for what is not."""

Bytes = bytes | bytearray | memoryview
"""What calls accept as bytes. Results are always ``bytes``."""


Moment = int | datetime
"""A time: milliseconds since the epoch, or a datetime with a time zone. A datetime without one is refused."""


def how_to_make_int(value: object) -> str:
    """A hint for error messages, for a value that is almost an int, such as a NumPy number."""
    kind = type(value)
    if hasattr(kind, "__index__") and not issubclass(kind, int):
        return f"; convert the {kind.__name__} with int()"
    return ""


class BoundToProcess:
    """An object that cannot be copied, or sent to another process."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """
        Raises:
            TypeError: always; what pickles and copies expect.
        """
        raise TypeError(
            f"this {type(self).__name__} cannot be pickled or copied: another process opens the store "
            "itself, with read_only=True while this one writes"
        )


NO_TIMESTAMP_MS = -1
"""The timestamp of a record that has none (magic 0, or written so)."""


class TimestampType(IntEnum):
    """What a record's timestamp is. Numbered as in Kafka: bit 3 of a batch's attributes, or -1."""

    NO_TIMESTAMP_TYPE = -1
    """There is none: the record is from before timestamps (magic 0), or was made by hand."""
    CREATE_TIME = 0
    """The time that the producer gave, or -1."""
    LOG_APPEND_TIME = 1
    """The time of the append (``message_timestamp_type``)."""


class TopicPartition(NamedTuple):
    """A partition's topic and number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def datetime_of(timestamp_ms: int) -> datetime | None:
    """The datetime, in UTC, of a record's timestamp; None for a record without one.

    Raises:
        OverflowError: it is after the year 9999.
    """
    return None if timestamp_ms < 0 else _EPOCH + timestamp_ms * _MILLISECOND


def milliseconds_since_epoch(moment: datetime) -> int:
    """Whole milliseconds, rounded down, of a datetime with a time zone.

    Raises:
        TypeError: it has no time zone.
    """
    return (moment - _EPOCH) // _MILLISECOND


class _Source(NamedTuple):
    """What a record has besides its fields."""

    topic: str | None = None
    partition: int | None = None
    timestamp_type: TimestampType = TimestampType.NO_TIMESTAMP_TYPE
    leader_epoch: int | None = None


_NO_SOURCE = _Source()


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

    It also has attributes that say where it was read: ``topic`` and ``partition``, None if it was made by
    hand or read from a single file; ``timestamp_type``, a :class:`TimestampType`; and ``leader_epoch``, None
    if its batch has none (no checksum covers it; ``verify`` checks it). Copies, pickles and ``_replace`` keep
    these four.

    A record is immutable. It is compared, hashed and unpacked as the tuple of its five fields.

    Raises:
        TypeError: an argument is of another type.
        OverflowError: offset or timestamp is beyond 64 bits.
        ValueError: ``timestamp_type`` is unknown, or ``partition`` or ``leader_epoch`` is not 0 to 2^31 - 1.
    """

    _read_from = _NO_SOURCE

    def __new__(
        cls,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...] = (),
        *,
        topic: str | None = None,
        partition: int | None = None,
        timestamp_type: TimestampType | int = TimestampType.NO_TIMESTAMP_TYPE,
        leader_epoch: int | None = None,
    ) -> Self:
        numbers = _int64("offset", offset), _int64("timestamp_ms", timestamp_ms)
        _check_payload("key", key)
        _check_payload("value", value)
        if not isinstance(headers, tuple):
            raise TypeError(f"headers is {type(headers).__name__}; it must be a tuple of pairs")
        record = tuple.__new__(cls, (*numbers, key, value, headers))
        source = _checked_source(topic, partition, timestamp_type, leader_epoch)
        if source != _NO_SOURCE:
            object.__setattr__(record, "_read_from", source)
        return record

    @property
    def timestamp(self) -> datetime | None:
        """``timestamp_ms`` as a datetime in UTC; None if the record has none.

        Raises:
            OverflowError: the time is after the year 9999.
        """
        return datetime_of(self.timestamp_ms)

    @property
    def topic(self) -> str | None:
        """The topic that the record was read from."""
        return self._read_from.topic

    @property
    def partition(self) -> int | None:
        """The partition that the record was read from."""
        return self._read_from.partition

    @property
    def timestamp_type(self) -> TimestampType:
        """What ``timestamp_ms`` is: the producer's time, or that of the append."""
        return self._read_from.timestamp_type

    @property
    def leader_epoch(self) -> int | None:
        """The leader epoch in which the record's batch was appended."""
        return self._read_from.leader_epoch

    def __setattr__(self, name: str, value: object) -> None:
        if type(self) is PlainRecord:
            raise AttributeError(f"a Record is immutable: {name} cannot be set")
        super().__setattr__(name, value)

    if not TYPE_CHECKING:  # its signature stays the named tuple's

        @classmethod
        def _make(cls, iterable):
            return cls(*iterable)

    def _replace(self, **changes: Any) -> Self:
        source = {} if self._read_from == _NO_SOURCE else self._read_from._asdict()
        return type(self)(**self._asdict() | source | changes)

    __replace__ = _replace

    def __reduce__(self) -> tuple[Callable[..., Record], tuple[Any, ...]]:
        topic, partition, timestamp_type, leader_epoch = source = self._read_from
        if source == _NO_SOURCE:
            return Record, tuple(self)
        return restore_record, (*self, topic, partition, int(timestamp_type), leader_epoch)

    def _repr_html_(self) -> str:
        """What a notebook shows; long values are shortened."""
        from logstore.showing import show_record  # few programs get here

        return show_record(self)

    def __repr__(self) -> str:
        """Works for a record of any class; long values are shortened."""
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
_INT31_MAX = (1 << 31) - 1
_SHOWN_BYTES = 64
_SHOWN_HEADERS = 8


def _int64(name: str, number: Any) -> int:
    if not isinstance(number, int):
        raise TypeError(f"{name} is {type(number).__name__}; it must be int")
    if not -_INT64_MAX - 1 <= number <= _INT64_MAX:
        raise OverflowError(f"{name} {number} does not fit 64 bits")
    return int(number)


def _checked_source(topic: Any, partition: Any, timestamp_type: Any, leader_epoch: Any) -> _Source:
    if topic is not None:
        if not isinstance(topic, str):
            raise TypeError(f"topic is {type(topic).__name__}; it must be str or None")
        topic = str.__str__(topic)
    if not isinstance(timestamp_type, int):
        raise TypeError(f"timestamp_type is {type(timestamp_type).__name__}; it must be a TimestampType")
    numbers = _int31("partition", partition), TimestampType(timestamp_type)
    return _Source(topic, *numbers, _int31("leader_epoch", leader_epoch))


def _int31(name: str, number: Any) -> int | None:
    if number is None:
        return None
    if not isinstance(number, int):
        raise TypeError(f"{name} is {type(number).__name__}; it must be int or None")
    if not 0 <= number <= _INT31_MAX:
        raise ValueError(f"{name} {number} is not 0 to {_INT31_MAX}")
    return int.__int__(number)


def _check_payload(name: str, payload: Any) -> None:
    if payload is not None and not isinstance(payload, bytes):
        raise TypeError(f"{name} is {type(payload).__name__}; it must be bytes or None")


def _shown(payload: bytes | None) -> str:
    if payload is None or len(payload) <= _SHOWN_BYTES:
        return repr(payload)
    return f"{payload[:_SHOWN_BYTES]!r}... {len(payload)} bytes"


PlainRecord = Record
"""The record class in plain Python. The compiled one behaves like it, and calls it in rare cases."""

_set_dictionary = vars(PlainRecord)["__dict__"].__set__

if not TYPE_CHECKING and compiled is not None:
    Record = compiled.Record
    for _name in (
        "__doc__",
        "__annotations__",
        "__match_args__",
        "_fields",
        "_field_defaults",
        "_repr_html_",
        "timestamp",
    ):
        setattr(Record, _name, getattr(PlainRecord, _name))
    Sequence.register(Record)  # as a tuple is one: for ``match`` statements too


def restore_record(
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[Header, ...],
    topic: str | None,
    partition: int | None,
    timestamp_type: int,
    leader_epoch: int | None,
) -> Record:
    """The record of a pickle. Pickles name this function because they cannot pass keywords to the class."""
    return Record(
        offset,
        timestamp_ms,
        key,
        value,
        headers,
        topic=topic,
        partition=partition,
        timestamp_type=timestamp_type,
        leader_epoch=leader_epoch,
    )


@lru_cache(maxsize=64)
def _dictionary(
    partition: TopicPartition | None, timestamp_type: int, leader_epoch: int
) -> dict[str, _Source]:
    """The ``__dict__`` that plain records of such batches share: one for each record takes four times as
    long."""
    topic, number = (None, None) if partition is None else partition
    epoch = None if leader_epoch < 0 else leader_epoch
    return {"_read_from": _Source(topic, number, TimestampType(timestamp_type), epoch)}


def place_plain_records(
    records: list[Record], partition: TopicPartition | None, timestamp_type: int, leader_epoch: int
) -> list[Record]:
    """Add topic, partition, timestamp type and leader epoch to new plain records of one batch.

    A ``leader_epoch`` below 0 means none. Cost: 0.05 µs per record.
    """
    shared = _dictionary(partition, timestamp_type, leader_epoch)
    deque(map(_set_dictionary, records, repeat(shared)), maxlen=0)
    return records


place_records = place_plain_records if compiled is None else compiled.place_records
"""The same for the record class of this installation."""


class NewRecord(NamedTuple):
    """One record to append. Without a timestamp it gets the time of the append."""

    value: Bytes | None
    key: Bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: Moment | None = None


class Isolation(Enum):
    """How far a reader sees: Kafka's three levels, and ``DURABLE``, which is logstore's."""

    LOG_END = "log_end"
    """Everything appended."""
    HIGH_WATERMARK = "high_watermark"
    """What is replicated: records below the high watermark. With a single replica that is the log end."""
    COMMITTED = "committed"
    """Records below the last stable offset, without those of aborted transactions."""
    DURABLE = "durable"
    """What a power cut cannot take: records below the durable offset."""


class Role(Enum):
    """What a log is to the other replicas of its partition. Stored with the log."""

    ALONE = "alone"
    """The only replica. Its high watermark is its end."""
    LEADER = "leader"
    """Others copy it. Its owner sets the high watermark to what they have."""
    FOLLOWER = "follower"
    """It copies a leader. Its owner sets the high watermark to what the leader says."""


class AppendOrigin(Enum):
    """Where a batch comes from, which decides what is checked (Kafka's AppendOrigin)."""

    CLIENT = "client"
    """A producer: sequence numbers are checked, and control batches refused."""
    COORDINATOR = "coordinator"
    """A coordinator: markers, and group and transaction state."""
    REPLICATION = "replication"
    """A leader, or replay at recovery: already checked."""


class ProducerIdentity(NamedTuple):
    """An idempotent producer's stamp on a batch (KIP-98): its id, its epoch, and the sequence of the batch's
    first record."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool = False


class OffsetAndTimestamp(NamedTuple):
    """The answer of a lookup by time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None


IS_COPY: Final = (
    "it is a copy of a leader's log, and takes only what is copied; promote() of what copies it makes it the "
    "store's own, and so does log.set_role(Role.ALONE) when nothing copies any more"
)
"""Why nothing else is appended to a follower's log."""
IS_REPLICA: Final = (
    "it is a replica of a cluster's partition, and takes only what its leader sends; append through "
    "logstore.connect(), at the nodes of the cluster"
)
"""The same of a log in the directory of a node."""


class OffsetAndMetadata(NamedTuple):
    """A committed offset."""

    offset: int
    """The next offset to read."""
    metadata: str = ""
    """A note that you store with it."""
    leader_epoch: int | None = None
    """Of the last record that was read; None if it is not known."""


class ActiveProducer(NamedTuple):
    """A producer that a partition remembers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """The sequence of its newest record; -1 if that is not known."""
    last_timestamp_ms: int
    """The timestamp of its newest batch or marker, in milliseconds since the epoch."""
    coordinator_epoch: int
    """Of its newest marker; -1 if it has none."""
    transaction_first_offset: int | None
    """Where its open transaction begins; None if none is open."""


class AbortedTransaction(NamedTuple):
    """One entry of a transaction index: the producer, its first offset, the offset of the abort marker, and
    the last stable offset when the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
