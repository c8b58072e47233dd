"""Keys and values that are not bytes: how they are encoded and decoded.

A :class:`Serializer` is a name and two functions. :class:`SerializedTopic` is a topic whose keys and values
go through two of them. Nothing about them is stored: each reader chooses its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from logstore.arguments import plain_text, shown
from logstore.errors import InvalidRecordError, UsageError
from logstore.logdir.joining import Order, Start, Stop
from logstore.model import (
    Bytes,
    Header,
    Isolation,
    Moment,
    NewRecord,
    Record,
    TimestampType,
    datetime_of,
)
from logstore.partition.encoding.rows import NewRecords, list_of, new_record
from logstore.partition.reading.latest import LatestView


class Serializer(NamedTuple):
    """A function that encodes and one that decodes. Neither is called for None, which stays None: a missing
    key, or a tombstone."""

    name: str
    """The name in error messages."""
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _encode_text(text: Any) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"a {type(text).__name__} is not text")
    return text.encode()


def _encode_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


BYTES: Final = Serializer("bytes", lambda data: data, lambda data: data)
"""Bytes as they are."""
TEXT: Final = Serializer("text", _encode_text, lambda data: data.decode())
"""``str`` as UTF-8, like Kafka's StringSerializer."""
JSON: Final = Serializer("json", _encode_json, lambda data: json.loads(data))
"""What the ``json`` module accepts, as UTF-8 without spaces. NaN and infinities are refused: they are not
JSON."""

_BY_NAME: Final = {each.name: each for each in (BYTES, TEXT, JSON)}

SerializerChoice = str | Serializer | tuple[Callable[[Any], bytes], Callable[[bytes], Any]]
"""``"bytes"``, ``"text"``, ``"json"``, or a pair of functions: to bytes, and from bytes."""


def check_serializer(choice: Any, name: str) -> Serializer:
    """
    Raises:
        UsageError: ``choice`` is not a :data:`SerializerChoice`.
    """
    if isinstance(choice, Serializer):
        return choice
    if isinstance(choice, str) and plain_text(choice) in _BY_NAME:
        return _BY_NAME[plain_text(choice)]
    if type(choice) is tuple and len(choice) == 2 and all(map(callable, choice)):
        encode, decode = choice
        return Serializer(getattr(encode, "__name__", "a function"), encode, decode)
    raise UsageError(
        f"{name} is {shown(choice)}; it must be 'bytes', 'text', 'json', or a pair of functions: the first "
        "makes bytes, the second reads them"
    )


EncoderChoice = SerializerChoice | Callable[[Any], bytes]
"""As :data:`SerializerChoice`; or one function: to bytes."""

DecoderChoice = SerializerChoice | Callable[[bytes], Any]
"""As :data:`SerializerChoice`; or one function: from bytes."""


def check_one_way(choice: Any, name: str) -> Serializer:
    """A serializer of which one function is used: then that one is enough.

    Raises:
        UsageError: ``choice`` is neither a function nor a :data:`SerializerChoice`.
    """
    if callable(choice):
        return Serializer(getattr(choice, "__name__", "a function"), choice, choice)
    if isinstance(choice, str) and plain_text(choice) not in _BY_NAME:
        raise UsageError(f"{name} is {shown(choice)}; it must be 'bytes', 'text', 'json', or a function")
    return check_serializer(choice, name)


class SerializedRecord(NamedTuple):
    """A record with decoded key and value; otherwise like :class:`~logstore.model.Record`."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: tuple[Header, ...]
    timestamp_type: TimestampType
    leader_epoch: int | None

    @property
    def timestamp(self) -> datetime | None:
        """``timestamp_ms`` as a datetime in UTC; None if the record has none."""
        return datetime_of(self.timestamp_ms)


class TopicOfBytes(Protocol):
    """The part of a topic that :class:`SerializedTopic` uses."""

    name: str

    def append(
        self,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        partition: int | None = None,
        headers: Any = (),
        timestamp_ms: Moment | None = None,
        flush: bool = False,
    ) -> tuple[int, int]: ...

    def extend(self, records: NewRecords, *, flush: bool = False) -> dict[int, range]: ...

    def partition_for(self, key: Bytes) -> int: ...

    def read(
        self, start: Start, stop: Stop | None, *, order: Order, isolation: Isolation
    ) -> Iterator[Record]: ...

    def follow(
        self, start: Start, *, timeout: float | None, order: Order, isolation: Isolation
    ) -> Iterator[Record]: ...

    def latest(self, *, isolation: Isolation) -> tuple[LatestView, ...]: ...


T = TypeVar("T", bound=TopicOfBytes)


class LatestTable(dict[Any, Any]):
    """The current value of each key. It is a dictionary, and yours to change."""

    end_offsets: dict[int, int]
    """For each partition, the offset up to which the table has everything: where to follow from."""

    def __init__(self) -> None:
        super().__init__()
        self.end_offsets = {}


class SerializedTopic(Generic[T]):
    """A topic whose keys and values are encoded when appended and decoded when read. Made by
    :meth:`.Topic.serialized`."""

    def __init__(self, topic: T, key: Serializer, value: Serializer) -> None:
        self.topic = topic
        """The topic underneath, whose keys and values are bytes. It has all other methods."""
        self._key = key
        self._value = value

    def append(
        self,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Any = (),
        timestamp_ms: Moment | None = None,
        flush: bool = False,
    ) -> tuple[int, int]:
        """Encode ``value`` and ``key``, and append them with :meth:`.Topic.append`.

        Raises:
            InvalidRecordError: a serializer failed; says which and why. Otherwise as :meth:`.Topic.append`.
        """
        return self.topic.append(
            encode_field(self._value, value, "value"),
            key=encode_field(self._key, key, "key"),
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
            flush=flush,
        )

    def extend(self, records: Iterable[Any], *, flush: bool = False) -> dict[int, range]:
        """Encode records, and append them with :meth:`.Topic.extend`. Each is a (key, value) pair, which may
        go on with timestamp and headers, or a :class:`~logstore.model.NewRecord`.

        Raises:
            UsageError: ``records`` is not an iterable of records.
            InvalidRecordError: a serializer failed; says which, at which record, and why. Nothing was
                appended. Otherwise as :meth:`.Topic.extend`.
        """
        encoded = [self._encode_row(number, row) for number, row in enumerate(list_of(records))]
        return self.topic.extend(encoded, flush=flush)

    def _encode_row(self, number: int, row: Any) -> NewRecord:
        given = new_record(number, row, takes_value=False)
        return NewRecord(
            encode_field(self._value, given.value, f"value of record {number}"),
            encode_field(self._key, given.key, f"key of record {number}"),
            given.headers,
            given.timestamp_ms,
        )

    def partition_for(self, key: Any) -> int:
        """The number of the partition that a key belongs to; see :meth:`.Topic.partition_for`."""
        return self.topic.partition_for(encode_field(self._key, key, "key") or b"")

    def read(
        self,
        start: Start = "earliest",
        stop: Stop | None = None,
        *,
        order: Order = "timestamp",
        isolation: Isolation = Isolation.HIGH_WATERMARK,
    ) -> Iterator[SerializedRecord]:
        """Like :meth:`.Topic.read`, with decoded records.

        Raises:
            InvalidRecordError: while iterating: a key or value cannot be decoded; names the record.
        """
        return map(self._decode, self.topic.read(start, stop, order=order, isolation=isolation))

    def follow(
        self,
        start: Start = "latest",
        *,
        timeout: float | None = None,
        order: Order = "timestamp",
        isolation: Isolation = Isolation.HIGH_WATERMARK,
    ) -> Iterator[SerializedRecord]:
        """Like :meth:`.Topic.follow`, with decoded records. Also raises what :meth:`read` does."""
        found = self.topic.follow(start, timeout=timeout, order=order, isolation=isolation)
        return map(self._decode, found)

    def latest(self, *, isolation: Isolation = Isolation.HIGH_WATERMARK) -> LatestTable:
        """The current value of each key, as a dictionary: the table that the topic describes. It must fit in
        memory; :meth:`.Topic.latest` iterates over larger tables. ``follow(table.end_offsets)`` gives every
        change that comes after it, exactly once.

        A key has records in two partitions if the topic got more partitions in between, or if you chose them
        by hand. Of these the one with the later timestamp counts; a tombstone deletes only what is in its own
        partition, as in compaction.

        Raises:
            InvalidRecordError: a key or value cannot be decoded, or a key is not hashable.
        """
        table = LatestTable()
        times: dict[Any, int] = {}
        views = self.topic.latest(isolation=isolation)
        for view in views:
            table.end_offsets[view.partition.partition] = view.end_offset
            for found in view:
                record = self._decode(found)
                try:
                    if len(views) > 1:
                        if times.get(record.key, found.timestamp_ms) > found.timestamp_ms:
                            continue  # another partition has a later one
                        times[record.key] = found.timestamp_ms
                    table[record.key] = record.value
                except TypeError as error:
                    raise InvalidRecordError(
                        f"the key of the record at {_place_of(found)} decodes to {shown(record.key)}, a "
                        f"{type(record.key).__name__}, which a dictionary cannot have as a key. Choose a key "
                        "serializer that gives hashable keys; or iterate over the topic's own latest()"
                    ) from error
        return table

    def _decode(self, record: Record) -> SerializedRecord:
        return decode_record(
            record, self._key, self._value, "The topic without serializers gives it as bytes"
        )

    def __repr__(self) -> str:
        return f"<SerializedTopic {self.topic.name!r}: key {self._key.name}, value {self._value.name}>"


def encode_field(serializer: Serializer, value: Any, whose: str) -> bytes | None:
    """A key or value in bytes; ``whose`` names it in the error.

    Raises:
        InvalidRecordError: the serializer refuses it; says why.
    """
    if value is None:
        return None
    try:
        encoded = serializer.encode(value)
    except Exception as error:
        raise InvalidRecordError(
            f"{whose} is {shown(value)}, which its serializer ({serializer.name}) refuses: {shown(error)}"
        ) from error
    return encoded


def decode_field(serializer: Serializer, record: Record, whose: str) -> Any:
    """The record's ``key`` or ``value``, as ``whose`` says, decoded.

    Raises:
        InvalidRecordError: it cannot be; names the record, and says why.
    """
    data = record.key if whose == "key" else record.value
    try:
        return None if data is None else serializer.decode(data)
    except Exception as error:
        raise _refusal(record, whose, serializer, data, error) from error


def _refusal(
    record: Record, whose: str, serializer: Serializer, data: Bytes | None, error: Exception, advice: str = ""
) -> InvalidRecordError:
    refused = InvalidRecordError(
        f"the {whose} of the record at {_place_of(record)} is {shown(data)}, which its serializer "
        f"({serializer.name}) refuses: {shown(error)}{advice}"
    )
    refused.partition, refused.offset = (str(record.topic), _partition_of(record)), record.offset
    return refused


def decode_record(record: Record, key: Serializer, value: Serializer, advice: str) -> SerializedRecord:
    """The record with key and value decoded.

    Raises:
        InvalidRecordError: one cannot be; names the record, says why, and ends with ``advice``.
    """
    try:
        whose, serializer, data = "key", key, record.key
        decoded_key = None if data is None else serializer.decode(data)
        whose, serializer, data = "value", value, record.value
        decoded_value = None if data is None else serializer.decode(data)
    except Exception as error:
        raise _refusal(record, whose, serializer, data, error, f". {advice}") from error
    return SerializedRecord(
        record.topic or "",
        _partition_of(record),
        record.offset,
        record.timestamp_ms,
        decoded_key,
        decoded_value,
        record.headers,
        record.timestamp_type,
        record.leader_epoch,
    )


def _partition_of(record: Record) -> int:
    return -1 if record.partition is None else record.partition


def _place_of(record: Record) -> str:
    return f"offset {record.offset} of {record.topic}-{record.partition}"
