"""From columns of new records to batches in their place: what a leader does with records appended directly.

Encoding needs no lock and no offset; placing gives each batch its base offset and epoch, 12 bytes that the
CRC does not cover.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logstore.config import TopicConfig
from logstore.errors import InvalidRecordError
from logstore.format.batch import encode_batch, rebase_batch
from logstore.format.compression import Codec
from logstore.format.header import BatchHeader, decode_header
from logstore.model import ProducerIdentity, TimestampType
from logstore.partition.columns import Columns
from logstore.partition.validate import (
    PlannedAppend,
    check_batch_size,
    compression_level,
    largest_batch_bytes,
    target_codec,
)

_MAX_INT64 = 2**63 - 1
_MAX_INT32 = 2**31 - 1
_MAX_INT16 = 2**15 - 1


def check_producer(producer: ProducerIdentity) -> None:
    """
    Raises:
        InvalidRecordError: a field is not a number of its range; names it.
    """
    for name, value, limit in (
        ("producer_id", producer.producer_id, _MAX_INT64),
        ("producer_epoch", producer.producer_epoch, _MAX_INT16),
        ("base_sequence", producer.base_sequence, _MAX_INT32),
    ):
        if type(value) is not int or not 0 <= value <= limit:
            raise InvalidRecordError(f"{name} is {value!r}; it must be a whole number from 0 to {limit}")


def encode_columns(
    parts: Sequence[Columns], config: TopicConfig, now_ms: int, producer: ProducerIdentity | None = None
) -> list[bytearray]:
    """One batch for each part, at base offset 0.

    Raises:
        InvalidRecordError: a record cannot be encoded; names it.
        RecordTooLargeError: a batch is larger than ``max_message_bytes``, or than a segment.
    """
    codec = target_codec(config, Codec.NONE)
    batches = [_encode(part, codec, config, now_ms, producer) for part in parts]
    for batch in batches:
        check_batch_size(len(batch), config)
    return batches


def _encode(
    part: Columns, codec: Codec, config: TopicConfig, now_ms: int, producer: ProducerIdentity | None
) -> bytearray:
    appends_time = config.message_timestamp_type == "LogAppendTime"
    identity = producer or ProducerIdentity(-1, -1, -1)
    batch = encode_batch(
        part.keys,
        part.values,
        now_ms if appends_time else part.timestamps,
        part.headers,
        codec=codec,
        level=compression_level(config, codec),
        timestamp_type=TimestampType.LOG_APPEND_TIME if appends_time else TimestampType.CREATE_TIME,
        append_time_ms=now_ms if appends_time else None,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=identity.base_sequence,
        transactional=identity.transactional,
    )
    if codec is not Codec.NONE and len(batch) > largest_batch_bytes(config):
        # Data that does not compress grows a little; plain it may still fit.
        return _encode(part, Codec.NONE, config, now_ms, producer)
    return batch


def place_batches(
    batches: Sequence[bytearray], base_offset: int, leader_epoch: int, segment_bytes: int
) -> Iterator[PlannedAppend]:
    """Give the batches consecutive offsets, in groups that each fit into one segment."""
    group: list[bytearray] = []
    headers: list[BatchHeader] = []
    size = 0
    for batch in batches:
        if group and size + len(batch) > segment_bytes:
            yield PlannedAppend(group, headers)
            group, headers, size = [], [], 0
        rebase_batch(batch, 0, base_offset, leader_epoch)
        header = decode_header(batch)
        group.append(batch)
        headers.append(header)
        size += len(batch)
        base_offset = header.next_offset
    if group:
        yield PlannedAppend(group, headers)
