"""What a cleaner has left in the files of a partition, Kafka's or ours: read batch by batch, without a log.

Two cleaners that go by the same rules leave the same records and markers, and the same batches emptied for
their producers. How small batches are joined, and which timestamp a batch's deltas count from, is a cleaner's
own affair; so is when its clock stood, which shows in the delete horizons alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from logstore.format.batch import decode_batch
from logstore.format.control import ControlType, decode_control_record
from logstore.format.header import BatchHeader, check_batch, decode_header
from logstore.format.index import decode_aborted_transactions
from logstore.model import AbortedTransaction
from tests.interop.clients import SeenRecord
from tests.interop.ours import as_seen, type_name


class LeftMarker(NamedTuple):
    """The end of a transaction."""

    offset: int
    kind: ControlType
    producer_id: int
    producer_epoch: int
    timestamp_ms: int
    delete_horizon_ms: int | None


class LeftTombstone(NamedTuple):
    """A record without a value, and from when on it may go."""

    offset: int
    delete_horizon_ms: int | None


class BatchFacts(NamedTuple):
    """All that a batch's header says but its size, its checksum, its base timestamp and its horizon."""

    base_offset: int
    last_offset: int
    record_count: int
    attributes: int
    leader_epoch: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


@dataclass(frozen=True, kw_only=True)
class Left:
    """Everything in a partition's segments, in order."""

    base_offsets: tuple[int, ...]
    """Of the segments."""
    records: tuple[SeenRecord, ...]
    tombstones: tuple[LeftTombstone, ...]
    markers: tuple[LeftMarker, ...]
    producers: tuple[BatchFacts, ...]
    """The batches that have a producer, empty ones among them: nobody joins those."""
    aborted: tuple[tuple[int, AbortedTransaction], ...]
    """With the base offset of the segment."""

    @property
    def emptied(self) -> tuple[BatchFacts, ...]:
        return tuple(batch for batch in self.producers if not batch.record_count)

    @property
    def horizons_ms(self) -> set[int]:
        every = [*self.tombstones, *self.markers]
        return {each.delete_horizon_ms for each in every if each.delete_horizon_ms is not None}


def left_in(directory: Path) -> Left:
    """Read the segments; every batch's checksum is checked."""
    records: list[SeenRecord] = []
    tombstones: list[LeftTombstone] = []
    markers: list[LeftMarker] = []
    producers: list[BatchFacts] = []
    aborted: list[tuple[int, AbortedTransaction]] = []
    logs = sorted(directory.glob("*.log"))
    for path in logs:
        for data, header in _batches(path.read_bytes()):
            if header.has_producer:
                producers.append(_facts(header))
            if header.is_control:
                markers += _markers(data, header)
                continue
            name = type_name(header.timestamp_type)
            for record in decode_batch(data, 0, header) if header.record_count else ():
                records.append(as_seen(record, name, header.partition_leader_epoch))
                if record.value is None:
                    tombstones.append(LeftTombstone(record.offset, header.delete_horizon_ms))
        index = path.with_suffix(".txnindex")
        if index.exists():
            base_offset = int(path.stem)
            entries = decode_aborted_transactions(index.read_bytes(), base_offset)
            aborted += [(base_offset, entry) for entry in entries]
    return Left(
        base_offsets=tuple(int(path.stem) for path in logs),
        records=tuple(records),
        tombstones=tuple(tombstones),
        markers=tuple(markers),
        producers=tuple(producers),
        aborted=tuple(aborted),
    )


def _batches(data: bytes) -> list[tuple[bytes, BatchHeader]]:
    found = []
    position = 0
    while position < len(data):
        header = decode_header(data, position)
        check_batch(data, position, header)
        end = position + header.size_bytes
        found.append((data[position:end], header))
        position = end
    return found


def _facts(header: BatchHeader) -> BatchFacts:
    return BatchFacts(
        header.base_offset,
        header.last_offset,
        header.record_count,
        header.attributes,
        header.partition_leader_epoch,
        header.max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


def _markers(data: bytes, header: BatchHeader) -> list[LeftMarker]:
    return [
        LeftMarker(
            record.offset,
            decode_control_record(record).control_type,
            header.producer_id,
            header.producer_epoch,
            record.timestamp_ms,
            header.delete_horizon_ms,
        )
        for record in (decode_batch(data, 0, header) if header.record_count else ())
    ]
