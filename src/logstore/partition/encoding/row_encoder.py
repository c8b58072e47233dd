"""Encodes new records into batches and places them, as a leader does with records appended directly.

Encoding needs no lock and no offset; placing gives each batch its base offset and epoch, 12 bytes that the
CRC does not cover. If the compiled loops are in use, ordinary rows are encoded as they are. All other rows go
through columns, whose checks say what is wrong. Both make the same batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from logstore.arguments import shown
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import InvalidRecordError
from logstore.format import loops
from logstore.format.batch import NewBatch, encode_batch, place_batch, seal_batch
from logstore.format.compression import MAX_DECOMPRESSED_BYTES, Codec, compress
from logstore.format.gathered import RowRules
from logstore.format.header import (
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    decode_header,
)
from logstore.format.loops import GatheredRows, encode_rows
from logstore.model import ProducerIdentity, TimestampType
from logstore.partition.encoding.planning import (
    check_batch_size,
    check_keys,
    check_timestamps,
    compression_level,
    largest_batch_bytes,
    target_codec,
)
from logstore.partition.encoding.rows import Columns, columns_of, columns_of_gathered, split_by_size
from logstore.partition.segments.planned import PlannedAppend

if TYPE_CHECKING:
    from logstore.format.column_buffers import Chunk

_MAX_INT64 = 2**63 - 1
_MAX_INT32 = 2**31 - 1
_MAX_INT16 = 2**15 - 1


def check_producer(producer: ProducerIdentity) -> None:
    """
    Raises:
        InvalidRecordError: it is something else, or a field is not a number in its range; the message names
            it.
    """
    if (
        type(producer) is ProducerIdentity
        and type(producer.producer_id) is type(producer.producer_epoch) is type(producer.base_sequence) is int
        and 0 <= producer.producer_id <= _MAX_INT64
        and 0 <= producer.producer_epoch <= _MAX_INT16
        and 0 <= producer.base_sequence <= _MAX_INT32
    ):
        return
    if not isinstance(producer, ProducerIdentity):
        raise InvalidRecordError(f"producer is a {type(producer).__name__}; it must be a ProducerIdentity")
    for name, value, limit in (
        ("producer_id", producer.producer_id, _MAX_INT64),
        ("producer_epoch", producer.producer_epoch, _MAX_INT16),
        ("base_sequence", producer.base_sequence, _MAX_INT32),
    ):
        if type(value) is not int or not 0 <= value <= limit:
            raise InvalidRecordError(f"{name} is {shown(value)}; it must be a whole number from 0 to {limit}")


def check_end_marker(producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
    """
    Raises:
        InvalidRecordError: a field is not a number in its range; the message names it.
    """
    if (
        type(producer_id) is type(producer_epoch) is type(coordinator_epoch) is int
        and 0 <= producer_id <= _MAX_INT64
        and 0 <= producer_epoch <= _MAX_INT16
        and 0 <= coordinator_epoch <= _MAX_INT32
    ):
        return
    check_producer(ProducerIdentity(producer_id, producer_epoch, 0))
    raise InvalidRecordError(
        f"coordinator_epoch is {shown(coordinator_epoch)}; it must be a whole number from 0 to {_MAX_INT32}"
    )


class RowEncoder:
    """Makes batches from rows, by one configuration. Never changes, so threads encode in parallel."""

    __slots__ = ("_batch_bytes", "_codec", "_largest_bytes", "config", "max_record_bytes", "rules")

    def __init__(self, store_config: StoreConfig, config: TopicConfig) -> None:
        self.config = config
        """The settings of the topic."""
        self._codec = target_codec(config, Codec.NONE)
        self._largest_bytes = largest_batch_bytes(config)
        self.max_record_bytes = self._largest_bytes - HEADER_BYTES
        """A record that may need more bytes than this might not fit into any batch."""
        self._batch_bytes = min(store_config.batch_bytes, self._largest_bytes)
        appends_time = config.message_timestamp_type == "LogAppendTime"
        self.rules = RowRules(
            attributes=TIMESTAMP_TYPE_BIT if appends_time else 0,
            needs_keys=config.compacts,
            before_max_ms=_MAX_INT64 if appends_time else config.message_timestamp_before_max_ms,
            after_max_ms=_MAX_INT64 if appends_time else config.message_timestamp_after_max_ms,
            limit_bytes=self._batch_bytes - HEADER_BYTES,
            checks_unit=config.message_timestamp_unit_check and not appends_time,
        )

    def encode(
        self, rows: list[Any] | tuple[Any, ...], now_ms: int, producer: ProducerIdentity | None = None
    ) -> Sequence[NewBatch]:
        """The rows in batches of about ``batch_bytes`` at base offset 0; for a producer in a single batch.

        Raises:
            UsageError, InvalidRecordError, InvalidTimestampError: a row cannot be a record of this topic.
            RecordTooLargeError: a batch is larger than ``max_message_bytes``, or than a segment.
        """
        if producer is None:
            batches = encode_rows(rows, now_ms, self.rules)
        else:
            transactional = TRANSACTIONAL_BIT if producer.transactional else 0
            rules = self.rules._replace(
                attributes=self.rules.attributes | transactional, limit_bytes=_MAX_INT64
            )
            batches = encode_rows(rows, now_ms, rules, producer[:3])
        if batches is None:
            return self.encode_by_columns(rows, now_ms, producer)
        return self._finish(batches)

    def encode_by_columns(
        self, rows: list[Any] | tuple[Any, ...], now_ms: int, producer: ProducerIdentity | None
    ) -> Sequence[NewBatch]:
        """Like :meth:`encode`, for rows of any kind."""
        return self.encode_columns(columns_of(rows, now_ms), now_ms, producer)

    def encode_columns(
        self, columns: Columns, now_ms: int, producer: ProducerIdentity | None = None
    ) -> Sequence[NewBatch]:
        """Like :meth:`encode`, for rows that are columns already."""
        if not isinstance(columns.timestamps, int):
            check_timestamps(columns.timestamps, self.config, now_ms, by_unit=True)
        if self.config.compacts:
            check_keys(columns.keys)
        is_one = producer is not None and columns.record_count
        parts = [columns] if is_one else split_by_size(columns, self._batch_bytes)
        return encode_columns(parts, self.config, now_ms, producer)

    def encode_chunks(self, chunks: list[Chunk], now_ms: int) -> Sequence[NewBatch] | None:
        """Rows from Arrow buffers in batches of about ``batch_bytes``; None if any of them is not ordinary.
        They must have the keys that :attr:`rules` require.

        Raises:
            RecordTooLargeError: as :meth:`encode`.
        """
        batches = loops.encode_columns(chunks, now_ms, self.rules)
        return None if batches is None else self._finish(batches)

    def encode_gathered(self, gathered: GatheredRows, now_ms: int) -> Sequence[NewBatch]:
        """Like :meth:`encode`, for the gathered rows in one batch."""
        batch = gathered.encode(now_ms)
        if batch is None:
            return encode_columns([columns_of_gathered(gathered.rows)], self.config, now_ms)
        return self._finish([batch])

    def _finish(self, batches: Sequence[NewBatch]) -> Sequence[NewBatch]:
        if self._codec is not Codec.NONE:
            batches = [self._compress(batch) for batch in batches]
        for batch in batches:
            if len(batch) > self._largest_bytes:
                check_batch_size(len(batch), self.config)
        return batches

    def _compress(self, batch: NewBatch) -> NewBatch:
        if len(batch) - HEADER_BYTES > MAX_DECOMPRESSED_BYTES:
            return batch  # compressed, no reader would take it
        header = decode_header(batch)
        level = compression_level(self.config, self._codec)
        records = compress(self._codec, memoryview(batch)[HEADER_BYTES:], level)
        packed = seal_batch(header._replace(attributes=header.attributes | self._codec), records)
        # Compressing can make data a little larger; uncompressed it may still fit.
        return batch if len(packed) > self._largest_bytes else packed


def encode_columns(
    parts: Sequence[Columns], config: TopicConfig, now_ms: int, producer: ProducerIdentity | None = None
) -> list[bytearray]:
    """One batch for each part, at base offset 0.

    Raises:
        InvalidRecordError: a record cannot be encoded; the message names it.
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
        # Compressing can make data a little larger; uncompressed it may still fit.
        return _encode(part, Codec.NONE, config, now_ms, producer)
    return batch


def place_batches(
    batches: Sequence[NewBatch], base_offset: int, leader_epoch: int, segment_bytes: int
) -> Iterator[PlannedAppend]:
    """Give the batches consecutive offsets, in groups that each fit into one segment."""
    return plan_appends(
        batches, base_offset, segment_bytes, lambda batch, offset: place_batch(batch, offset, leader_epoch)
    )


def plan_appends(
    batches: Sequence[NewBatch],
    base_offset: int,
    segment_bytes: int,
    place: Callable[[NewBatch, int], BatchHeader],
) -> Iterator[PlannedAppend]:
    """Batches in groups that each fit into one segment; ``place`` gives each its base offset."""
    group: list[NewBatch] = []
    headers: list[BatchHeader] = []
    size = 0
    for batch in batches:
        if group and size + len(batch) > segment_bytes:
            yield PlannedAppend(group, headers)
            group, headers, size = [], [], 0
        header = place(batch, base_offset)
        group.append(batch)
        headers.append(header)
        size += len(batch)
        base_offset = header.next_offset
    if group:
        yield PlannedAppend(group, headers)
