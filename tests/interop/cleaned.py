"""What a cleaner has left in the files of a partition, Kafka's or ours, and whether both left the same.

The files are read batch by batch, without a log.

Two cleaners that go by the same rules leave the same records and markers, and the same batches emptied for
their producers. How small batches are joined, and which timestamp a batch's deltas count from, is a cleaner's
own affair; so is when its clock stood, which shows in the delete horizons alone.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

from logstore import Log, TopicConfig
from logstore.format.batch import decode_batch
from logstore.format.control import ControlType, decode_control_record
from logstore.format.header import BatchHeader, check_batch, decode_header
from logstore.format.index import decode_aborted_transactions
from logstore.model import AbortedTransaction
from logstore.testing import ManualClock
from tests.interop.cleaner_rounds import CLEANER_OFFSETS_FILE, CleanerRound
from tests.interop.clients import SeenRecord
from tests.interop.kafka import write_checkpoint
from tests.interop.ours import add_checkpoints, as_seen, type_name


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
    batches: tuple[BatchFacts, ...]
    """Those that have a producer, or no record: nobody joins them."""
    aborted: tuple[tuple[int, AbortedTransaction], ...]
    """With the base offset of the segment."""

    @property
    def emptied(self) -> tuple[BatchFacts, ...]:
        return tuple(batch for batch in self.batches if not batch.record_count)

    @property
    def horizons_ms(self) -> set[int]:
        every = [*self.tombstones, *self.markers]
        return {each.delete_horizon_ms for each in every if each.delete_horizon_ms is not None}


def left_in(directory: Path) -> Left:
    """Read the segments; every batch's checksum is checked."""
    records: list[SeenRecord] = []
    tombstones: list[LeftTombstone] = []
    markers: list[LeftMarker] = []
    batches: list[BatchFacts] = []
    aborted: list[tuple[int, AbortedTransaction]] = []
    logs = sorted(directory.glob("*.log"))
    for path in logs:
        for data, header in _split(path.read_bytes()):
            if header.has_producer or not header.record_count:
                batches.append(_facts(header))
            if header.is_control:
                markers += _markers(data, header)
                continue
            name = type_name(header.timestamp_type) if header.magic else "NoTimestampType"
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
        batches=tuple(batches),
        aborted=tuple(aborted),
    )


def _split(data: bytes) -> list[tuple[bytes, BatchHeader]]:
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


# --- comparing ------------------------------------------------------------------------------------


def check_round(round_: CleanerRound, directory: Path, *, is_legacy: bool = False) -> None:
    """Compact, in a folder, what a broker's cleaner found in a round, and compare with what it left. With
    `is_legacy` there are records of magic 0 and 1, which we keep in batches of magic 2 where others go.

    Raises AssertionError, with what only one of the two left.
    """
    theirs = left_in(round_.after)
    ours, end = _compact(round_, directory)
    if is_legacy:
        ours, theirs = _without_format(ours), _without_format(theirs)
    if end > round_.offset_after:
        theirs = _further(theirs, end)
        ours = replace(ours, tombstones=(), batches=())  # more have horizons, and fewer records
    elif end < round_.offset_after:
        raise AssertionError(f"{round_.topic}: clean up to {end}, theirs up to {round_.offset_after}")
    for field in fields(Left):
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        if one != other:
            only_ours = [each for each in one if each not in other]
            only_theirs = [each for each in other if each not in one]
            raise AssertionError(f"{round_.topic}, {field.name}: {only_ours=}, {only_theirs=}")


def _without_format(left: Left) -> Left:
    """Without what a record of magic 0 or 1 has not: a horizon, a timestamp and its type, a leader epoch."""
    records = tuple(each._replace(timestamp_type="", leader_epoch=-1) for each in left.records)
    return replace(left, records=records, tombstones=())


def _further(left: Left, end: int) -> Left:
    """Kafka's cleaner stops in front of the segment that has the last stable offset, and we at that offset,
    `end`: the keys in between supersede more records."""
    assert end not in left.base_offsets, "the last stable offset lies inside of a segment"
    latest = {record.key: record.offset for record in left.records if record.offset < end}
    stays = {each.offset for each in left.records if each.offset >= end or latest[each.key] == each.offset}
    assert len(stays) < len(left.records), "there is more that goes"
    return replace(
        left,
        records=tuple(each for each in left.records if each.offset in stays),
        tombstones=(),
        batches=(),
    )


def _compact(round_: CleanerRound, directory: Path) -> tuple[Left, int]:
    """Compact a copy of the log, at the time when the broker's cleaner did. Returns what is left, and up to
    where the log is clean."""
    config = TopicConfig(
        cleanup_policy="compact",
        segment_bytes=int(str(round_.config["segment.bytes"])),
        min_cleanable_dirty_ratio=0,
        delete_retention_ms=round_.delete_retention_ms,
        file_delete_delay_ms=0,
        message_timestamp_type=str(round_.config.get("message.timestamp.type", "CreateTime")),
    )
    copy = directory / round_.before.name
    shutil.copytree(round_.before, copy)
    # As if closed: a recovery would build the transaction indexes anew, from what is left of a transaction.
    add_checkpoints(copy, 0, round_.log_end_offset)
    if round_.offset_before is not None:
        write_checkpoint(copy / CLEANER_OFFSETS_FILE, {(round_.topic, 0): round_.offset_before})
    with Log.open(str(copy), config=config, clock=ManualClock(_clock_of(round_))) as log:
        assert log.recovery.was_clean, "nothing was rebuilt"
        report = log.compact()
        assert log.verify(), "the log is sound"
    return left_in(copy), report.first_dirty_offset_after


def _clock_of(round_: CleanerRound) -> int:
    """When the broker's cleaner was there, to the millisecond: the horizons that it has set say so."""
    new_ms = left_in(round_.after).horizons_ms - left_in(round_.before).horizons_ms
    assert len(new_ms) <= 1, "a round has one time"
    return new_ms.pop() - round_.delete_retention_ms if new_ms else round_.now_ms
