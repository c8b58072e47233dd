"""The hot loops of the compiled module, with the signatures of their plain twins.

If the compiled code declines (damaged bytes, columns that are not lists of bytes), the plain code decodes or
encodes, or raises the error.

Callers import from :mod:`logstore.format.loops`, never from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from logstore.build import compiled
from logstore.errors import CorruptionError
from logstore.format import partitioner, plain
from logstore.format import records as careful
from logstore.format.gathered import NO_PRODUCER, RowRules
from logstore.format.header import NO_EPOCH, BatchHeader
from logstore.format.plain import RecordFacts
from logstore.format.records import Headers
from logstore.format.run import IndexProgress, Run, RunPlace, RunRules
from logstore.model import Bytes, NewRecord, Record, TopicPartition, place_records

if TYPE_CHECKING:
    from logstore.format.column_buffers import Chunk

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def encode_records(
    keys: Sequence[Bytes | None],
    values: Sequence[Bytes | None],
    timestamps: Sequence[int] | int,
    headers: Sequence[Headers] | None,
    base_timestamp_ms: int,
    offset_deltas: Sequence[int] | None = None,
    *,
    reserve_bytes: int = 0,
) -> bytearray:
    """As :func:`logstore.format.plain.encode_records`. Fast if columns and headers are lists or tuples of
    bytes, str and int, not of subclasses."""
    columns = (keys, values, timestamps, headers, base_timestamp_ms, offset_deltas)
    encoded = compiled.encode_records(*columns, reserve_bytes)
    if encoded is None:
        return plain.encode_records(*columns, reserve_bytes=reserve_bytes)
    return cast(bytearray, encoded)


encode_batch = compiled.encode_batch
"""As :func:`logstore.format.plain.encode_batch`."""

decode_batch = compiled.decode_batch
"""As :func:`logstore.format.plain.decode_batch`."""


_inspect_records = compiled.inspect_records


def inspect_records(
    buffer: Bytes, position: int, end: int, count: int, last_offset_delta: int, base_timestamp_ms: int
) -> RecordFacts:
    """As :func:`logstore.format.plain.inspect_records`. Cost: 10 ns per record of 100 bytes."""
    facts = _inspect_records(buffer, position, end, count, last_offset_delta, base_timestamp_ms)
    if facts is not None:
        new: RecordFacts = tuple.__new__(RecordFacts, facts)  # half the cost of _make
        return new
    return plain.inspect_records(buffer, position, end, count, last_offset_delta, base_timestamp_ms)


_decode_records = compiled.decode_records


def decode_records(
    buffer: Bytes,
    position: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int | None,
    *,
    last_offset_delta: int = careful.INT32_MAX,
    on_demand: bool = False,
    leader_epoch: int = NO_EPOCH,
    partition: TopicPartition | None = None,
) -> list[Record]:
    """As :func:`logstore.format.plain.decode_records`.

    ``on_demand`` creates key, value and headers at their first use, from ``buffer`` if that is bytes, else
    from one copy of the section: the records keep it alive. Everything is checked now.
    """
    # Arguments are written out twice: with a starred tuple a batch of 16 records takes a fifth longer.
    records: list[Record] | None = _decode_records(
        buffer,
        position,
        end,
        count,
        base_offset,
        base_timestamp_ms,
        append_time_ms,
        last_offset_delta,
        on_demand,
        leader_epoch,
        partition,
    )
    if records is not None:
        return records
    careful.check_count(position, end, count, len(buffer))
    records = careful.decode_records(
        buffer, position, end, count, base_offset, base_timestamp_ms, append_time_ms, last_offset_delta
    )
    return place_records(records, partition, append_time_ms is not None, leader_epoch)


Columns = compiled.Columns
"""As :class:`logstore.format.column_buffers.PlainColumns`, but takes ordinary batches and sections itself."""


def encode_columns(chunks: list[Chunk], now_ms: int, rules: RowRules) -> list[memoryview] | None:
    """As :func:`logstore.format.column_buffers.encode_columns`. Cost: 20 ns per record of 100 bytes."""
    batches: list[memoryview] | None = compiled.encode_columns(chunks, now_ms, rules)
    return batches


GatheredRows = compiled.GatheredRows
"""As :class:`logstore.format.gathered.GatheredRows`."""


def encode_rows(
    rows: Sequence[Any],
    now_ms: int,
    rules: RowRules,
    producer: tuple[int, int, int] = NO_PRODUCER,
) -> list[bytearray] | None:
    """The rows, a list or tuple, as sealed batches at base offset 0, not compressed; None if anything about
    them is unusual, for plain Python to decide. Cost: 35 ns per record of 100 bytes, 15 ns per header."""
    batches: list[bytearray] | None = compiled.encode_rows(rows, NewRecord, now_ms, rules, producer)
    return batches


def keep_records(
    section: Bytes, position: int, end: int, stays: bytes, base_timestamp_ms: int, reserve_bytes: int
) -> tuple[bytearray, int]:
    """As :func:`logstore.format.plain.keep_records`. Cost: 0.01 µs per record, and copying."""
    arguments = (section, position, end, stays, base_timestamp_ms, reserve_bytes)
    kept: tuple[bytearray, int] | None = compiled.keep_records(*arguments)
    return plain.keep_records(*arguments) if kept is None else kept


def divide_rows(rows: Sequence[Any], partition_count: int) -> list[list[Any]] | None:
    """The rows, a list or tuple, by the partition of their keys; None if one has no key or anything about it
    is unusual, for plain Python to decide. Cost: 50 ns per record."""
    divided: list[list[Any]] | None = compiled.divide_rows(rows, NewRecord, partition_count)
    return divided


def partition_for_key(key: Bytes, partition_count: int) -> int:
    """As :func:`logstore.format.partitioner.partition_for_key`. Cost: 0.1 µs."""
    partition: int | None = compiled.partition_for_key(key, partition_count)
    return partitioner.partition_for_key(key, partition_count) if partition is None else partition


def partitions_for_keys(
    is_large: bool, offset: int, row_count: int, ends: Bytes, data: Bytes, partition_count: int
) -> bytes | None:
    """As :func:`logstore.format.partitioner.partitions_for_keys`. Cost: 10 ns per key."""
    partitions: bytes | None = compiled.partitions_for_keys(
        is_large, offset, row_count, ends, data, partition_count
    )
    return partitions


def scan_batches(
    buffer: Bytes, position: int, end: int, *, check: bool
) -> tuple[list[tuple[int, BatchHeader]], int, CorruptionError | None]:
    """As :func:`logstore.format.plain.scan_batches`. Cost: 0.3 µs per batch, with ``check`` the checksum."""
    found, stop, is_all = compiled.scan_batches(BatchHeader, buffer, position, end, check)
    if is_all:
        return found, stop, None
    rest, stop, fault = plain.scan_batches(buffer, stop, end, check=check)
    return (found + rest if rest else found), stop, fault


def index_run(
    buffer: ReadableBuffer,
    position: int,
    end: int,
    file_position: int,
    rules: RunRules,
    place: RunPlace,
    progress: IndexProgress,
) -> Run | None:
    """See :class:`~logstore.format.run.IndexRun`. Cost: 30 ns per batch, plus the checksum."""
    found = compiled.index_run(buffer, position, end, file_position, rules, (*place, *progress))
    if found is None:
        return None
    stop, numbers, offset_entries, time_entries = found
    return Run(
        stop, RunPlace._make(numbers[:4]), IndexProgress._make(numbers[4:]), offset_entries, time_entries
    )
