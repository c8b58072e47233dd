"""The records that are stored: a row for each number, the same for every contender and in every process.

Three kinds of data: keys of 16 bytes with values of 100 bytes or of 1 KiB that do not compress, and JSON
events (:mod:`benchmarks.events`). Each row has its own timestamp. Making rows is not timed, because it costs
time; what is read back is checked by checksums.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from benchmarks.events import event_at

SMALL = "100 B"
LARGE = "1 KiB"
JSON = "JSON"

BASE_TIMESTAMP_MS = 1_700_000_000_000
"""A fixed time in the past, so that no contender stores its own clock."""

_CHUNK_BYTES = 2 << 20
_VALUE_BYTES = {SMALL: 100, LARGE: 1024}
_TYPICAL_BYTES = {**_VALUE_BYTES, JSON: 300}
_NUMBER_BYTES = 8
_BLOCK = random.Random(7).randbytes(1 << 20)
_STEP = 97  # an odd stride through the block, so that values differ

Row = tuple[bytes, bytes, int]
"""The input of a contender: key, value, timestamp in milliseconds."""

Stored = tuple[int, int, bytes, bytes]
"""The output of a contender: (offset, timestamp_ms, key, value)."""


def chunk_records(data: str) -> int:
    """How many rows are made ahead; limits the benchmark's own memory."""
    return max(_CHUNK_BYTES // _TYPICAL_BYTES[data] // 1_000, 1) * 1_000


def row_at(number: int, data: str = SMALL) -> Row:
    """The row of a number."""
    return _ROW_AT[data](number)


def _random_row(value_bytes: int) -> Callable[[int], Row]:
    positions = len(_BLOCK) - value_bytes
    rest_bytes = value_bytes - _NUMBER_BYTES

    def row(number: int) -> Row:
        start = number * _STEP % positions
        value = number.to_bytes(_NUMBER_BYTES, "big") + _BLOCK[start : start + rest_bytes]
        return b"%016d" % number, value, BASE_TIMESTAMP_MS + number

    return row


def _event_row(number: int) -> Row:
    timestamp_ms = BASE_TIMESTAMP_MS + number * 3
    return *event_at(number, timestamp_ms), timestamp_ms


_ROW_AT: dict[str, Callable[[int], Row]] = {
    SMALL: _random_row(_VALUE_BYTES[SMALL]),
    LARGE: _random_row(_VALUE_BYTES[LARGE]),
    JSON: _event_row,
}
DATA = tuple(_ROW_AT)


def batches_of(start: int, stop: int, batch_records: int, data: str = SMALL) -> Iterator[list[Row]]:
    """The rows of ``[start, stop)`` in batches; the last may be short."""
    make = _ROW_AT[data]
    for first in range(start, stop, batch_records):
        yield list(map(make, range(first, min(first + batch_records, stop))))


class Digest(NamedTuple):
    """What a pass over records saw: their number, and the sums of the sizes and CRC-32s of all values, which
    do not depend on the order in which threads append."""

    record_count: int
    value_bytes: int
    crc_sum: int

    def __add__(self, other: object) -> Digest:
        if not isinstance(other, Digest):
            return NotImplemented
        return Digest(*map(sum, zip(self, other, strict=True)))


NOTHING = Digest(0, 0, 0)


def digest_values(values: Iterable[bytes]) -> Digest:
    count = size = crc_sum = 0
    crc32 = zlib.crc32
    for value in values:
        count += 1
        size += len(value)
        crc_sum += crc32(value)
    return Digest(count, size, crc_sum)


def digest_expected(count: int, data: str = SMALL) -> Digest:
    """The digest of a store with the first ``count`` rows."""
    return digest_values(row_at(number, data)[1] for number in range(count))


def check_record(record: Any, number: int, data: str = SMALL) -> None:
    """
    Raises:
        WrongDataError: the record is not the row of that number, field by field.
    """
    key, value, timestamp_ms = row_at(number, data)
    if tuple(record) != (number, timestamp_ms, key, value):
        raise WrongDataError(f"record {number} came back as {record!r:.200}")


class WrongDataError(Exception):
    """What was read is not what was written: the measurement is void."""
