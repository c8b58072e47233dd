"""The tail of a segment: the part that is not yet known to be good. Recovery walks over it, checks and
indexes it.

Readers in other processes walk over the same part in the same way, so that all processes see the same log.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple, Protocol

from logstore.errors import CorruptionError
from logstore.files import File
from logstore.format import loops
from logstore.format.header import (
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    UNKNOWN_COUNT,
    BatchHeader,
    decode_header,
)
from logstore.format.index import TimestampOffset
from logstore.format.run import IndexRun, RunPlace, RunRules
from logstore.large_files import FilePieces
from logstore.partition.segments.indexes import MAX_RELATIVE_OFFSET, IndexBuilder, LastEntries
from logstore.partition.segments.walk import FIRST_PIECE_BYTES, Walk
from logstore.partition.state.leader_epochs import LeaderEpochs

MOST_OFFSETS = 1 << 40
"""More offsets than any segment spans, even those of old brokers that must be split."""


class TailedSegment(Protocol):
    """A segment with indexes that grow with it."""

    base_offset: int
    indexes: IndexBuilder

    @property
    def log_file(self) -> File: ...

    def confirms(self, entry: TimestampOffset, end: int, *, is_largest: bool = False) -> bool: ...


class Tail:
    """The walk over the part of a segment that is not yet known to be good."""

    def __init__(
        self,
        segment: TailedSegment,
        epochs: LeaderEpochs,
        recovery_point: int,
        *,
        is_dense: bool,
        is_closed: bool,
        can_map: bool = True,
    ) -> None:
        """``is_closed``: the log bears the mark of a clean stop. ``can_map``: the file is not cut during the
        walk."""
        self.end_offset = segment.base_offset
        self.position = 0
        self.file_size = 0
        """Of the file that was walked over to its end."""
        self.scanned_bytes = 0
        self._start = 0
        self._producer_position: int | None = None
        """Where the first batch with a producer begins."""
        self.first_timestamp_ms: int | None = None
        """The largest timestamp of the segment's first batch; None if the walk began behind it."""
        self.last_position: int | None = None
        """Where the last batch begins; None if it was part of a run."""
        self.fault: CorruptionError | None = None
        self.is_torn = False
        """Whether the fault is that the file ends within a batch, as where a process died while it wrote."""
        self.took_back = False
        """Whether the last accepted batch turned out not to be good."""
        self._segment = segment
        self._epochs = epochs
        self._known_epochs = epochs.entries
        self._is_closed = is_closed
        self._can_map = can_map
        self._recovery_point = recovery_point
        self._dense_from = recovery_point if is_dense else None
        self._before_gap: tuple[int, int] | None = None
        """Position and end offset before the last batch, if there is a gap in front of that."""
        self.overflows = False
        """Whether offsets are out of reach of the segment's indexes."""
        self._previous_last = segment.base_offset - 1

    @property
    def quiet_range(self) -> tuple[int, int]:
        """The positions between which all batches are sound and have no producer."""
        end = self._producer_position
        return self._start, self.position if end is None else min(end, self.position)

    def scan(
        self,
        position: int,
        end: int | None = None,
        *,
        first_last_offset: int | None = None,
        newest: TimestampOffset | None = None,
    ) -> bool:
        """Check and index the batches from ``position`` on, up to ``end`` or the end of the file.

        Returns False if the first of them is not the batch that an index entry names, or if they contradict
        the time index, whose last entry is ``newest``.
        """
        file = self._segment.log_file
        if end is None:
            self.file_size = file.size_bytes()
        size = self.file_size if end is None else end
        if not 0 <= position <= size:
            return False
        self._start = position
        walk = Walk(file.read_at, position, size, check=True, piece_bytes=FIRST_PIECE_BYTES)
        if size - position < FIRST_PIECE_BYTES or loops.index_run is None:
            return self._scan(walk, None, size, first_last_offset, newest)
        with closing(FilePieces(file, size, can_map=self._can_map)) as pieces:
            return self._scan(walk, pieces, size, first_last_offset, newest)

    def go_on(self) -> None:
        """Check and index the bytes that were added to the file since."""
        self.fault = self._producer_position = None
        self.is_torn = self.took_back = False
        self.scan(self.position)

    def take_back_epochs(self) -> None:
        """Forget the epochs that the walk has found: another begins anew, and is not behind them."""
        self._epochs.go_back(self._known_epochs)

    def skip_to(self, position: int, offset: int) -> None:
        """Go on at a later batch, with records from ``offset`` on, and leave out what lies between."""
        self.position, self.end_offset, self._previous_last = position, offset, offset - 1
        self._before_gap = None

    def _scan(
        self,
        walk: Walk,
        runs: FilePieces | None,
        size: int,
        first_last_offset: int | None,
        newest: TimestampOffset | None,
    ) -> bool:
        """``runs``: where to take runs of ordinary batches from; None takes each batch by itself."""
        is_first = first_last_offset is not None
        for piece in walk:
            accepted = []
            for at, header in piece.batches:
                last_offset = header.base_offset + header.last_offset_delta
                if is_first and not header.base_offset <= (first_last_offset or 0) >= last_offset:
                    return False
                is_first = False
                if newest is not None:
                    if _contradicts(header, last_offset, newest):
                        return False
                    if last_offset >= newest.offset:
                        newest = None  # it is right
                if not self._accept(header, last_offset, piece.position + at):
                    break
                accepted.append((header, piece.position + at))
            self._segment.indexes.add_all(accepted)
            if self.fault is not None:
                return True
            if newest is None and runs is not None and loops.index_run is not None:
                walk.position = self._run(loops.index_run, runs, walk.position, size)
        if is_first:
            return False
        self.position = max(walk.position, self.position)
        self.fault = walk.fault
        if self.fault is None and self.position < size:
            self.fault = CorruptionError("the last batch is incomplete", position=self.position)
            self.is_torn = True
        return True

    def _run(self, index_run: IndexRun, pieces: FilePieces, position: int, size: int) -> int:
        """Take over runs of ordinary batches from ``position`` on, checked by the compiled module. Returns
        where another kind of batch begins, or the last few batches."""
        builder = self._segment.indexes
        rules = RunRules(
            self._segment.base_offset,
            -1 if self._dense_from is None else self._dense_from,
            self._epochs.latest_epoch,
            builder.interval_bytes,
        )
        while size - position >= FIRST_PIECE_BYTES:
            buffer, start, end = pieces.piece(position)
            producer_position = -1 if self._producer_position is None else self._producer_position
            place = RunPlace(self.end_offset, *(self._before_gap or (-1, -1)), producer_position)
            run = index_run(buffer, start, end, position, rules, place, builder.progress)
            if run is None or run.stop == start:
                break
            builder.add_run(run)
            self._move_to(run.place, position + run.stop - start)
            position = self.position
        return position

    def _move_to(self, place: RunPlace, position: int) -> None:
        self.scanned_bytes += position - self.position
        self.position = position
        self.last_position = None
        self.end_offset = place.end_offset
        self._previous_last = place.end_offset - 1
        self._before_gap = (place.gap_position, place.gap_offset) if place.gap_offset >= 0 else None
        self._producer_position = place.producer_position if place.producer_position >= 0 else None

    def hold_last_against(self, reach: int) -> None:
        """Take the last batch back if it ends above ``reach`` and its offset may have changed."""
        if self.end_offset > reach and self._may_be_wrong_last():
            self._take_back_last(f"is out of the segment's reach, {reach}")

    def _accept(self, header: BatchHeader, last_offset: int, position: int) -> bool:
        """Take over the batch that comes next; False if the log does not go on with it."""
        size_bytes = header.batch_length + LENGTH_OVERHEAD_BYTES
        self.scanned_bytes += size_bytes
        if header.base_offset <= self._previous_last and self._tells_of_wrong_last(header):
            self._take_back_last("is behind the batch that follows")
        elif header.base_offset <= self._previous_last or self._has_gap_before(header):
            self.fault = CorruptionError(
                f"offset {header.base_offset} does not follow {self._previous_last}", position=position
            )
        if self.fault is not None:
            return False
        self.overflows |= last_offset - self._segment.base_offset > MAX_RELATIVE_OFFSET
        if header.partition_leader_epoch > self._epochs.latest_epoch:
            self._epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.producer_id >= 0 and self._producer_position is None:
            self._producer_position = position
        if not position:
            self.first_timestamp_ms = header.max_timestamp_ms
        is_first = position != self.position  # of a walk from the middle: the batch before is unknown
        has_gap = header.base_offset > self.end_offset and not is_first
        self._before_gap = (self.position, self.end_offset) if has_gap else None
        self._previous_last = last_offset
        self.end_offset = last_offset + 1
        self.last_position = position
        self.position = position + size_bytes
        return True

    def _may_be_wrong_last(self) -> bool:
        """Whether the offset of the last batch may have changed, rather than that of the batch that
        contradicts it. That is so if there is a gap in front of it and it never counted as durable. Anything
        may follow durable batches, even a batch from the file's past."""
        return self._before_gap is not None and self._previous_last >= self._recovery_point

    def _tells_of_wrong_last(self, header: BatchHeader) -> bool:
        """Whether a batch that does not follow the last one tells that the offset of that one has changed.

        It does not if it would not follow without the last one either. If the last one never counted as
        durable, it may still have been flushed: the other is from the file's past if it has the same checksum
        or an earlier leader epoch. If the last one is durable, the other must follow it without the gap, and
        must not be the last one again, as a power cut may leave it.
        """
        if self._before_gap is None or header.base_offset < self._before_gap[1]:
            return False
        position, offset = self._before_gap
        last = decode_header(self._segment.log_file.read_at(position, HEADER_BYTES))
        is_same = header.crc == last.crc
        if self._may_be_wrong_last():
            return not is_same and header.partition_leader_epoch >= last.partition_leader_epoch
        if is_same and not self._is_closed:
            return False
        return header.base_offset == offset + last.next_offset - last.base_offset

    def _take_back_last(self, reason: str) -> None:
        """Take the last batch back: it contradicts the next and has a gap in front, so its offset changed."""
        assert self._before_gap is not None
        self.position, self.end_offset = self._before_gap
        self.fault = CorruptionError(f"offset {self._previous_last} {reason}", position=self.position)
        self.took_back = True

    def _has_gap_before(self, header: BatchHeader) -> bool:
        """Whether there is a gap before the batch that must not be there. The log once ended at the recovery
        point, so no batch may reach across it either."""
        if self._dense_from is None or header.base_offset == self.end_offset:
            return False
        ends_at_base = header.record_count == UNKNOWN_COUNT  # compressed and legacy: only its end is known
        return header.next_offset > self._dense_from and not ends_at_base


class IndexedTail(NamedTuple):
    """The result of :func:`index_tail`."""

    tail: Tail
    fault: CorruptionError | None
    """The error that stopped the walk before the file's end."""
    scanned_bytes: int
    quiet_range: tuple[int, int]
    """See :attr:`Tail.quiet_range`."""
    file_size: int


def index_tail(
    segment: TailedSegment,
    new_tail: Callable[[], Tail],
    keep_below: int,
    *,
    are_indexes_sound: bool,
    reach: int | None = None,
    ended_at: int | None = None,
) -> IndexedTail:
    """Walk a segment from its last index entry below ``keep_below``, check each batch, and complete the
    indexes. If the last entries are wrong, the indexes are dropped and the walk begins at the start. Those
    that are kept are durable: a recovery point is stored after the entries below it.

    Args:
        are_indexes_sound: there was no crash, so the indexes hold only what was written; their order is not
            checked.
        reach: a last batch that ends above it, behind a gap, is not good unless it is durable: no checksum
            covers its offset.
        ended_at: the offset at which the log once ended, in its last segment, which is never compacted. A
            batch ends there. If none does, the offset of a batch behind a gap that reaches beyond it has
            changed.
    """
    last = segment.indexes.keep_below(keep_below, are_sound=are_indexes_sound)
    tail = new_tail()
    if last is None or not _scan_behind(last, segment, tail):
        segment.indexes.clear()
        tail.take_back_epochs()
        tail = new_tail()
        tail.scan(0)
    scanned_bytes, file_size = tail.scanned_bytes, tail.file_size
    if reach is not None:
        tail.hold_last_against(reach)
    fault, end = tail.fault, tail.position if tail.took_back else None
    if ended_at is not None and tail.end_offset > ended_at > segment.base_offset:
        crossing = _find_crossing(segment, ended_at, tail.position)
        if crossing is not None:
            fault, end = crossing, crossing.position
    if end is not None:
        segment.indexes.clear()  # they do not know the largest timestamp of the remaining batches
        tail.take_back_epochs()
        tail = new_tail()
        tail.scan(0, end)
    return IndexedTail(tail, fault, scanned_bytes, tail.quiet_range, file_size)


def _scan_behind(last: LastEntries, segment: TailedSegment, tail: Tail) -> bool:
    """Walk on from the last index entries. Returns False if the log contradicts them.

    The newest entry of the time index mostly names a batch of those that are walked over: a closed segment
    ends with it."""
    newest = last.newest
    if newest is None:
        return tail.scan(last.position, first_last_offset=last.offset)
    is_ahead = newest.timestamp_ms >= 0 and (last.offset is None or newest.offset >= last.offset)
    if not is_ahead and not segment.confirms(newest, segment.log_file.size_bytes()):
        return False
    is_right = tail.scan(last.position, first_last_offset=last.offset, newest=newest if is_ahead else None)
    return is_right and newest.offset < tail.end_offset  # else the log ends before its batch


def _contradicts(header: BatchHeader, last_offset: int, newest: TimestampOffset) -> bool:
    """Whether a batch, not behind that of a time index entry, shows that the entry is wrong."""
    timestamp_ms = header.max_timestamp_ms
    if timestamp_ms > newest.timestamp_ms:
        return True
    if last_offset < newest.offset:
        return False
    return header.base_offset > newest.offset or timestamp_ms != newest.timestamp_ms


def _find_crossing(segment: TailedSegment, ended_at: int, end: int) -> CorruptionError | None:
    """The batch that contradicts that the log ended at an offset: the first batch beyond the offset, if there
    is a gap in front of it and no batch ends at the offset. None if there is none before position ``end``."""
    index = segment.indexes.offset_index
    before = index.lookup(index.lookup(ended_at - 1).offset - 1)
    next_offset = None if before.position else segment.base_offset
    for piece in Walk(segment.log_file.read_at, before.position, end, check=False):
        for at, header in piece.batches:
            if next_offset == ended_at:
                return None
            if header.next_offset > ended_at:
                if next_offset is None or header.base_offset <= next_offset:
                    return None
                if header.record_count == UNKNOWN_COUNT:  # compressed and legacy: only its end is known
                    return None
                return CorruptionError(
                    f"offset {header.base_offset} does not follow {next_offset - 1}, and the log once "
                    f"ended at {ended_at}",
                    position=piece.position + at,
                )
            next_offset = header.next_offset
    return None
