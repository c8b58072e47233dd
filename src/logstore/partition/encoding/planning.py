"""Checks and prepares batches before they are appended: a pure plan, nothing is written here.

A leader's batches are checked against the topic's configuration (Kafka's LogValidator) and get their offsets;
a follower's keep their offsets and must only follow the log. Either way the resulting batches are ready to be
written.

Each is done in two steps. The slow part (checksum, records, encoding again) needs no lock and works on bytes
that no other code can change. The part that depends on the log end comes second, and is a patch or a
comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logstore.config import TopicConfig
from logstore.errors import (
    CorruptionError,
    InvalidRecordError,
    InvalidTimestampError,
    OutOfOrderError,
    RecordTooLargeError,
)
from logstore.format.batch import (
    NewBatch,
    decode_batch,
    encode_records_batch,
    inspect_records,
    place_batch,
    stamp_batch,
)
from logstore.format.bounds import MAX_DECOMPRESSED_BYTES, is_too_large
from logstore.format.compression import Codec, codec_named
from logstore.format.header import (
    CONTROL_BIT,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    decode_header,
)
from logstore.format.loops import RecordFacts, scan_batches
from logstore.format.received import is_given, stays
from logstore.format.units import PLAUSIBLE_FROM_MS, PLAUSIBLE_TO_MS, describe, is_checkable, unit_of
from logstore.model import NO_TIMESTAMP_MS, AppendOrigin, Bytes, Record, TimestampType
from logstore.partition.segments.indexes import MAX_RELATIVE_OFFSET
from logstore.partition.segments.planned import PlannedAppend

MAX_REPORTED_RECORDS = 10
"""An error lists this many of the refused records."""

_NOT_AT_ONCE: Final = CONTROL_BIT | TIMESTAMP_TYPE_BIT
"""A batch with one of these attributes is checked record by record."""


def largest_batch_bytes(config: TopicConfig) -> int:
    """The largest batch that a leader takes: it must also fit into a segment."""
    return min(config.max_message_bytes, config.segment_bytes)


def check_batch_size(size_bytes: int, config: TopicConfig) -> None:
    """
    Raises:
        RecordTooLargeError: a batch of this size is larger than ``max_message_bytes`` or ``segment_bytes``.
    """
    if size_bytes > largest_batch_bytes(config):
        is_message = size_bytes > config.max_message_bytes
        setting = "max_message_bytes" if is_message else "segment_bytes"
        raise RecordTooLargeError(
            f"a batch of {size_bytes} bytes is larger than {setting} ({getattr(config, setting)}), which "
            "topic.configure() changes"
        )


def check_timestamps(
    timestamps: Sequence[int], config: TopicConfig, now_ms: int, *, by_unit: bool = False
) -> None:
    """Check create timestamps against the topic's bounds; -1 always passes. ``by_unit`` also checks that they
    look like milliseconds, for records made by a program; encoded batches are taken as they are.

    Raises:
        InvalidTimestampError: timestamps are out of bounds or in another unit. The message says how many, and
            names up to ten records and the bounds, or the unit.
    """
    if config.message_timestamp_type != "CreateTime" or not timestamps:
        return
    lowest, highest = min(timestamps), max(timestamps)
    is_plain = lowest >= PLAUSIBLE_FROM_MS and highest <= PLAUSIBLE_TO_MS
    if by_unit and not is_plain and config.message_timestamp_unit_check and is_checkable(now_ms):
        _check_units(timestamps)
    oldest = now_ms - config.message_timestamp_before_max_ms
    newest = now_ms + config.message_timestamp_after_max_ms
    if oldest <= lowest and highest <= newest:
        return
    bad = [
        (number, timestamp_ms)
        for number, timestamp_ms in enumerate(timestamps)
        if timestamp_ms != NO_TIMESTAMP_MS and not oldest <= timestamp_ms <= newest
    ]
    if bad:
        named = ", ".join(f"record {number} has {at}" for number, at in bad[:MAX_REPORTED_RECORDS])
        limits = []
        if any(at < oldest for _, at in bad):
            limits.append(f"message_timestamp_before_max_ms allows none below {oldest}")
        if any(at > newest for _, at in bad):
            limits.append(f"message_timestamp_after_max_ms allows none above {newest}")
        error = InvalidTimestampError(
            f"timestamp_ms is out of bounds in {len(bad)} of {len(timestamps)} records: {named}; "
            f"{' and '.join(limits)}"
        )
        error.records = tuple([number for number, _ in bad[:MAX_REPORTED_RECORDS]])
        raise error


def _check_units(timestamps: Sequence[int]) -> None:
    for number, timestamp_ms in enumerate(timestamps):
        unit = unit_of(timestamp_ms)
        if unit is not None:
            raise InvalidTimestampError(
                f"timestamp_ms {timestamp_ms} of record {number} {describe(timestamp_ms, unit)}. "
                "(message_timestamp_unit_check=False takes it as it is)"
            )


# Leader -----------------------------------------------------------------------------------------------------


def split_batches(data: Bytes) -> list[tuple[int, BatchHeader]]:
    """The whole batches in ``data``, CRCs checked; a partial batch at the end is left out.

    Raises:
        CorruptionError: a batch is damaged; nothing of the data may be appended.
    """
    batches, _, fault = scan_batches(data, 0, len(data), check=True)
    if fault is not None:
        raise fault
    return batches


def check_produced(data: Bytes, *, config: TopicConfig, origin: AppendOrigin, now_ms: int) -> NewBatch | None:
    """Check one batch from a producer, and make the batch that the topic stores; it then lacks only its place
    (:func:`place_produced`). Needs no lock. None if ``data`` holds no whole batch.

    The bytes stay as they are, except for timestamp type and largest timestamp, unless the codec of the
    topic, gaps in the offsets or the magic make it necessary to encode the records again. They are copied
    before they are checked, so the caller's buffer may change meanwhile; unless they were given away
    (:func:`~logstore.format.received.is_given`). Cost: the copy, the checksum, and for an ordinary batch with
    the compiled module 3 µs and 0.01 µs per record of 100 bytes. Otherwise it costs as much as decoding.
    Compressed batches are decompressed.

    Raises:
        CorruptionError: the batch's CRC or structure is wrong.
        InvalidRecordError, InvalidTimestampError, RecordTooLargeError: the topic's rules refuse it.
    """
    batch: NewBatch
    if is_given(data) and config.message_timestamp_type == "CreateTime":  # then it may be checked twice
        batch = data
    else:
        batch = bytearray(data)
    batches = split_batches(batch)
    if not batches:
        return None
    _, header = batches[0]
    if len(batches) > 1:
        check_single_batch(batches)
    size_bytes = header.size_bytes
    if size_bytes > config.max_message_bytes or size_bytes > config.segment_bytes:
        check_batch_size(size_bytes, config)
    if origin is AppendOrigin.CLIENT:
        check_client_batch(header)
    if size_bytes < len(batch):
        batch = memoryview(batch)[:size_bytes]
    try:
        largest_ms = _largest_timestamp_in_place(batch, header, config, now_ms)
        if largest_ms is None:
            batch, header, largest_ms = _check_each_record(batch, header, config, now_ms)
            check_batch_size(len(batch), config)
    except CorruptionError as fault:
        _check_decompresses(fault, size_bytes)
        raise
    if not header.attributes & CONTROL_BIT:
        kind = TimestampType.CREATE_TIME
        if config.message_timestamp_type == "LogAppendTime":
            kind, largest_ms = TimestampType.LOG_APPEND_TIME, now_ms
        stamp_batch(batch, 0, header, timestamp_type=kind, max_timestamp_ms=largest_ms)
    return batch


def _check_decompresses(fault: CorruptionError, size_bytes: int) -> None:
    """
    Raises:
        RecordTooLargeError: the fault of a batch of ``size_bytes`` is that it has too many records. As damage
            its producer would send it again and again.
    """
    if is_too_large(fault):
        raise RecordTooLargeError(
            f"a batch of {size_bytes} bytes has more than {MAX_DECOMPRESSED_BYTES} bytes of records, which "
            "no reader decompresses: make smaller batches"
        ) from fault


def place_produced(batch: NewBatch, *, base_offset: int, leader_epoch: int) -> PlannedAppend:
    """Give a checked batch its offsets, from ``base_offset`` on: 12 bytes that no checksum covers."""
    return PlannedAppend([batch], [place_batch(batch, base_offset, leader_epoch)])


def check_single_batch(batches: Sequence[tuple[int, BatchHeader]]) -> None:
    if len(batches) > 1 and any(header.magic >= 2 or header.codec is not Codec.NONE for _, header in batches):
        raise InvalidRecordError(f"an append takes exactly one batch, not {len(batches)}")
    if len(batches) > 1:
        raise InvalidRecordError("records of magic 0 and 1 are appended one entry at a time")


def check_client_batch(header: BatchHeader) -> None:
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


def _largest_timestamp_in_place(
    batch: NewBatch, header: BatchHeader, config: TopicConfig, now_ms: int
) -> int | None:
    """The largest timestamp of a batch that passes all rules and whose bytes can stay, found without making a
    record. None for any other batch, for whatever reason."""
    if header.magic < MAGIC or header.attributes & _NOT_AT_ONCE:
        return None
    if not _has_no_gap(header):
        return None
    if config.compression_type != "producer" and target_codec(config, header.codec) != header.codec:
        return None
    facts = inspect_records(batch, 0, header)
    if config.compacts and not facts.has_all_keys:
        return None
    return facts.newest_ms if _are_within(facts, config, now_ms) else None


def _are_within(facts: RecordFacts, config: TopicConfig, now_ms: int) -> bool:
    """Whether :func:`check_timestamps` would accept all of them."""
    if config.message_timestamp_type != "CreateTime":
        return True
    return (
        now_ms - config.message_timestamp_before_max_ms <= facts.oldest_ms
        and facts.newest_ms <= now_ms + config.message_timestamp_after_max_ms
    )


def _check_each_record(
    batch: NewBatch, header: BatchHeader, config: TopicConfig, now_ms: int
) -> tuple[NewBatch, BatchHeader, int]:
    """Check a batch against the rules record by record, and encode it again if its bytes cannot stay. Returns
    the batch to store with its header, and the largest timestamp of the records."""
    records = decode_batch(batch, 0, header)
    check_records(header, records, config, now_ms)
    codec = target_codec(config, header.codec)
    if not header.is_control and not _fits_in_place(header, codec, config):
        batch = rebuild(header, records, codec, config)
        header = decode_header(batch)
    return batch, header, max((record.timestamp_ms for record in records), default=NO_TIMESTAMP_MS)


def check_records(header: BatchHeader, records: Sequence[Record], config: TopicConfig, now_ms: int) -> None:
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


def check_keys(keys: Sequence[Bytes | None]) -> None:
    """
    Raises:
        InvalidRecordError: a record for a compacted topic has no key; the message names up to ten of them.
    """
    if None in keys:
        missing = [number for number, key in enumerate(keys) if key is None]
        named = ", ".join(map(str, missing[:MAX_REPORTED_RECORDS]))
        error = InvalidRecordError(
            f"a compacted topic needs a key in every record; missing in record {named}"
        )
        error.records = tuple(missing[:MAX_REPORTED_RECORDS])
        raise error


def _fits_in_place(header: BatchHeader, codec: Codec, config: TopicConfig) -> bool:
    """Whether the bytes can stay: codec and magic are those on disk, the offsets have no gap, and no record
    changes its timestamp with the batch's timestamp type."""
    if header.magic < 2 or codec != header.codec:
        return False
    if (
        header.timestamp_type is TimestampType.LOG_APPEND_TIME
        and config.message_timestamp_type == "CreateTime"
    ):
        return False
    return _has_no_gap(header)


def _has_no_gap(header: BatchHeader) -> bool:
    """Whether the offsets of a batch of magic 2 are dense. Its records were checked before: their offsets
    rise and lie within the header's, so comparing the counts is enough."""
    return header.record_count == header.last_offset_delta + 1


def rebuild(header: BatchHeader, records: Sequence[Record], codec: Codec, config: TopicConfig) -> bytearray:
    """Encode the records again, with offsets 0, 1, 2 and so on."""
    dense = [record._replace(offset=number) for number, record in enumerate(records)]
    like = header._replace(
        magic=MAGIC,
        attributes=header.attributes & ~TIMESTAMP_TYPE_BIT,
        base_offset=0,
        last_offset_delta=max(len(dense) - 1, 0),
    )
    return encode_records_batch(dense, like=like, codec=codec, level=compression_level(config, codec))


def target_codec(config: TopicConfig, source: Codec) -> Codec:
    """The codec on disk: the topic's, or for ``producer`` the one that arrived."""
    return source if config.compression_type == "producer" else codec_named(config.compression_type)


def compression_level(config: TopicConfig, codec: Codec) -> int | None:
    """The topic's level for a codec; None if the codec has no levels."""
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return levels.get(codec)


# Follower ---------------------------------------------------------------------------------------------------


def check_replicated(data: Bytes) -> PlannedAppend | None:
    """Check batches that were copied from a leader; they keep offsets, epochs and bytes. Needs no lock. None
    if ``data`` holds no whole batch.

    A buffer that could change meanwhile is copied first (:func:`~logstore.format.received.stays`). Cost: the
    copy, the checksum, and 0.3 µs per batch.

    Raises:
        CorruptionError: a batch's CRC or structure is wrong.
        OutOfOrderError: the offsets do not rise.
    """
    view = memoryview(data if stays(data) else bytes(data))
    batches = split_batches(view)
    if not batches:
        return None
    check_rising(batches)
    return PlannedAppend(
        [view[position : position + header.size_bytes] for position, header in batches],
        [header for _, header in batches],
    )


def check_follows(planned: PlannedAppend, log_end_offset: int) -> None:
    """
    Raises:
        OutOfOrderError: replicated batches begin below the log end offset; the message carries the first and
            the last offset.
    """
    first = planned.headers[0]
    first_offset = first.base_offset if first.magic == MAGIC else first.last_offset
    if first_offset < log_end_offset:
        raise OutOfOrderError(
            f"replicated offsets {first_offset} to {planned.last_offset} begin below the log end offset "
            f"{log_end_offset}"
        )


def check_rising(batches: Sequence[tuple[int, BatchHeader]]) -> None:
    previous = -1
    for position, header in batches:
        if header.base_offset <= previous:
            raise OutOfOrderError(
                f"replicated batch at position {position} begins at offset {header.base_offset}, "
                f"not above {previous}"
            )
        previous = header.last_offset


def check_reach(planned: PlannedAppend, segment_base_offset: int) -> None:
    """
    Raises:
        CorruptionError: an offset is out of reach of the segment's indexes even after a roll.
    """
    if planned.last_offset - segment_base_offset > MAX_RELATIVE_OFFSET:
        raise CorruptionError(
            f"offsets {planned.base_offset} to {planned.last_offset} span more than a segment can index",
            base_offset=planned.base_offset,
            last_offset=planned.last_offset,
        )
