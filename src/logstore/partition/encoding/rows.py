"""Turns the arguments of ``append`` and ``extend`` into the columns that the encoder takes.

Turning rows into columns costs least when all rows have one shape, so the common shapes are recognised as a
whole: all :class:`~logstore.model.NewRecord`, or all ``(key, value)`` pairs. The resulting columns can always
be encoded: keys and values are ``bytes`` or None (other buffers are copied, because the caller may change
them later), timestamps are milliseconds, header keys are text that UTF-8 can hold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from operator import add
from typing import Any, Final, NamedTuple, cast

from logstore.arguments import milliseconds_of, plain_text, shown
from logstore.errors import InvalidRecordError, UsageError
from logstore.format.gathered import MAX_RECORD_OVERHEAD_BYTES, Row, headers_bytes
from logstore.format.header import HEADER_BYTES
from logstore.model import NO_TIMESTAMP_MS, Bytes, Header, NewRecord, how_to_make_int

_MAX_TIMESTAMP_MS = 2**63 - 1


class Columns(NamedTuple):
    """Records by field. ``timestamps`` is one number if all are equal; ``headers`` None if none has any."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int] | int
    headers: Sequence[tuple[Header, ...]] | None

    @property
    def record_count(self) -> int:
        return len(self.values)

    def part(self, start: int, stop: int) -> Columns:
        return Columns(
            self.keys[start:stop],
            self.values[start:stop],
            self.timestamps if isinstance(self.timestamps, int) else self.timestamps[start:stop],
            None if self.headers is None else self.headers[start:stop],
        )


NewRecords = Iterable["NewRecord | tuple[Any, ...] | Bytes"]
"""Records to append: NewRecord, ``(key, value)``, ``(key, value, timestamp_ms)``, ``(key, value,
timestamp_ms, headers)``, or a bare value."""


# Rows to columns --------------------------------------------------------------------------------------------


def columns_of(records: NewRecords, now_ms: int) -> Columns:
    """
    Raises:
        UsageError: ``records`` is not an iterable of records.
        InvalidRecordError: one of them, or a field of one, is not valid; the message names it and the field.
    """
    rows = list_of(records)  # a copy: the caller may change the list meanwhile
    kinds = set(map(type, rows))
    if kinds == {tuple} and len(widths := set(map(len, rows))) == 1 and widths <= {2, 3, 4}:
        keys, values, *rest = zip(*rows, strict=True)
        return _columns(keys, values, rest[1] if len(rest) > 1 else (), rest[0] if rest else None, now_ms)
    if kinds != {NewRecord}:
        rows = [new_record(number, row) for number, row in enumerate(rows)]
    return _transpose(cast("list[NewRecord]", rows), now_ms)


def list_of(records: Any) -> list[Any]:
    """The records of an iterable as a list; uses up the iterable.

    Raises:
        UsageError: ``records`` is not an iterable of records.
    """
    if isinstance(records, bytes | bytearray | memoryview | str):
        raise UsageError(
            f"records is a single {type(records).__name__}; extend takes an iterable, append one"
        )
    if isinstance(records, Mapping):  # iterating gives its keys, which would be appended as values
        raise UsageError(f"records is a {type(records).__name__}; give its items(): pairs of key and value")
    try:
        iterator = iter(records)
    except TypeError:
        raise UsageError(f"records is a {type(records).__name__}; extend takes an iterable") from None
    return list(iterator)


def _transpose(rows: list[NewRecord], now_ms: int) -> Columns:
    if not rows:
        return Columns((), (), now_ms, None)
    values, keys, headers, timestamps = zip(*rows, strict=True)
    return _columns(keys, values, headers, timestamps, now_ms)


def _columns(keys: Any, values: Any, headers: Any, timestamps: Any, now_ms: int) -> Columns:
    return Columns(
        _payloads("key", keys),
        _payloads("value", values),
        now_ms if timestamps is None else _timestamps(timestamps, now_ms),
        None
        if set(map(type, headers)) <= _CONTAINERS and not any(headers)
        else [check_headers(pairs, number) for number, pairs in enumerate(headers)],
    )


def columns_of_gathered(rows: Sequence[Row]) -> Columns:
    """The columns of checked rows, at least one."""
    keys, values, timestamps, headers = zip(*rows, strict=True)
    is_constant = timestamps.count(timestamps[0]) == len(timestamps)
    return Columns(
        keys, values, timestamps[0] if is_constant else timestamps, headers if any(headers) else None
    )


def new_record(number: int, row: Any, *, takes_value: bool = True) -> NewRecord:
    """The record that a row means, its fields as they were given. ``takes_value``: a row may be the bytes of
    a value alone.

    Raises:
        InvalidRecordError: it has none of the shapes; names the record by its ``number``.
    """
    if isinstance(row, NewRecord):
        return row
    if takes_value and isinstance(row, bytes | bytearray | memoryview):
        return NewRecord(row)
    if isinstance(row, tuple) and 2 <= len(row) <= 4:
        key, value, *rest = row
        return NewRecord(value, key, rest[1] if len(rest) > 1 else (), rest[0] if rest else None)
    value, hint = (" bytes,", _how_to_make_bytes("value", row)) if takes_value else ("", "")
    raise InvalidRecordError(
        f"record {number} is a {type(row).__name__}; it must be{value} a NewRecord, (key, value), "
        f"(key, value, timestamp_ms), or (key, value, timestamp_ms, headers){hint}"
    )


_PLAIN = {bytes, type(None)}
_CONTAINERS = {tuple, list, dict, type(None)}


def _payloads(name: str, column: Sequence[Any]) -> Sequence[bytes | None]:
    """A column of keys or values as bytes; the same object if it holds only bytes and None."""
    if set(map(type, column)) <= _PLAIN:
        return column
    return [check_payload(name, payload, number) for number, payload in enumerate(column)]


def _timestamps(column: Sequence[Any], now_ms: int) -> Sequence[int] | int:
    kinds = set(map(type, column))
    if kinds == {type(None)}:
        return now_ms
    if kinds == {int}:
        check_timestamp_types(column)
        return column
    filled = [
        now_ms if stamp is None else plain_timestamp(stamp, number) for number, stamp in enumerate(column)
    ]
    check_timestamp_types(filled)
    return filled


# Fields -----------------------------------------------------------------------------------------------------


def _whose(name: str, number: int | None) -> str:
    return name if number is None else f"{name} of record {number}"


_OF_TOPICS: Final = 'topic.serialized({name}="{kind}")'


def check_payload(
    name: str, payload: Any, number: int | None = None, *, serializing: str = _OF_TOPICS
) -> bytes | None:
    """A key, value or header value as bytes; other buffers are copied.

    Raises:
        InvalidRecordError: it is neither bytes-like nor None; the message says whose, and how to serialize
            all of them: ``serializing``, with the name and the kind filled in. ``number`` is the record's.
    """
    if payload is None or type(payload) is bytes:
        return payload
    if isinstance(payload, bytes | bytearray | memoryview):
        return copied(payload, _whose(name, number))
    raise InvalidRecordError(
        f"{_whose(name, number)} is a {type(payload).__name__}; it must be bytes or None"
        + _how_to_make_bytes(name, payload, serializing)
    )


def _how_to_make_bytes(name: str, payload: Any, serializing: str = _OF_TOPICS) -> str:
    """The hint in a message about a key or value for which there is a serializer."""
    if name not in ("key", "value"):
        return "; .encode() makes bytes of it" if isinstance(payload, str) else ""
    if isinstance(payload, str):
        how = serializing.format(name=name, kind="text")
        return f"; .encode() makes bytes of it, or {how} of every {name}"
    if isinstance(payload, int | float | list | dict):
        return f"; {serializing.format(name=name, kind='json')} stores every {name} as JSON"
    return ""


def copied(payload: bytes | bytearray | memoryview, whose: str) -> bytes:
    """
    Raises:
        InvalidRecordError: it is a memoryview that was released.
    """
    try:
        return bytes(payload)
    except ValueError as error:
        raise InvalidRecordError(f"{whose} cannot be read: {error}") from None


def plain_timestamp(stamp: Any, number: int | None = None) -> Any:
    """A datetime as milliseconds; anything else as it is.

    Raises:
        InvalidTimestampError: a datetime without a time zone; the message names the record.
    """
    if isinstance(stamp, datetime):
        return milliseconds_of(stamp, _whose("timestamp_ms", number))
    return stamp


def check_timestamp_types(timestamps: Sequence[Any]) -> None:
    """
    Raises:
        InvalidRecordError: one is not a whole number of milliseconds that fits 64 bits, -1 or above.
    """
    kinds = set(map(type, timestamps))
    if kinds <= {int} and (
        not timestamps or (min(timestamps) >= NO_TIMESTAMP_MS and max(timestamps) <= _MAX_TIMESTAMP_MS)
    ):
        return
    for number, stamp in enumerate(timestamps):
        if type(stamp) is not int or not NO_TIMESTAMP_MS <= stamp <= _MAX_TIMESTAMP_MS:
            raise InvalidRecordError(
                f"timestamp_ms of record {number} is {shown(stamp)}; "
                f"it must be whole milliseconds since the epoch, -1, or a datetime{how_to_make_int(stamp)}"
            )


def check_headers(headers: Any, number: int | None = None) -> tuple[Header, ...]:
    """One record's headers as a tuple of pairs; accepts a mapping, an iterable of pairs, or None.

    Raises:
        InvalidRecordError: a header is not ``(str, bytes or None)``; the message names the record.
    """
    if headers is None or (type(headers) in _CONTAINERS and not headers):
        return ()
    try:
        pairs = tuple(headers.items()) if isinstance(headers, dict) else tuple(headers)
    except (TypeError, ValueError):  # a released memoryview
        raise InvalidRecordError(
            f"{_whose('headers', number)} is a {type(headers).__name__}; it must be pairs of str and bytes"
        ) from None
    return tuple([_check_header(pair, number) for pair in pairs])


def _check_header(pair: Any, number: int | None) -> Header:
    if (
        not isinstance(pair, tuple)
        or tuple.__len__(pair) != 2
        or not isinstance(tuple.__getitem__(pair, 0), str)
    ):
        raise InvalidRecordError(
            f"{_whose('header', number)} is {shown(pair):.60}; it must be a pair of str and bytes or None"
        )
    key, value = tuple.__iter__(pair)
    key = plain_text(key)
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise InvalidRecordError(
            f"key {key!r:.60} of {_whose('a header', number)} is not text that UTF-8 can hold: {error.reason}"
        ) from None
    return key, check_payload(f"header {key!r:.60}", value, number)


# Sizes ------------------------------------------------------------------------------------------------------


def sizes_of(columns: Columns) -> list[int]:
    """The most bytes that each record can take, uncompressed."""
    sizes = map(add, _lengths(columns.keys), _lengths(columns.values))
    if columns.headers is not None:
        sizes = map(add, sizes, map(headers_bytes, columns.headers))
    return [size + MAX_RECORD_OVERHEAD_BYTES for size in sizes]


def _lengths(column: Sequence[bytes | None]) -> list[int]:
    try:
        return list(map(len, cast("Sequence[bytes]", column)))  # a None raises: cheaper than to search
    except TypeError:
        return [0 if payload is None else len(payload) for payload in column]


def split_by_size(columns: Columns, batch_bytes: int) -> list[Columns]:
    """Cut into runs that make batches of at most ``batch_bytes``, uncompressed (at least one record each)."""
    sizes = sizes_of(columns)
    limit = batch_bytes - HEADER_BYTES
    if sum(sizes) <= limit:
        return [columns] if sizes else []
    ends = list(accumulate(sizes))
    parts = []
    start = done = 0
    while start < len(ends):
        stop = max(bisect_right(ends, done + limit), start + 1)
        parts.append(columns.part(start, stop))
        start, done = stop, ends[stop - 1]
    return parts
