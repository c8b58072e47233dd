"""What users hand to ``append`` and ``extend``, as the columns that the encoder takes.

Turning rows into columns costs least when all rows are of one shape, so the common shapes are recognised as
a whole: all :class:`~logstore.model.NewRecord`, or all ``(key, value)`` pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from logstore.errors import InvalidRecordError, UsageError
from logstore.model import Bytes, Header, NewRecord

MAX_RECORD_OVERHEAD_BYTES = 21
"""What a record takes besides key, value and headers, at most."""

_MAX_TIMESTAMP_MS = 2**63 - 1


class Columns(NamedTuple):
    """Records by field. ``timestamps`` is one number if all are equal; ``headers`` None if none has any."""

    keys: Sequence[Bytes | None]
    values: Sequence[Bytes | None]
    timestamps: Sequence[int] | int
    headers: Sequence[tuple[Header, ...]] | None

    def __len__(self) -> int:
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


def columns_of(records: NewRecords, now_ms: int) -> Columns:
    """
    Raises:
        UsageError: ``records`` is not an iterable of records.
        InvalidRecordError: one of them is of no known shape; names its index.
    """
    if isinstance(records, bytes | bytearray | memoryview | str):
        raise UsageError(f"records is a single {type(records).__name__}; extend takes an iterable of records")
    try:
        rows = list(records)
    except TypeError:
        raise UsageError(f"records is a {type(records).__name__}; extend takes an iterable") from None
    kinds = set(map(type, rows))
    if kinds == {tuple} and set(map(len, cast("list[tuple[Any, ...]]", rows))) == {2}:
        keys, values = zip(*cast("list[tuple[Any, Any]]", rows), strict=True)
        return Columns(keys, values, now_ms, None)
    if kinds != {NewRecord}:
        rows = [_new_record(number, row) for number, row in enumerate(rows)]
    return _transpose(cast("list[NewRecord]", rows), now_ms)


def _transpose(rows: list[NewRecord], now_ms: int) -> Columns:
    if not rows:
        return Columns((), (), now_ms, None)
    values, keys, headers, timestamps = zip(*rows, strict=True)
    stamps = set(timestamps)
    if stamps == {None}:
        return Columns(keys, values, now_ms, headers if any(headers) else None)
    if None in stamps:
        timestamps = tuple(now_ms if stamp is None else stamp for stamp in timestamps)
    check_timestamp_types(timestamps)
    return Columns(keys, values, timestamps, headers if any(headers) else None)


def _new_record(number: int, row: Any) -> NewRecord:
    if isinstance(row, NewRecord):
        return row
    if isinstance(row, bytes | bytearray | memoryview):
        return NewRecord(row)
    if isinstance(row, tuple) and 2 <= len(row) <= 4:
        key, value, *rest = row
        return NewRecord(value, key, tuple(rest[1]) if len(rest) > 1 else (), rest[0] if rest else None)
    raise InvalidRecordError(
        f"record {number} is a {type(row).__name__}; it must be a NewRecord, (key, value), "
        "(key, value, timestamp_ms), (key, value, timestamp_ms, headers), or bytes"
    )


def check_timestamp_types(timestamps: Sequence[Any]) -> None:
    """
    Raises:
        InvalidRecordError: one is not a whole number of milliseconds that fits 64 bits, -1 or above.
    """
    kinds = set(map(type, timestamps))
    if kinds <= {int} and (
        not timestamps or (min(timestamps) >= -1 and max(timestamps) <= _MAX_TIMESTAMP_MS)
    ):
        return
    for number, stamp in enumerate(timestamps):
        if type(stamp) is not int or not -1 <= stamp <= _MAX_TIMESTAMP_MS:
            raise InvalidRecordError(
                f"timestamp_ms of record {number} is {stamp!r}; it must be whole milliseconds since the epoch, or -1"
            )


def sizes_of(columns: Columns) -> list[int]:
    """Bytes that each record takes at most, uncompressed.

    Raises:
        InvalidRecordError: a key or value has no length; names it.
    """
    try:
        sizes = [
            (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
            for key, value in zip(columns.keys, columns.values, strict=True)
        ]
    except TypeError:
        check_bytes(columns)
        raise
    if columns.headers is not None:
        sizes = [
            size + sum(len(str(k)) * 4 + len(v or b"") + 10 for k, v in headers)
            for size, headers in zip(sizes, columns.headers, strict=True)
        ]
    return [size + MAX_RECORD_OVERHEAD_BYTES for size in sizes]


def check_bytes(columns: Columns) -> None:
    """
    Raises:
        InvalidRecordError: a key or value is neither bytes-like nor None; names the record and the argument.
    """
    for name, column in (("key", columns.keys), ("value", columns.values)):
        for number, item in enumerate(column):
            if item is not None and not isinstance(item, bytes | bytearray | memoryview):
                raise InvalidRecordError(
                    f"{name} of record {number} is a {type(item).__name__}; it must be bytes or None"
                )


def split_by_size(columns: Columns, batch_bytes: int) -> list[Columns]:
    """Cut into runs of at most ``batch_bytes`` each (one record at least)."""
    sizes = sizes_of(columns)
    if sum(sizes) <= batch_bytes:
        return [columns] if len(columns) else []
    parts = []
    start = size = 0
    for number, record_bytes in enumerate(sizes):
        if size + record_bytes > batch_bytes and number > start:
            parts.append(columns.part(start, number))
            start, size = number, 0
        size += record_bytes
    parts.append(columns.part(start, len(columns)))
    return parts


def check_headers(headers: Any) -> tuple[Header, ...]:
    """One record's headers as a tuple of pairs; accepts a mapping or an iterable of pairs.

    Raises:
        InvalidRecordError: a header is not ``(str, bytes or None)``.
    """
    pairs = tuple(headers.items()) if isinstance(headers, dict) else tuple(headers)
    for pair in pairs:
        if (
            not isinstance(pair, tuple)
            or len(pair) != 2
            or not isinstance(pair[0], str)
            or not (pair[1] is None or isinstance(pair[1], bytes | bytearray | memoryview))
        ):
            raise InvalidRecordError(f"header {pair!r} must be a pair of str and bytes or None")
    return pairs
