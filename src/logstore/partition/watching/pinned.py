"""A range of offsets that one process finds and another reads.

The process that plans a read has looked at the whole partition: it knows which segments hold a range, how far
the last one is good, and which transactions were aborted. :class:`PinnedRange` carries that to the process
that reads. That one opens only the files of the range: not the store, and not the end of a log with a running
writer, which a follower must check to find where the log ends.

The pinned files may be gone when they are read. Each file is compared with what the planner saw. If
compaction, an erasure or a truncation has replaced one, the partition is examined again and the rest of the
range pinned again. This module knows nothing about Spark, and only passes columns on.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.errors import (
    CorruptionError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownTopicError,
)
from logstore.files import File, FileStamp
from logstore.format.header import HEADER_BYTES, decode_header
from logstore.format.index import AbortedTransactions, OffsetPosition
from logstore.model import Isolation, TopicPartition
from logstore.partition.reading.place import ends_at_base
from logstore.partition.reading.records import aborted_for
from logstore.partition.reading.view import LogView, error_path
from logstore.partition.segments.indexes import OffsetIndex, TimeIndex
from logstore.partition.segments.segment import OpenFiles, Segment
from logstore.partition.segments.walk import positions_behind
from logstore.partition.state.context import LogContext
from logstore.partition.watching.files import StampedSegment, WatchedSegment, begins_with, replaced

if TYPE_CHECKING:
    from logstore.partition.reading.arrow import ColumnPlan


class PinnedSegment(NamedTuple):
    """A sealed segment."""

    base_offset: int
    state: str
    """The suffix of the names of its files."""
    stamp: FileStamp


class PinnedTail(NamedTuple):
    """The segment at the end of the log, which may have grown since."""

    base_offset: int
    size_bytes: int
    """The size of its good part."""
    last: tuple[int, bytes]
    """Position and header of the last batch in that part."""
    entries: tuple[OffsetPosition, ...]
    """The entries of its offset index, which is not stored yet, that lead to the beginning of the range."""


class PinnedRange(NamedTuple):
    """Offsets ``[start, stop)`` of a partition, and where they lie. Pickles into 100 bytes per segment."""

    directory: str
    """Absolute path of the partition's directory."""
    partition: TopicPartition
    topic_id: uuid.UUID | None
    start: int
    stop: int
    isolation: Isolation
    sealed: tuple[PinnedSegment, ...]
    tail: PinnedTail | None
    """None if the range ends before it."""
    next_base: int
    """The first offset behind these segments."""
    aborted: AbortedTransactions
    """For :attr:`Isolation.COMMITTED`: the transactions that are left out."""


def pin_view(view: LogView, start: int, stop: int, isolation: Isolation) -> dict[str, Any]:
    """The fields of a :class:`PinnedRange` that come from a view: the segments of ``[start, stop)``.

    Raises:
        OffsetOutOfRangeError: the range is not within what the isolation shows now.
    """
    limit = view.limit_of(isolation)
    if not view.log_start_offset <= start <= stop <= limit:
        raise OffsetOutOfRangeError(
            f"offsets {start} to {stop} are not within what can be read, {view.log_start_offset} to {limit} "
            f"({view.segments[0].directory})"
        )
    first, last = view.floor(start), view.floor(max(stop - 1, start))
    sealed, tail = [], None
    for segment in view.segments[first : last + 1]:
        if isinstance(segment, WatchedSegment):
            tail = _pin_tail(segment, start)
        else:
            assert isinstance(segment, StampedSegment)
            sealed.append(PinnedSegment(segment.base_offset, segment.state, segment.stamp))
    aborted = aborted_for(view, start, stop, isolation)
    return {"sealed": tuple(sealed), "tail": tail, "next_base": view.next_base(last), "aborted": aborted}


def _pin_tail(segment: WatchedSegment, start: int) -> PinnedTail:
    index = segment.offset_index
    found = index.lookup(start)
    before = index.lookup(found.offset - 1)  # a walk begins there: see records.start_position
    entries = tuple(sorted({entry for entry in (before, found) if entry.position > 0}))
    return PinnedTail(segment.base_offset, segment.size_bytes, segment.last_batch, entries)


# The files --------------------------------------------------------------------------------------------------


class _PinnedSegment(Segment):
    """The shared part of the two kinds. Mixed in before the class that knows the file."""

    resume_position: int | None = None
    """The position of the batch from which reading goes on behind damage."""

    @abstractmethod
    def check_in_place(self) -> None:
        """
        Raises:
            StorageError: its file was replaced or removed.
        """

    def position_before(self, offset: int) -> int:
        return super().position_before(offset) if self.resume_position is None else self.resume_position


class _SealedSegment(_PinnedSegment, StampedSegment):
    """A pinned segment."""

    def __init__(self, context: LogContext, directory: str, pinned: PinnedSegment) -> None:
        files, cache = context.files, context.open_segments
        StampedSegment.__init__(self, files, directory, pinned.base_offset, cache, pinned.state, pinned.stamp)

    def check_in_place(self) -> None:
        self._check_in_place()


class _TailSegment(_PinnedSegment):
    """A pinned tail: the pinned part of a file that may grow, be sealed, or be cut and grow again."""

    def __init__(self, context: LogContext, directory: str, pinned: PinnedTail) -> None:
        super().__init__(
            context.files, directory, pinned.base_offset, context.open_segments, is_read_only=True
        )
        self._size_bytes = pinned.size_bytes
        self._pinned = pinned

    def check_in_place(self) -> None:
        file = self._files.open(self.path)
        try:
            self._check_begins(file)
        finally:
            file.close()

    def _check_begins(self, file: File) -> None:
        if not begins_with(file, self._pinned.size_bytes, self._pinned.last):
            raise replaced(self.path)

    def _open(self) -> OpenFiles:
        file = self._files.open(self.path)
        self._check_begins(file)
        offset_index = OffsetIndex(self._files, self.path, self.base_offset)
        for entry in self._pinned.entries:
            offset_index.append(*entry)
        return OpenFiles(file, offset_index, TimeIndex(self._files, self.path, self.base_offset))

    def rebuild_indexes(self) -> bool:
        return False  # it takes a walk over the whole tail; reading from the beginning is as good


def _pinned_view(context: LogContext, pinned: PinnedRange) -> LogView:
    """The view of a range: its segments, and one behind them, never opened, that shows where they end."""
    directory, size_bytes = pinned.directory, 0
    segments: list[_PinnedSegment] = [_SealedSegment(context, directory, each) for each in pinned.sealed]
    if pinned.tail is not None:
        segments.append(_TailSegment(context, directory, pinned.tail))
    shown: list[Segment] = [*segments]
    if pinned.tail is not None:
        size_bytes = pinned.tail.size_bytes
    else:
        cache = context.open_segments
        shown.append(Segment(context.files, directory, pinned.next_base, cache, is_read_only=True))
    bases = tuple(segment.base_offset for segment in shown)
    end, stop = pinned.next_base, pinned.stop
    return LogView(
        tuple(shown),
        bases,
        size_bytes,
        pinned.start,
        end,
        stop,
        stop,
        stop,
        aborted=pinned.aborted,
        partition=pinned.partition,
    )


# Reading ----------------------------------------------------------------------------------------------------


class Damage(NamedTuple):
    """A damaged place that was passed over."""

    error: CorruptionError
    start: int
    """The first missing offset."""
    stop: int
    """The first offset that can be read again, or the end of the range. Equal to ``start`` if the batch
    behind does not show its first offset, before magic 2."""


OnDamage = Callable[[Damage], None]

_TRIES = 5  # tries to go on at one offset while segments keep being replaced


class PinnedReader:
    """Reads a pinned range once."""

    def __init__(
        self,
        pinned: PinnedRange,
        context: LogContext,
        pin_anew: Callable[[int], PinnedRange],
        on_damage: OnDamage | None = None,
    ) -> None:
        """
        Args:
            pin_anew: examines the partition, and pins the rest of the range from an offset on.
            on_damage: called for each place that is passed over; without it, damage is an error.
        """
        self.pinned = pinned
        self.position = pinned.start
        """The offset to go on from: everything below was returned or does not exist."""
        self._context = context
        self._pin_anew = pin_anew
        self._on_damage = on_damage
        self._view = _pinned_view(context, pinned)
        self._anew_at: Counter[int] = Counter()

    def columns(self, plan: ColumnPlan) -> Iterator[Any]:
        """The records as pyarrow record batches; see :func:`.arrow.iterate_columns`.

        Raises:
            CorruptionError: a batch is damaged. Everything before it was returned.
            OffsetOutOfRangeError: the next record was deleted or cut off meanwhile.
            UnknownTopicError: the topic was deleted.
        """
        from logstore.partition.reading import arrow  # pyarrow is optional, and slow to import

        stop, isolation = self.pinned.stop, self.pinned.isolation
        while self.position < stop:
            try:
                for batch, after in arrow.iterate_columns(self._view, self.position, stop, isolation, plan):
                    yield batch
                    self.position = after
                return
            except (StorageError, CorruptionError) as error:
                self._recover(error)

    def _recover(self, error: StorageError | CorruptionError) -> None:
        """Prepare to go on after an error, or raise it if that is not possible."""
        if self._is_replaced(error):
            self._anew_at[self.position] += 1
            newer = self._pin_anew(self.position)
            if newer.topic_id != self.pinned.topic_id:
                raise UnknownTopicError(
                    f"{self.pinned.partition} was deleted; there is a new topic with its name"
                )
            if self._anew_at[self.position] <= _TRIES:
                self.pinned = newer
                self._view = _pinned_view(self._context, newer)
                return
        if self._on_damage is None or not isinstance(error, CorruptionError):
            raise error
        self._pass_over(error)

    def _is_replaced(self, error: StorageError | CorruptionError) -> bool:
        """Whether the error comes from a file that is not the pinned one any more."""
        for segment in self._view.segments:
            if isinstance(segment, _PinnedSegment) and error_path(error) == segment.path:
                try:
                    segment.check_in_place()
                except StorageError:
                    return True
                return False
        return isinstance(error, StorageError)

    def _pass_over(self, error: CorruptionError) -> None:
        """Go on behind a damaged batch: at its end by its size field, if a batch begins there; else at the
        next batch in the index; else in the next segment."""
        number, segment = self._damaged_segment(error)
        assert error.position is not None
        position = _position_behind(self._view, number, error.position, self.position)
        if position is None:
            after = self._view.next_base(number)
        else:
            segment.resume_position = position
            header = decode_header(segment.read_at(position, HEADER_BYTES))
            after = self.position if ends_at_base(header) else header.base_offset
        assert self._on_damage is not None
        stop = min(after, self.pinned.stop)
        self._on_damage(Damage(error, self.position, stop))
        self.position = stop

    def _damaged_segment(self, error: CorruptionError) -> tuple[int, _PinnedSegment]:
        for number, segment in enumerate(self._view.segments):
            if isinstance(segment, _PinnedSegment) and segment.path == error.path:
                passed = segment.resume_position
                if error.position is not None and (passed is None or error.position >= passed):
                    return number, segment
        raise error


def _position_behind(view: LogView, number: int, position: int, at_least: int) -> int | None:
    """Where a batch with offsets from ``at_least`` on begins behind the damaged one at ``position``; None if
    none can be found in the segment."""
    segment, end, next_base = view.segments[number], view.size_of(number), view.next_base(number)

    def is_batch(candidate: int) -> bool:
        try:
            header = decode_header(segment.read_at(candidate, HEADER_BYTES))
        except CorruptionError:
            return False
        return at_least <= header.base_offset <= header.last_offset < next_base

    behind = positions_behind(segment.read_at, segment.offset_index, position, end)
    return next(filter(is_batch, behind), None)
