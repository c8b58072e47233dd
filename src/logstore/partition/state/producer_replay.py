"""Rebuilds the producer state of a partition from its files: a snapshot, then the batches above it.

It runs when a log is opened, after a truncation, and for readers that only watch a log. It reads only the
header of a data batch; for a marker also its one record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from logstore.errors import CorruptionError
from logstore.files import Files
from logstore.format.batch import decode_batch
from logstore.format.control import ControlType, decode_control_record
from logstore.format.header import BatchHeader, check_batch
from logstore.model import AppendOrigin
from logstore.partition.segments.segment import Segment
from logstore.partition.state import sidecars
from logstore.partition.state.producer_state import CompletedTransaction, ProducerAppend, ProducerStates
from logstore.warning import warn

OnCompleted = Callable[[Segment, Sequence[CompletedTransaction]], None]


class ProducerSource(NamedTuple):
    """The files from which the producer state is rebuilt."""

    files: Files
    directory: str
    segments: Sequence[Segment]
    log_end_offset: int
    now_ms: int
    accepts_loss: bool = False
    """Whether to leave out the batches behind damage in a segment."""
    quiet_ranges: Mapping[int, tuple[int, int]] = MappingProxyType({})
    """By a segment's base offset: the positions between which recovery has just found all batches sound and
    without a producer. They are not read again."""
    high_watermark: int | None = None
    """Transactions that end at or above it are undecided for committed reads. None means the log end."""

    def rebuild(
        self, snapshots: Sequence[int], *, store_found: bool, on_completed: OnCompleted | None = None
    ) -> ProducerStates:
        """The state at the log end, starting from the newest readable one of ``snapshots`` (offsets,
        ascending).

        ``store_found`` also writes what a crash may have lost: aborted transactions that end above the
        snapshot and are missing in their segment's transaction index, and snapshots at the bases of the
        segments above it, as a roll leaves them. Once the segments before are deleted, only these snapshots
        know their producers.

        Raises:
            CorruptionError: a batch above the snapshot is damaged: the state would be incomplete, and a
                repeated batch could be appended twice.
            StorageError: the disk refused a read or a write.
        """
        producers = ProducerStates()
        start = self._load_newest(producers, snapshots)
        if self.high_watermark is not None and self.high_watermark < start and producers.have_ended:
            producers.add_unreplicated(self._completed_below(start, self.high_watermark, snapshots))
        for segment in self._segments_from(start):
            if store_found and segment.base_offset > start:
                self._store_snapshot(producers, segment.base_offset)
            for header, buffer, position in self._batches_of(segment, start):
                completed = replay_batch(producers, header, buffer, position, self.now_ms)
                if store_found:
                    _store_aborted(segment, completed)
                if on_completed is not None and completed:
                    on_completed(segment, completed)
        producers.map_end_offset = self.log_end_offset
        return producers

    def _completed_below(
        self, end: int, high_watermark: int, snapshots: Sequence[int]
    ) -> list[CompletedTransaction]:
        """The transactions that end at or above the high watermark and below ``end``: a snapshot at ``end``
        does not list them. Cost: all headers between ``end`` and a snapshot at or below the high
        watermark."""
        producers = ProducerStates()
        found: list[CompletedTransaction] = []
        start = self._load_newest(producers, [offset for offset in snapshots if offset <= high_watermark])
        for segment in self._segments_from(start):
            for header, buffer, position in self._batches_of(segment, start):
                if header.base_offset >= end:
                    return found
                completed = replay_batch(producers, header, buffer, position, self.now_ms)
                found += [done for done in completed if done.last_offset >= high_watermark]
        return found

    def _store_snapshot(self, producers: ProducerStates, offset: int) -> None:
        entries = producers.snapshot_entries()
        if entries:
            sidecars.write_snapshot(self.files, self.directory, offset, entries)

    def _load_newest(self, producers: ProducerStates, snapshots: Sequence[int]) -> int:
        """Load the newest usable snapshot; returns from where to replay. A snapshot below the log start will
        do too: all batches above it are there, because it is not below the first segment."""
        floor = self.segments[0].base_offset
        for offset in reversed(snapshots):
            if floor <= offset <= self.log_end_offset:
                entries = sidecars.read_snapshot(self.files, self.directory, offset)
                if entries is not None:
                    producers.load_snapshot(entries, offset, self.now_ms)
                    return offset
        producers.clear(floor)
        return floor

    def _segments_from(self, start: int) -> Sequence[Segment]:
        if start >= self.log_end_offset:
            return ()
        first = max(sum(segment.base_offset <= start for segment in self.segments) - 1, 0)
        return self.segments[first:]

    def _batches_of(self, segment: Segment, start: int) -> Iterator[tuple[BatchHeader, bytes, int]]:
        try:
            begin, end = segment.position_before(start), segment.size_bytes
            quiet_begin, quiet_end = self.quiet_ranges.get(segment.base_offset, (end, end))
            if begin < quiet_begin:
                yield from producer_batches(segment, start, begin, quiet_begin)
            if max(begin, quiet_end) < end:
                yield from producer_batches(segment, start, max(begin, quiet_end), end)
        except CorruptionError as error:
            if not self.accepts_loss:
                raise
            warn("producers are known only in part: %s", error)


def producer_batches(
    segment: Segment, start: int, begin: int, end: int
) -> Iterator[tuple[BatchHeader, bytes, int]]:
    """The batches with a producer between two positions of a segment, from offset ``start`` on: header, a
    buffer and the position in it.

    Raises:
        CorruptionError: one of them is damaged, or its end is unknown.
    """
    walk = segment.walk(begin, end, check=False)
    for piece in walk:
        for at, header in piece.batches:
            if header.producer_id >= 0 and header.base_offset >= start:
                try:
                    check_batch(piece.buffer, at, header)
                except CorruptionError as error:
                    raise error.located(segment.path, piece.position) from None
                yield header, piece.buffer, at
    if walk.position < end:
        fault = walk.fault or CorruptionError("the last batch is incomplete", position=walk.position)
        raise fault.located(segment.path)


def replay_batch(
    producers: ProducerStates, header: BatchHeader, buffer: bytes, position: int, now_ms: int
) -> list[CompletedTransaction]:
    """Apply one batch that is already in the log; returns the transactions that it ends."""
    append = producers.begin(AppendOrigin.REPLICATION, now_ms, is_replay=True)
    add_to_plan(append, header, buffer, position)
    producers.apply(append)
    return append.completed


def add_to_plan(
    append: ProducerAppend, header: BatchHeader, buffer: bytes | bytearray | memoryview, position: int
) -> None:
    """Add a batch with a producer to the plan: as data, or as the marker in it. Other control batches, and
    markers that compaction emptied, say nothing about producers."""
    if not header.is_control:
        append.add_data(header)
        return
    if not header.record_count:
        return
    control = decode_control_record(decode_batch(buffer, position, header)[0])
    if control.control_type in (ControlType.ABORT, ControlType.COMMIT):
        append.add_marker(
            header,
            is_abort=control.control_type is ControlType.ABORT,
            coordinator_epoch=control.coordinator_epoch or 0,
        )


def _store_aborted(segment: Segment, completed: Sequence[CompletedTransaction]) -> None:
    for transaction in completed:
        if not transaction.is_aborted:
            continue
        index = segment.read_transaction_index()
        if not index.entries or index.entries[-1].last_offset < transaction.last_offset:
            index.append(transaction.index_entry)
            index.flush()
