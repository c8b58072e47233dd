"""What a segment file shows of a batch: the fields of its header, and whether they can be trusted."""

from __future__ import annotations

from typing import NamedTuple

from logstore.errors import CorruptionError
from logstore.format.compression import Codec
from logstore.format.header import CODEC_MASK, BatchHeader, check_batch
from logstore.model import Bytes, TimestampType


class SegmentBatch(NamedTuple):
    """One batch of a segment file, as its header describes it. As on disk, -1 stands for what the batch does
    not have.

    ``pandas.DataFrame(segment.batches())`` makes a table of them.
    """

    base_offset: int
    """The first record's offset; for a compressed batch before magic 2, the last record's."""
    last_offset: int
    record_count: int
    """-1 for a compressed batch before magic 2: only decompressing it would tell."""
    position: int
    """Where the batch begins in the file, in bytes."""
    size_bytes: int
    magic: int
    """2; 1 before Kafka 0.11, 0 before Kafka 0.10."""
    codec: str
    """none, gzip, snappy, lz4 or zstd; in a damaged batch, the unknown codec's number."""
    base_timestamp_ms: int
    max_timestamp_ms: int
    is_log_append_time: bool
    """Whether the broker set the timestamps, rather than the producer."""
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    """Whether it holds a transaction marker, which readers do not see."""
    delete_horizon_ms: int
    """When compaction may drop its tombstones and markers (KIP-534)."""
    damage: str
    """What is wrong with its checksum or its structure; empty if nothing is."""

    @property
    def is_sound(self) -> bool:
        """Whether the checksum is right and the header is possible. The checksum does not cover the base
        offset, the size and the leader epoch."""
        return not self.damage


def batch_in(buffer: Bytes, at: int, header: BatchHeader, position: int) -> SegmentBatch:
    """The batch with this header that is whole in a buffer, and begins at ``position`` of the file."""
    damage = ""
    try:
        check_batch(buffer, at, header)
    except CorruptionError as error:
        damage = error.reason
    horizon_ms = header.delete_horizon_ms
    return SegmentBatch(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        position=position,
        size_bytes=header.size_bytes,
        magic=header.magic,
        codec=_codec_name(header.attributes & CODEC_MASK),
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        is_log_append_time=header.timestamp_type is TimestampType.LOG_APPEND_TIME,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=-1 if horizon_ms is None else horizon_ms,
        damage=damage,
    )


def _codec_name(code: int) -> str:
    try:
        return Codec(code).name.lower()
    except ValueError:
        return str(code)
