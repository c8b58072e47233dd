"""Adopts batches that another process has encoded by the topic's rules: checks them and makes them this log's
own.

The other process had no log, so its batches have no offsets, no leader epoch and no producer. They are
checked here by header and checksum. Records are not decoded, so the encoding process must check what only the
records show (keys of a compacted topic, single timestamps). This module knows no locks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from logstore.config import TopicConfig
from logstore.errors import CorruptionError, InvalidRecordError, UsageError
from logstore.files import Files
from logstore.format.batch import NewBatch, check_batch, decode_header, reseal_batch
from logstore.format.compression import Codec
from logstore.format.header import CODEC_MASK, HEADER_BYTES, MAGIC, TIMESTAMP_TYPE_BIT, BatchHeader
from logstore.model import ProducerIdentity
from logstore.partition.encoding.planning import (
    check_batch_size,
    check_timestamps,
    target_codec,
)
from logstore.partition.encoding.row_encoder import plan_appends
from logstore.partition.segments.planned import PlannedAppend

_SEQUENCE_COUNT: Final = 2**31
_KNOWN_BITS: Final = CODEC_MASK | TIMESTAMP_TYPE_BIT
"""The attribute bits that an encoder may set. It makes no transactional and no control batches."""


def check_adopted(
    batches: Sequence[NewBatch], config: TopicConfig, now_ms: int, *, by_rules: bool = True
) -> list[BatchHeader]:
    """Check that encoded batches are whole and sound, and return their headers. With ``by_rules`` the topic's
    settings are checked too.

    Cost: one checksum, and 3 µs per batch.

    Raises:
        UsageError: a buffer cannot be written to.
        CorruptionError: the checksum or the structure of a batch is wrong.
        InvalidRecordError, InvalidTimestampError, RecordTooLargeError: an encoder with these rules would not
            make such a batch; the message names its number and what is wrong.
    """
    headers = []
    for number, batch in enumerate(batches):
        try:
            header = _header_of(number, batch)
        except ValueError as error:
            raise UsageError(f"batch {number} cannot be read: {error}") from None
        check_batch(batch, 0, header)
        fault = _fault(header, len(batch))
        if fault is None and by_rules:
            fault = _rule_fault(header, config)
        if fault is not None:
            raise InvalidRecordError(f"batch {number}: {fault}")
        if by_rules:
            check_batch_size(len(batch), config)
            check_timestamps((header.base_timestamp_ms, header.max_timestamp_ms), config, now_ms)
        headers.append(header)
    return headers


def _header_of(number: int, batch: NewBatch) -> BatchHeader:
    if not isinstance(batch, bytearray | memoryview) or (isinstance(batch, memoryview) and batch.readonly):
        raise UsageError(
            f"batch {number} is a {type(batch).__name__} that cannot be written to; "
            "it must be a bytearray or a writable memoryview"
        )
    header = decode_header(batch)
    if header.magic != MAGIC:
        raise InvalidRecordError(f"batch {number}: magic {header.magic}; it must be {MAGIC}")
    if header.size_bytes != len(batch):
        raise header.damage(f"batch {number} says {header.size_bytes} bytes and has {len(batch)}", 0)
    return header


def _fault(header: BatchHeader, size_bytes: int) -> str | None:
    """What is wrong with the batch of this size under any settings, or None."""
    if header.base_offset != 0:
        return f"base offset {header.base_offset}; it must be 0"
    if header.attributes & ~_KNOWN_BITS:
        return f"attributes {header.attributes:#06x} have more than codec and timestamp type"
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        return (
            f"record count {header.record_count} does not match last offset delta {header.last_offset_delta}"
        )
    if (header.producer_id, header.producer_epoch, header.base_sequence) != (-1, -1, -1):
        return f"it has a producer already, {header.producer_id}"
    if size_bytes == HEADER_BYTES:
        return "it has no bytes of records"
    if header.base_timestamp_ms < -1 or header.max_timestamp_ms < -1:
        return f"timestamps {header.base_timestamp_ms} and {header.max_timestamp_ms} below -1"
    return None


def _rule_fault(header: BatchHeader, config: TopicConfig) -> str | None:
    """What is wrong with the batch under these settings, or None."""
    codec = header.codec
    if codec not in (target_codec(config, codec), Codec.NONE):  # data that does not compress stays plain
        return f"codec {codec.name.lower()} where compression_type is {config.compression_type}"
    is_append_time = bool(header.attributes & TIMESTAMP_TYPE_BIT)
    if is_append_time != (config.message_timestamp_type == "LogAppendTime"):
        return f"another timestamp type than message_timestamp_type {config.message_timestamp_type}"
    return None


def place_adopted(
    batches: Sequence[NewBatch],
    headers: Sequence[BatchHeader],
    *,
    config: TopicConfig,
    producer: ProducerIdentity,
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> Iterator[PlannedAppend]:
    """Give checked batches consecutive offsets and sequences, and the append time if the topic uses it, in
    groups that each fit into one segment. They are changed in place and sealed again.

    Cost: one checksum, and 3 µs per batch.
    """
    appends_time = config.message_timestamp_type == "LogAppendTime"
    checked = iter(headers)
    sequence = producer.base_sequence

    def place(batch: NewBatch, offset: int) -> BatchHeader:
        nonlocal sequence
        header = next(checked)
        attributes = header.attributes & ~TIMESTAMP_TYPE_BIT
        changed = header._replace(
            base_offset=offset,
            partition_leader_epoch=leader_epoch,
            attributes=attributes | TIMESTAMP_TYPE_BIT if appends_time else attributes,
            max_timestamp_ms=now_ms if appends_time else header.max_timestamp_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
        )
        sequence = (sequence + header.record_count) % _SEQUENCE_COUNT
        return reseal_batch(batch, changed)

    return plan_appends(batches, base_offset, config.segment_bytes, place)


def headers_of_file(files: Files, path: str) -> list[BatchHeader]:
    """The headers of a file of adopted batches, at least one. Cost: a read of 61 bytes per batch.

    Raises:
        StorageError: the file cannot be read.
        CorruptionError: the file does not consist of whole batches.
        InvalidRecordError: a batch is not one that an encoder makes and an idempotent producer sends, or
            comes from another producer than the first.
    """
    headers: list[BatchHeader] = []
    file = files.open(path)
    try:
        position, end = 0, file.size_bytes()
        while position < end or not headers:
            header = decode_header(file.read_at(position, HEADER_BYTES))
            if header.magic != MAGIC or not header.has_producer or header.attributes & ~_KNOWN_BITS:
                raise InvalidRecordError(f"{path}: the batch at {position} has no idempotent producer")
            if headers and header.producer_id != headers[0].producer_id:
                raise InvalidRecordError(f"{path}: the batch at {position} is from another producer")
            headers.append(header)
            position += header.size_bytes
    except CorruptionError as error:
        raise CorruptionError(error.reason, path=path, position=position) from None
    finally:
        file.close()
    if position != end:
        raise CorruptionError("ends inside a batch", path=path, position=position)
    return headers
