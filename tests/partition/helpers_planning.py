"""The checks of encoded batches in their simplest form: record by record, in one step, with every offset
known.

Tests compare this with :mod:`logstore.partition.encoding.planning`, which works in two steps and without
records. The rules for one batch and one record are the same functions; they have tests of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.config import TopicConfig
from logstore.errors import OutOfOrderError
from logstore.format.batch import decode_batch, rebase_batch, stamp_batch
from logstore.format.compression import Codec
from logstore.format.header import BatchHeader, decode_header
from logstore.format.plain import scan_batches
from logstore.model import NO_TIMESTAMP_MS, AppendOrigin, Bytes, Record, TimestampType
from logstore.partition.encoding.planning import (
    check_batch_size,
    check_client_batch,
    check_records,
    check_rising,
    check_single_batch,
    rebuild,
    target_codec,
)
from logstore.partition.segments.planned import PlannedAppend


def split_batches(data: Bytes) -> list[tuple[int, BatchHeader]]:
    batches, _, fault = scan_batches(data, 0, len(data), check=True)
    if fault is not None:
        raise fault
    return batches


def plan_leader_append(
    data: Bytes,
    *,
    config: TopicConfig,
    origin: AppendOrigin,
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> PlannedAppend | None:
    """Validate one batch as it came from a producer and give it offsets from ``base_offset`` on."""
    batches = split_batches(data)
    if not batches:
        return None
    position, header = batches[0]
    check_single_batch(batches)
    check_batch_size(header.size_bytes, config)
    if origin is AppendOrigin.CLIENT:
        check_client_batch(header)
    records = decode_batch(data, position, header)
    check_records(header, records, config, now_ms)
    planned = _assign_offsets(data, position, header, records, config, base_offset, leader_epoch, now_ms)
    check_batch_size(planned.size_bytes, config)
    return planned


def _assign_offsets(
    data: Bytes,
    position: int,
    header: BatchHeader,
    records: Sequence[Record],
    config: TopicConfig,
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> PlannedAppend:
    codec = target_codec(config, header.codec)
    if header.is_control or _fits_in_place(header, records, codec, config):
        batch = bytearray(memoryview(data)[position : position + header.size_bytes])
    else:
        batch = rebuild(header, records, codec, config)
    rebase_batch(batch, 0, base_offset, leader_epoch)
    if not header.is_control:
        if config.message_timestamp_type == "LogAppendTime":
            kind, largest = TimestampType.LOG_APPEND_TIME, now_ms
        else:
            kind = TimestampType.CREATE_TIME
            largest = max((record.timestamp_ms for record in records), default=NO_TIMESTAMP_MS)
        stamp_batch(batch, 0, decode_header(batch), timestamp_type=kind, max_timestamp_ms=largest)
    return PlannedAppend([batch], [decode_header(batch)])


def _fits_in_place(header: BatchHeader, records: Sequence[Record], codec: Codec, config: TopicConfig) -> bool:
    """Whether the bytes can stay: codec and magic are those on disk, the offsets have no gap, and the batch's
    timestamp type changes no record's timestamp."""
    if header.magic < 2 or codec != header.codec:
        return False
    if (
        header.timestamp_type is TimestampType.LOG_APPEND_TIME
        and config.message_timestamp_type == "CreateTime"
    ):
        return False
    offsets = [record.offset for record in records]
    is_full = len(offsets) == header.last_offset_delta + 1  # first: a header may claim 2^31 of them
    return is_full and offsets == list(range(header.base_offset, header.next_offset))


def plan_follower_append(data: Bytes, *, log_end_offset: int) -> PlannedAppend | None:
    """Check batches that were copied from a leader; they keep offsets, epochs and bytes."""
    batches = split_batches(data)
    if not batches:
        return None
    check_rising(batches)
    first, last = batches[0][1], batches[-1][1]
    first_offset = first.base_offset if first.magic == 2 else first.last_offset
    if first_offset < log_end_offset:
        raise OutOfOrderError(
            f"replicated offsets {first_offset} to {last.last_offset} begin below the log end offset "
            f"{log_end_offset}"
        )
    view = memoryview(data)
    return PlannedAppend(
        [view[position : position + header.size_bytes] for position, header in batches],
        [header for _, header in batches],
    )
