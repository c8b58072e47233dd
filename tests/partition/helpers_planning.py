"""The checks of encoded batches in their simplest form: record by record, in one step, with every offset
known.

Tests compare this with :mod:`logstore.partition.encoding.planning`, which works in two steps and without
records.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.config import TopicConfig
from logstore.errors import InvalidRecordError, InvalidTimestampError, OutOfOrderError
from logstore.format.batch import decode_batch, encode_records_batch, rebase_batch, stamp_batch
from logstore.format.compression import Codec
from logstore.format.header import MAGIC, TIMESTAMP_TYPE_BIT, BatchHeader, decode_header
from logstore.format.plain import scan_batches
from logstore.model import NO_TIMESTAMP_MS, AppendOrigin, Bytes, Record, TimestampType
from logstore.partition.encoding.planning import (
    check_batch_size,
    check_keys,
    check_timestamps,
    compression_level,
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
    _check_single_batch(batches)
    check_batch_size(header.size_bytes, config)
    if origin is AppendOrigin.CLIENT:
        _check_client_batch(header)
    records = decode_batch(data, position, header)
    _check_records(header, records, config, now_ms)
    planned = _assign_offsets(data, position, header, records, config, base_offset, leader_epoch, now_ms)
    check_batch_size(planned.size_bytes, config)
    return planned


def _check_single_batch(batches: Sequence[tuple[int, BatchHeader]]) -> None:
    if len(batches) > 1 and any(header.magic >= 2 or header.codec is not Codec.NONE for _, header in batches):
        raise InvalidRecordError(f"an append takes exactly one batch; {len(batches)} were given")
    if len(batches) > 1:
        raise InvalidRecordError("records of magic 0 and 1 are appended one entry at a time")


def _check_client_batch(header: BatchHeader) -> None:
    if header.magic < 2:
        return
    if header.base_offset != 0:
        raise InvalidRecordError(f"base offset of a producer's batch is {header.base_offset}; it must be 0")
    if header.is_control:
        raise InvalidRecordError("a producer may not append a control batch")
    if header.record_count != header.last_offset_delta + 1 or header.record_count <= 0:
        raise InvalidRecordError(
            f"record count {header.record_count} does not match last offset delta {header.last_offset_delta}"
        )
    if header.has_producer and header.base_sequence < 0:
        raise InvalidRecordError(f"producer id {header.producer_id} without a base sequence")


def _check_records(header: BatchHeader, records: Sequence[Record], config: TopicConfig, now_ms: int) -> None:
    if header.is_control:
        return
    appends_time = config.message_timestamp_type == "LogAppendTime"
    if header.magic >= 1 and header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        if appends_time:
            raise InvalidTimestampError("a producer's batch may not carry log append time")
        if header.max_timestamp_ms == NO_TIMESTAMP_MS:
            raise InvalidTimestampError("a batch with log append time must have a timestamp")
    check_timestamps([record.timestamp_ms for record in records], config, now_ms)
    if config.compacts:
        check_keys([record.key for record in records])


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
        batch = _rebuild(header, records, codec, config)
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


def _rebuild(header: BatchHeader, records: Sequence[Record], codec: Codec, config: TopicConfig) -> bytearray:
    """Encode the records again with offsets 0, 1, 2 and so on."""
    dense = [record._replace(offset=number) for number, record in enumerate(records)]
    like = header._replace(
        magic=MAGIC,
        attributes=header.attributes & ~TIMESTAMP_TYPE_BIT,
        base_offset=0,
        last_offset_delta=max(len(dense) - 1, 0),
    )
    return encode_records_batch(dense, like=like, codec=codec, level=compression_level(config, codec))


def plan_follower_append(data: Bytes, *, log_end_offset: int) -> PlannedAppend | None:
    """Check batches that were copied from a leader; they keep offsets, epochs and bytes."""
    batches = split_batches(data)
    if not batches:
        return None
    _check_rising(batches)
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


def _check_rising(batches: Sequence[tuple[int, BatchHeader]]) -> None:
    previous = -1
    for position, header in batches:
        if header.base_offset <= previous:
            raise OutOfOrderError(
                f"replicated batch at position {position} begins at offset {header.base_offset}, "
                f"not above {previous}"
            )
        previous = header.last_offset
