"""The records that are stored: a row for each number, the same for every contender and in every process.

Keys of 16 bytes, values of 100 that do not compress, a timestamp of its own for each row. Making rows costs
time, so it happens off the clock; checksums are made of what comes back.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

KEY_BYTES = 16
VALUE_BYTES = 100
BASE_TIMESTAMP_MS = 1_700_000_000_000
"""A fixed past: no contender's clock is part of what is stored."""

CHUNK_RECORDS = 10_000
"""How many rows are made ahead; bounds the memory that is the benchmark's own."""

_NUMBER_BYTES = 8
_BLOCK = random.Random(7).randbytes(1 << 20)
_STEP = 97  # an odd stride through the block, so that values differ
_POSITIONS = len(_BLOCK) - VALUE_BYTES

Row = tuple[bytes, bytes, int]
"""Key, value, timestamp in milliseconds: what a contender is given."""

Stored = tuple[Any, ...]
"""What a contender gives back: (offset, timestamp_ms, key, value), and perhaps more behind it."""


def row_at(number: int) -> Row:
    """The row of a number."""
    start = number * _STEP % _POSITIONS
    value = number.to_bytes(_NUMBER_BYTES, "big") + _BLOCK[start : start + VALUE_BYTES - _NUMBER_BYTES]
    return b"%016d" % number, value, BASE_TIMESTAMP_MS + number


def batches_of(start: int, stop: int, batch_records: int) -> Iterator[list[Row]]:
    """The rows of ``[start, stop)`` in batches; the last may be short."""
    for first in range(start, stop, batch_records):
        yield list(map(row_at, range(first, min(first + batch_records, stop))))


class Digest(NamedTuple):
    """What a pass over records saw: how many, and the CRC-32 of all values in order."""

    record_count: int
    crc: int


def digest_stored(records: Iterable[Stored]) -> Digest:
    """Go through what a contender reads, touching each value. This is the loop that sequential reads are
    timed in: about 0.1 µs per record of it is the checksum, the same for all."""
    count = crc = 0
    crc32 = zlib.crc32
    for record in records:
        crc = crc32(record[3], crc)
        count += 1
    return Digest(count, crc)


def digest_expected(count: int) -> Digest:
    """What :func:`digest_stored` must find in a store that holds the first ``count`` rows."""
    crc = 0
    for number in range(count):
        crc = zlib.crc32(row_at(number)[1], crc)
    return Digest(count, crc)


def check_record(record: Stored, number: int) -> None:
    """
    Raises:
        WrongDataError: the record is not the row of that number, field by field.
    """
    key, value, timestamp_ms = row_at(number)
    if tuple(record[:4]) != (number, timestamp_ms, key, value):
        raise WrongDataError(f"record {number} came back as {record!r:.200}")


class WrongDataError(Exception):
    """What was read is not what was written: the measurement is void."""
