"""Columns of records as buffers: growing ones that batches are read into, and ones that batches are made of.

:class:`PlainColumns` and :func:`encode_columns` are the plain twins. The compiled ``Columns`` takes whole
batches from a buffer and keeps the layout of Apache Arrow. This one leaves every batch to its caller, which
decodes it to records. So both give the same rows, and the caller has one way for everything unusual. The same
holds for encoding. Knows no files and no Arrow package: the result is buffers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from enum import IntEnum, IntFlag
from itertools import accumulate
from typing import Final, NamedTuple

from logstore.format.gathered import RowRules
from logstore.format.header import HEADER_BYTES
from logstore.model import Bytes, Header, Record

MAX_COLUMN_BYTES: Final = (1 << 31) - 1
"""The most bytes in one column of keys or values: Arrow's ``binary`` counts with 32 bits."""


class Wanted(IntFlag):
    """Which fields of a record to take."""

    OFFSET = 1
    TIMESTAMP = 2
    KEY = 4
    VALUE = 8
    HEADERS = 16
    TIMESTAMP_TYPE = 32


class Ended(IntEnum):
    """Why ``take_batches`` ended."""

    NEEDS_MORE = 0
    """The buffer holds no further whole batch, or does not show where the one after it begins."""
    IS_FULL = 1
    """The next batch may pass a limit; finish the rows so far first."""
    IS_DONE = 2
    """No further batch can have rows below ``stop``."""
    IS_ODD = 3
    """The next batch is unusual: compressed, legacy, transactional where that matters, damaged, or not in its
    place. The columns are as they were before it."""


class BinaryBuffers(NamedTuple):
    """A column of payloads as Arrow lays out ``binary``: row i is ``data[ends[i]:ends[i + 1]]``."""

    null_count: int
    validity: Bytes | None
    ends: Bytes
    data: Bytes


class FinishedBuffers(NamedTuple):
    """The finished columns; None for each field that was not wanted."""

    row_count: int
    offsets: Bytes | None
    timestamps: Bytes | None
    keys: BinaryBuffers | None
    values: BinaryBuffers | None
    header_count: int
    header_ends: Bytes | None
    header_keys: BinaryBuffers | None
    header_values: BinaryBuffers | None
    timestamp_types: Bytes | None
    """int32: a :class:`~logstore.model.TimestampType`; -1 for records without a timestamp."""


class PayloadSlice(NamedTuple):
    """A column of keys or values to encode: ``row_count`` rows from ``offset`` on in Arrow's buffers."""

    is_large: bool
    """Whether the ends have 64 bits."""
    offset: int
    row_count: int
    validity: Bytes | None
    ends: Bytes | None
    data: Bytes | None


class Chunk(NamedTuple):
    """Rows to encode, in Arrow's layout. A column that is None is null in every row; without timestamps every
    record gets the current time. Header keys must have no nulls."""

    row_count: int
    keys: PayloadSlice | None
    values: PayloadSlice | None
    timestamps: tuple[int, Bytes] | None
    """First row and int64 values; no nulls."""
    headers: PayloadSlice | None
    """Its ends count headers; no data."""
    header_keys: PayloadSlice | None
    header_values: PayloadSlice | None


def encode_columns(chunks: list[Chunk], now_ms: int, rules: RowRules) -> list[memoryview] | None:
    """The rows as sealed batches at base offset 0, not compressed; None if anything about them is unusual,
    such as a timestamp that the rules refuse. The caller has checked that the keys that the rules need are
    present. Plain Python always returns None: it encodes lists of values."""
    return None


_ROW_FIELDS: Final = (
    Wanted.OFFSET,
    Wanted.TIMESTAMP,
    Wanted.KEY,
    Wanted.VALUE,
    Wanted.HEADERS,
    Wanted.TIMESTAMP_TYPE,
)


class PlainColumns:
    """Columns of records, kept as rows until they are finished. One thread at a time."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._rows: list[tuple[int, int, bytes | None, bytes | None, tuple[Header, ...], int]] = []
        self.used_bytes = 0
        """Bytes that the columns take in Arrow's layout, without the validity bits."""

    @property
    def row_count(self) -> int:
        """Rows so far."""
        return len(self._rows)

    def take_batches(
        self,
        buffer: Bytes,
        position: int,
        end: int,
        segment_end: int,
        next_segment: int,
        previous_last: int,
        start: int,
        stop: int,
        row_limit: int,
        byte_limit: int,
        avoids_transactions: bool,
    ) -> tuple[int, int, int]:
        """Append the rows with offsets in ``[start, stop)`` of the ordinary batches in buffer[position:end].

        Checks each batch: checksum, structure, and that its offsets lie between ``previous_last`` and the
        base of the next batch. At the end of the segment (``segment_end``, a position in the buffer or after
        it) ``next_segment`` stands for that base. Control batches have no rows. Stops before the batch with
        which the rows may pass a limit, but takes at least one; ``avoids_transactions`` makes transactional
        batches odd.

        Returns (an :class:`Ended`, the position of the next batch, the last offset before it). To plain
        columns every batch is odd.
        """
        is_there = end - position >= HEADER_BYTES
        return Ended.IS_ODD if is_there else Ended.NEEDS_MORE, position, previous_last

    def take_section(
        self,
        buffer: Bytes,
        position: int,
        end: int,
        count: int,
        base_offset: int,
        base_timestamp_ms: int,
        is_append_time: bool,
        append_time_ms: int,
        last_offset_delta: int,
        start: int,
        stop: int,
    ) -> bool:
        """Append the rows of one section of records, not compressed; False, with nothing appended, if it is
        unusual. To plain columns every section is."""
        return False

    def append_row(
        self,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...],
        timestamp_type: int = 0,
    ) -> None:
        """Append one record."""
        self._rows.append((offset, timestamp_ms, key, value, headers, timestamp_type))
        wanted = self._wanted
        size = 8 * bool(wanted & Wanted.OFFSET) + 8 * bool(wanted & Wanted.TIMESTAMP)
        size += 4 * bool(wanted & Wanted.TIMESTAMP_TYPE)
        if wanted & Wanted.KEY:
            size += 4 + len(key or b"")
        if wanted & Wanted.VALUE:
            size += 4 + len(value or b"")
        if wanted & Wanted.HEADERS:
            size += 4 + sum(8 + len(name.encode()) + len(payload or b"") for name, payload in headers)
        self.used_bytes += size

    def append_records(self, records: list[Record]) -> None:
        """Append decoded records; not those decoded on demand."""
        for record in records:
            self.append_row(*record)

    def finish(self) -> FinishedBuffers:
        """The rows so far; the columns are empty afterwards."""
        rows, wanted = self._rows, self._wanted
        self._rows, self.used_bytes = [], 0
        columns = list(zip(*rows, strict=True)) or [()] * len(_ROW_FIELDS)
        offsets, timestamps, keys, values, headers, types = (
            column if wanted & field else None for field, column in zip(_ROW_FIELDS, columns, strict=True)
        )
        pairs = None if headers is None else [pair for of_row in headers for pair in of_row]
        return FinishedBuffers(
            row_count=len(rows),
            offsets=_packed("q", offsets),
            timestamps=_packed("q", timestamps),
            keys=_payloads(keys),
            values=_payloads(values),
            header_count=len(pairs or ()),
            header_ends=None if headers is None else _ends(map(len, headers)),
            header_keys=None if pairs is None else _payloads([name.encode() for name, _ in pairs]),
            header_values=None if pairs is None else _payloads([payload for _, payload in pairs]),
            timestamp_types=_packed("i", types),
        )


def _packed(typecode: str, numbers: Sequence[int] | None) -> Bytes | None:
    return None if numbers is None else array(typecode, numbers).tobytes()


def _ends(sizes: Iterable[int]) -> Bytes:
    return array("i", accumulate(sizes, initial=0)).tobytes()


def _payloads(column: Sequence[bytes | None] | None) -> BinaryBuffers | None:
    if column is None:
        return None
    null_count = column.count(None)
    filled = [payload or b"" for payload in column]
    validity = _validity(column) if null_count else None
    return BinaryBuffers(null_count, validity, _ends(map(len, filled)), b"".join(filled))


def _validity(column: Sequence[bytes | None]) -> Bytes:
    """A bit for each row, lowest first. Does not use numpy, because nothing else here needs it."""
    digits = "".join(["0" if payload is None else "1" for payload in reversed(column)])
    return int(digits, 2).to_bytes((len(column) + 7) // 8, "little")
