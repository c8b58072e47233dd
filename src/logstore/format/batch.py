"""Batches of magic 2: building them, patching their headers, and decoding batches of any magic.

Knows how header, codec and records make a batch, and which of a header's bytes may be changed without
touching the rest. Does not know logs, files or which batch may be appended: the validator decides that.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from logstore.errors import CorruptionError, InvalidRecordError, RecordTooLargeError, UsageError
from logstore.format import checksum, legacy, loops
from logstore.format.compression import MAX_DECOMPRESSED_BYTES, Codec, compress, decompress
from logstore.format.header import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_FROM,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LEADER_EPOCH_POSITION,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    MAX_TIMESTAMP_POSITION,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PREFIX_BYTES,
    PRODUCER_POSITION,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_batch,
    decode_header,
)
from logstore.format.layout import BATCH_HEADER
from logstore.format.loops import RecordFacts
from logstore.format.records import Headers, check_arguments
from logstore.model import (
    NO_TIMESTAMP_MS,
    Bytes,
    ProducerIdentity,
    Record,
    TimestampType,
    TopicPartition,
    place_records,
)

__all__ = [
    "CODEC_MASK",
    "CONTROL_BIT",
    "DELETE_HORIZON_BIT",
    "HEADER_BYTES",
    "MAX_BATCH_BYTES",
    "PREFIX_BYTES",
    "TIMESTAMP_TYPE_BIT",
    "TRANSACTIONAL_BIT",
    "BatchHeader",
    "check_batch",
    "decode_batch",
    "decode_header",
    "decode_section",
    "encode_batch",
    "encode_records_batch",
    "inspect_records",
    "keep_records",
    "newest_timestamp",
    "place_batch",
    "rebase_batch",
    "records_section",
    "reseal_batch",
    "seal_batch",
    "stamp_batch",
    "stamp_producer",
]

MAX_BATCH_BYTES: Final = (1 << 31) - 1
"""A position in a segment is an int32, so nothing larger can be stored."""

_PLACE = struct.Struct(">qii")
"""Base offset, size and leader epoch, with which a header begins."""

NewBatch = bytearray | memoryview
"""A batch that was encoded here and has no place in a log yet."""

_PRODUCER = struct.Struct(">qhi")
"""Its id, epoch and sequence, as they follow each other in the header."""

_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")


def encode_batch(
    keys: Sequence[Bytes | None],
    values: Sequence[Bytes | None],
    timestamps: Sequence[int] | int,
    headers: Sequence[Headers] | None = None,
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    partition_leader_epoch: int = NO_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    append_time_ms: int | None = None,
) -> bytearray:
    """A batch of at least one record, at consecutive offsets from ``base_offset``.

    ``timestamps`` and ``headers`` as in ``loops.encode_records``. ``append_time_ms`` is the batch's timestamp
    under LOG_APPEND_TIME, and required then. InvalidRecordError names the record that cannot be encoded.
    Cost: the codec, plus 0.04 µs per record and 1 µs compiled, or 0.4 µs per record and 5 µs plain.
    """
    if not values:
        raise InvalidRecordError("a batch needs at least one record")
    attributes = codec | _type_bit(timestamp_type) | (TRANSACTIONAL_BIT if transactional else 0)
    if timestamp_type is not TimestampType.LOG_APPEND_TIME:
        append_time_ms = None
    elif append_time_ms is None:
        raise UsageError("log append time needs append_time_ms")
    if codec is Codec.NONE:
        batch = loops.encode_batch(
            keys,
            values,
            timestamps,
            headers,
            base_offset,
            partition_leader_epoch,
            attributes,
            append_time_ms,
            producer_id,
            producer_epoch,
            base_sequence,
        )
        if batch is not None and len(batch) <= MAX_BATCH_BYTES:
            return batch
    base_timestamp_ms, max_timestamp_ms = _timestamp_bounds(timestamps)
    reserve_bytes = 0 if codec else HEADER_BYTES
    records = loops.encode_records(
        keys, values, timestamps, headers, base_timestamp_ms, reserve_bytes=reserve_bytes
    )
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(values) - 1,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms if append_time_ms is None else append_time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(values),
    )
    return _pack_batch(header, records, level)


def _timestamp_bounds(timestamps: Sequence[int] | int) -> tuple[int, int]:
    """First and largest. For timestamps that are not ints, returns values that the encoder will refuse with
    its own error."""
    if isinstance(timestamps, int):
        return timestamps, timestamps
    try:
        first, largest = timestamps[0], max(timestamps)
    except (TypeError, LookupError):
        first = largest = NO_TIMESTAMP_MS
    if not isinstance(first, int) or not isinstance(largest, int):
        check_arguments([None] * len(timestamps), [None] * len(timestamps), timestamps, None, None)
    return first, largest


def _type_bit(timestamp_type: TimestampType) -> int:
    return TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0


def seal_batch(header: BatchHeader, records: Bytes) -> bytearray:
    """The batch of a header and its (compressed) records section; length and checksum are computed here."""
    batch = bytearray(HEADER_BYTES)
    batch += records
    return _seal_in_place(header, batch)


def _pack_batch(header: BatchHeader, records: bytearray, level: int | None) -> bytearray:
    """The batch of a header and its records, compressed as the header says. Records that no reader would
    decompress (MAX_DECOMPRESSED_BYTES) stay as they are. Without a codec, ``records`` has room for the header
    in front."""
    codec = header.codec
    if codec is Codec.NONE:
        return _seal_in_place(header, records)
    if len(records) > MAX_DECOMPRESSED_BYTES:
        return seal_batch(header._replace(attributes=header.attributes & ~CODEC_MASK), records)
    return seal_batch(header, compress(codec, records, level))


def _seal_in_place(header: BatchHeader, batch: bytearray) -> bytearray:
    """Like :func:`seal_batch` for a section that already has room for the header in front of it."""
    size_bytes = len(batch)
    if size_bytes > MAX_BATCH_BYTES:
        raise RecordTooLargeError(
            f"a batch of {size_bytes} bytes passes the format's limit of {MAX_BATCH_BYTES}"
        )
    try:
        BATCH_HEADER.pack_into(batch, 0, *header._replace(batch_length=size_bytes - LENGTH_OVERHEAD_BYTES))
    except struct.error as error:
        raise UsageError(f"a batch header cannot hold {header}: {error}") from error
    _seal(batch, 0, size_bytes)
    return batch


def _seal(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    """Compute the batch's checksum and put it into the header."""
    with memoryview(buffer) as view, view[position + CRC_FROM : position + size_bytes] as covered:
        crc = checksum.crc32c(covered)
    _UINT32.pack_into(buffer, position + CRC_POSITION, crc)


def rebase_batch(
    buffer: bytearray | memoryview, position: int, base_offset: int, partition_leader_epoch: int
) -> None:
    """Give a batch of magic 2 its place in the log: 12 bytes that no checksum covers."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LEADER_EPOCH_POSITION, partition_leader_epoch)


def reseal_batch(batch: NewBatch, header: BatchHeader) -> BatchHeader:
    """Write a changed header in front of a batch's records, in place; returns it with the new checksum. Cost:
    the checksum, and 2 µs."""
    BATCH_HEADER.pack_into(batch, 0, *header)
    _seal(batch, 0, len(batch))
    return decode_header(batch)


def stamp_producer(batch: NewBatch, producer: ProducerIdentity) -> None:
    """Put a producer's id, epoch and sequence into the header of a batch of magic 2, and whether it is of a
    transaction. Cost: the checksum, and 1 µs."""
    producer_id, producer_epoch, base_sequence, is_transactional = producer
    _PRODUCER.pack_into(batch, PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    low = batch[ATTRIBUTES_POSITION + 1] & ~TRANSACTIONAL_BIT
    batch[ATTRIBUTES_POSITION + 1] = low | TRANSACTIONAL_BIT if is_transactional else low
    _seal(batch, 0, len(batch))


def place_batch(batch: NewBatch, base_offset: int, partition_leader_epoch: int) -> BatchHeader:
    """Give a batch of magic 2 that was encoded here its place in a log; returns its header."""
    _PLACE.pack_into(batch, 0, base_offset, len(batch) - LENGTH_OVERHEAD_BYTES, partition_leader_epoch)
    header: BatchHeader = tuple.__new__(
        BatchHeader, BATCH_HEADER.unpack_from(batch)
    )  # half the cost of _make
    return header


def stamp_batch(
    buffer: bytearray | memoryview,
    position: int,
    header: BatchHeader,
    *,
    timestamp_type: TimestampType,
    max_timestamp_ms: int,
) -> bool:
    """Set timestamp type and largest timestamp of a batch of magic 2, and the checksum if either changed.

    Returns whether they changed. ``header`` is the batch's header before the call.
    """
    if header.magic != MAGIC:
        raise UsageError(f"a batch of magic {header.magic} is never changed in place")
    if header.timestamp_type is timestamp_type and header.max_timestamp_ms == max_timestamp_ms:
        return False
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT | _type_bit(timestamp_type)
    _INT16.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    _seal(buffer, position, header.size_bytes)
    return True


def decode_batch(
    buffer: Bytes,
    position: int = 0,
    header: BatchHeader | None = None,
    *,
    limit_bytes: int = MAX_DECOMPRESSED_BYTES,
    on_demand: bool = False,
    partition: TopicPartition | None = None,
) -> list[Record]:
    """The records of the batch at ``position``, of any magic. They get topic and number of ``partition``.

    Pass ``header`` if you have decoded it. ``on_demand`` as in ``loops.decode_records``, for batches that are
    not compressed. Does not verify the batch's checksum (:func:`check_batch` does). CorruptionError, with the
    batch's offsets, for records that do not decode or that decompress to more than ``limit_bytes``. Cost:
    compiled 0.05 µs per record of 100 bytes and 0.2 µs, plain 0.85 µs per record.
    """
    if header is None:
        records = loops.decode_batch(buffer, position, on_demand, partition)
        if records is not None:
            return records
        header = decode_header(buffer, position)
    end = position + header.size_bytes
    if position < 0 or end > len(buffer):
        raise header.damage(f"the batch of {header.size_bytes} bytes is cut short", position)
    try:
        if header.magic < MAGIC:
            records = legacy.decode_entry(buffer, position, header, limit_bytes=limit_bytes)
            return place_records(records, partition, header.timestamp_type, NO_EPOCH)
        return _decode_records(buffer, position, end, header, limit_bytes, on_demand, partition)
    except CorruptionError as fault:
        fault.base_offset, fault.last_offset = header.base_offset, header.last_offset
        raise


def _decode_records(
    buffer: Bytes,
    position: int,
    end: int,
    header: BatchHeader,
    limit_bytes: int,
    on_demand: bool,
    partition: TopicPartition | None,
) -> list[Record]:
    if not header.attributes & CODEC_MASK:
        return decode_section(buffer, position + HEADER_BYTES, end, header, partition, on_demand=on_demand)
    codec = header.codec
    try:
        section = decompress(codec, memoryview(buffer)[position + HEADER_BYTES : end], limit_bytes)
        return decode_section(section, 0, len(section), header, partition)
    except CorruptionError as fault:  # its position is in the decompressed bytes, not in the file
        reason = (
            fault.reason if fault.position is None else f"{fault.reason}, at {fault.position} decompressed"
        )
        raise header.damage(reason, position) from fault


def records_section(buffer: Bytes, position: int, header: BatchHeader) -> tuple[Bytes, int, int]:
    """The records of a batch of magic 2, decompressed: a buffer, and where in it they begin and end.

    Raises:
        CorruptionError: they do not decompress.
    """
    start, end = position + HEADER_BYTES, position + header.size_bytes
    if not header.attributes & CODEC_MASK:
        return buffer, start, end
    section = decompress(header.codec, memoryview(buffer)[start:end], MAX_DECOMPRESSED_BYTES)
    return section, 0, len(section)


def inspect_records(
    buffer: Bytes, position: int, header: BatchHeader, *, limit_bytes: int = MAX_DECOMPRESSED_BYTES
) -> RecordFacts:
    """Check all records of the batch of magic 2 at ``position`` as :func:`decode_batch` does, without making
    record objects. Returns facts about them, with timestamps as written even under log append time.

    CorruptionError as for :func:`decode_batch`. Cost: compiled 0.01 µs per record of 100 bytes and 0.5 µs,
    plain that of decoding; plus decompressing.
    """
    start, end = position + HEADER_BYTES, position + header.size_bytes
    if position < 0 or end > len(buffer):
        raise header.damage(f"the batch of {header.size_bytes} bytes is cut short", position)
    section = buffer
    try:
        if header.attributes & CODEC_MASK:
            section = decompress(header.codec, memoryview(buffer)[start:end], limit_bytes)
            start, end = 0, len(section)
        return loops.inspect_records(
            section, start, end, header.record_count, header.last_offset_delta, header.base_timestamp_ms
        )
    except CorruptionError:
        decode_batch(buffer, position, header, limit_bytes=limit_bytes)  # raises with the batch's offsets
        raise


def newest_timestamp(
    buffer: Bytes, position: int, header: BatchHeader, *, limit_bytes: int = MAX_DECOMPRESSED_BYTES
) -> int:
    """Check all records of the batch at ``position``, of any magic, as :func:`decode_batch` does, and return
    the largest of their timestamps as written; NO_TIMESTAMP_MS for a batch without records.

    CorruptionError and cost as for :func:`inspect_records`; for magic 0 and 1 the cost of decoding.
    """
    if header.magic == MAGIC:
        return inspect_records(buffer, position, header, limit_bytes=limit_bytes).newest_ms
    as_written = header._replace(attributes=header.attributes & ~TIMESTAMP_TYPE_BIT)
    records = decode_batch(buffer, position, as_written, limit_bytes=limit_bytes)
    return max((record.timestamp_ms for record in records), default=NO_TIMESTAMP_MS)


def decode_range(
    buffer: Bytes,
    position: int,
    header: BatchHeader,
    start: int,
    stop: int,
    *,
    partition: TopicPartition | None = None,
) -> list[Record]:
    """The records with offsets in ``[start, stop)`` of the batch at ``position``. Like :func:`decode_batch`,
    but skips records outside the range by their sizes if the batch has no gaps."""
    first = max(start - header.base_offset, 0)
    count = min(stop - header.base_offset, header.record_count) - first
    if header.magic == MAGIC and header.record_count == header.last_offset_delta + 1 and count > 0:
        records = _decode_some(buffer, position, header, first, count, partition)
        if records is not None:
            return records
    records = decode_batch(buffer, position, header, partition=partition)
    return [record for record in records if start <= record.offset < stop]


def _decode_some(
    buffer: Bytes,
    position: int,
    header: BatchHeader,
    first: int,
    count: int,
    partition: TopicPartition | None,
) -> list[Record] | None:
    """Records number ``first`` to ``first + count - 1``; None if anything is unusual."""
    if header.codec is Codec.NONE:
        section, at, end = buffer, position + HEADER_BYTES, position + header.size_bytes
    else:
        packed = memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes]
        section, at = decompress(header.codec, packed, MAX_DECOMPRESSED_BYTES), 0
        end = len(section)
    try:
        at = loops.skip_records(section, at, first)
        after = loops.skip_records(section, at, count) if at >= 0 else -1
        if not 0 <= at < after <= end:
            return None
        records = decode_section(section, at, after, header._replace(record_count=count), partition)
    except (IndexError, CorruptionError):
        return None
    is_right = records[0].offset == header.base_offset + first and len(records) == count
    return records if is_right and records[-1].offset == header.base_offset + first + count - 1 else None


def decode_section(
    buffer: Bytes,
    start: int,
    end: int,
    header: BatchHeader,
    partition: TopicPartition | None = None,
    *,
    on_demand: bool = False,
) -> list[Record]:
    """The records of a batch of magic 2, not compressed, that fill buffer[start:end]: calls
    ``loops.decode_records`` with the values of the header."""
    is_append_time = header.attributes & TIMESTAMP_TYPE_BIT
    return loops.decode_records(
        buffer,
        start,
        end,
        header.record_count,
        header.base_offset,
        header.base_timestamp_ms,
        header.max_timestamp_ms if is_append_time else None,
        last_offset_delta=header.last_offset_delta,
        on_demand=on_demand,
        leader_epoch=header.partition_leader_epoch,
        partition=partition,
    )


def encode_records_batch(
    records: Sequence[Record],
    *,
    like: BatchHeader,
    codec: Codec | None = None,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """The records, at their own offsets, in a batch that is otherwise the one of ``like``.

    Keeps base offset, last offset delta, producer fields, base sequence, leader epoch, timestamp type, and
    the transactional and control bits; the codec too unless another is given. ``delete_horizon_ms`` is set if
    the batch has none yet; an existing one is never moved (KIP-534). Without records the result is the empty
    batch, only a header, that compaction keeps to remember a producer or an offset. A ``like`` of magic 0 or
    1 becomes magic 2 and keeps its last offset; it needs at least one record. InvalidRecordError for offsets
    that do not rise or lie outside of ``like``.
    """
    if like.magic != MAGIC:
        like = _modern_header(like, records)
    if not records:
        return seal_batch(_emptied_header(like), b"")
    if codec is None or like.is_control:  # a control batch is never compressed
        codec = like.codec
    attributes = like.attributes & ~CODEC_MASK | codec
    horizon_ms = like.delete_horizon_ms if like.has_delete_horizon else delete_horizon_ms
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
    offsets, timestamps, keys, values, headers = zip(*records, strict=True)
    _check_offsets(offsets, like)
    base_timestamp_ms = timestamps[0] if horizon_ms is None else horizon_ms
    section = loops.encode_records(
        keys,
        values,
        timestamps,
        headers if any(headers) else None,
        base_timestamp_ms,
        [offset - like.base_offset for offset in offsets],
        reserve_bytes=0 if codec else HEADER_BYTES,
    )
    header = like._replace(
        attributes=attributes,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max(timestamps),
        record_count=len(records),
    )
    return _pack_batch(header, section, level)


def keep_records(
    section: Bytes, position: int, end: int, stays: bytes, *, like: BatchHeader, level: int | None = None
) -> bytearray:
    """The batch of ``like``, magic 2, with only the records for which ``stays`` has a 1; others have a 0. At
    least one record must stay. ``section[position:end]`` has all its records, not compressed.

    The records keep their bytes. In the header only size, count, largest timestamp and checksum change; the
    base timestamp stays, even if its record is gone. CorruptionError for records that do not decode. Cost:
    compiled 0.02 µs per record and the copying, plain 1 µs per record; plus compressing.
    """
    codec = like.codec
    kept, newest_ms = loops.keep_records(
        section, position, end, stays, like.base_timestamp_ms, 0 if codec else HEADER_BYTES
    )
    header = like._replace(
        max_timestamp_ms=like.max_timestamp_ms if like.attributes & TIMESTAMP_TYPE_BIT else newest_ms,
        record_count=stays.count(1),
    )
    return _pack_batch(header, kept, level)


def _emptied_header(like: BatchHeader) -> BatchHeader:
    return like._replace(
        attributes=like.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
        base_timestamp_ms=NO_TIMESTAMP_MS,
        record_count=0,
    )


def _modern_header(like: BatchHeader, records: Sequence[Record]) -> BatchHeader:
    """The magic 2 header for a legacy entry. A wrapper has the offset of its last record, magic 2 that of the
    first."""
    if not records:
        raise UsageError(f"an entry of magic {like.magic} cannot be kept without records")
    base_offset = records[0].offset
    return like._replace(
        magic=MAGIC, base_offset=base_offset, last_offset_delta=like.last_offset - base_offset
    )


def _check_offsets(offsets: Sequence[int], like: BatchHeader) -> None:
    if offsets[0] < like.base_offset or offsets[-1] > like.last_offset:
        raise InvalidRecordError(
            f"records {offsets[0]} to {offsets[-1]} not in offsets {like.base_offset} to {like.last_offset}"
        )
