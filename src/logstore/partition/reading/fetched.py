"""Raw fetches: whole batches as they are stored, checked, and passed on without decoding their records.

The compiled module checks and places whole runs of batches in one call. It stops in front of any that is not
ordinary (legacy, damaged, not visible as a whole), and the careful code takes that batch by itself.

A walk begins with a batch in front of the one that is wanted, by whose last offset the place of that one is
checked. Of large ones only the header is read. A fetch that goes on where another one ended knows that offset
and looks at nothing in front. If what follows is damaged, the walk starts again in front, as that of any
other reader, and ends with the same error.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from logstore.errors import CorruptionError
from logstore.format.header import HEADER_BYTES, MAGIC
from logstore.format.index import NONE_ABORTED, AbortedTransactions
from logstore.format.loops import RUN_CUT, RUN_DONE, RUN_FULL, whole_run
from logstore.model import Bytes, Isolation
from logstore.partition.reading.collected import Collected, first_piece_bytes
from logstore.partition.reading.records import (
    SegmentReader,
    TellingOfTruncation,
    aborted_for,
    start_position,
)
from logstore.partition.reading.view import LogView
from logstore.partition.segments.segment import Segment

_MOST_ENDS: Final = 64
"""That are remembered of a log."""
_BASE_OFFSET_BYTES: Final = 8
_MOST_BYTES: Final = 2**62
"""What the compiled module counts in; no segment has so many."""
_PASSED_BYTES: Final = 8 * 1024
"""Smaller batches are read as a whole: that costs less than a call for each."""


class Fetched(NamedTuple):
    """The answer of a fetch: whole batches as they are on disk, and what a consumer needs to know about them.
    The first batch holds the offset asked for: drop its records below that."""

    data: Bytes
    """A view of what was read; joined where that was several pieces."""
    next_offset: int
    """The offset for the next fetch."""
    aborted: AbortedTransactions
    """For :attr:`Isolation.COMMITTED`: the aborted transactions, whose records the consumer leaves out, in
    the order of their markers. Empty otherwise."""
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


class FetchEnds:
    """Where the last fetches of a log ended: most go on there, and need no index to find the place.

    Hints, as an index gives them: what lies there is checked as everything else, and must begin at the
    offset.
    """

    __slots__ = ("_positions", "_taken")

    def __init__(self) -> None:
        self._positions: dict[int, tuple[int, int]] = {}
        """By offset: the number of the segment, and a position in it."""
        self._taken = (-1, (-1, -1))
        """What was taken last, with its offset: two followers are often at the same place."""

    def note(self, offset: int, segment: Segment, position: int) -> None:
        """A fetch has given all before this offset."""
        positions = self._positions
        if len(positions) >= _MOST_ENDS:
            self._positions = positions = {}
        positions[offset] = segment.number, position

    def take(self, offset: int, segment: Segment) -> int | None:
        """Where to go on; None if that is not known. The next end of the same reader takes its place."""
        found = self._positions.pop(offset, None)
        if found is not None:
            self._taken = offset, found
        else:
            taken_offset, taken = self._taken
            found = taken if taken_offset == offset else None
        return None if found is None or found[0] != segment.number else found[1]


def fetch(
    view: LogView,
    start: int,
    max_bytes: int,
    isolation: Isolation,
    *,
    min_one_batch: bool,
    ends: FetchEnds | None = None,
) -> Fetched:
    """Whole batches from the one that holds ``start`` on, of one segment, up to ``max_bytes``.

    With ``min_one_batch`` the first batch comes even if it is larger.
    """
    view.check_in_range(start)
    max_bytes = min(max_bytes, _MOST_BYTES)
    limit = view.limit_of(isolation)
    if start >= limit:  # the reader has all, as of most partitions of most fetches
        return Fetched(
            b"", start, NONE_ABORTED, view.log_start_offset, view.high_watermark, view.last_stable_offset
        )
    with TellingOfTruncation(view):
        data, next_offset = _collect_batches(
            view, start, limit, max_bytes, min_one_batch, FetchEnds() if ends is None else ends
        )
        aborted = aborted_for(view, start, next_offset, isolation) if data else NONE_ABORTED
    return Fetched(
        data, next_offset, aborted, view.log_start_offset, view.high_watermark, view.last_stable_offset
    )


def _collect_batches(
    view: LogView, start: int, limit: int, max_bytes: int, min_one_batch: bool, ends: FetchEnds
) -> tuple[Bytes, int]:
    """Joined batches of the first segment that has any (one may end in a gap), and the offset after them."""
    for number in range(view.floor(start), len(view.segments)):
        if view.bases[number] >= limit:
            break
        collector = _Collector(view, number, start, limit, max_bytes, None if whole_run is None else ends)
        try:
            try:
                is_full = collector.collect(min_one_batch=min_one_batch)
            except CorruptionError:
                if not collector.has_passed_neighbours or collector.parts.size_bytes:
                    raise
                collector = _Collector(view, number, start, limit, max_bytes, None)
                is_full = collector.collect(min_one_batch=min_one_batch)
        except CorruptionError:
            if not collector.parts.size_bytes or view.was_truncated:
                raise
            is_full = True  # return the batches in front of the damage; the next fetch raises
        if collector.parts.size_bytes or is_full:
            collector.note_end(ends)
            return collector.parts.joined(), collector.next_offset
    return b"", start


class _Collector(SegmentReader):
    """A pass over a segment that collects what a fetch may give."""

    def __init__(
        self, view: LogView, number: int, start: int, limit: int, max_bytes: int, ends: FetchEnds | None
    ) -> None:
        """``ends`` is None if batches are to be taken one by one."""
        piece_bytes = first_piece_bytes(max_bytes, limit - start)
        position = None if ends is None else ends.take(start, view.segments[number])
        super().__init__(view, number, start, limit, piece_bytes=piece_bytes, position=position)
        self.has_passed_neighbours = False
        """Whether the walk has begun behind batches of which only the headers were read."""
        self.parts = Collected()
        self.next_offset = start
        self._is_quick = ends is not None
        self._max_bytes = max_bytes
        if position is not None:
            self._begin_at_end(position)
        elif ends is not None and piece_bytes and self._position:
            self._pass_neighbours()

    def note_end(self, ends: FetchEnds) -> None:
        """Note where the next fetch goes on."""
        if self._place.previous_last == self.next_offset - 1:
            ends.note(self.next_offset, self._segment, self._position)

    def _begin_at_end(self, position: int) -> None:
        """Begin where another fetch ended, if the batch that is wanted begins there."""
        if self._end - position >= HEADER_BYTES and (self._take_newest(position) or self._read_piece()):
            base_offset = int.from_bytes(self._buffer[:_BASE_OFFSET_BYTES], "big", signed=True)
            if base_offset == self._start:
                self._place.previous_last = base_offset - 1
                self.has_passed_neighbours = True
                return
        self._buffer = b""
        self._position = self._piece_position = start_position(self._segment, self._start)

    def _take_newest(self, position: int) -> bool:
        """Take a batch from the memory of the request that has brought it, as long as that has no answer:
        followers ask for it just then. Returns whether it is there."""
        newest = self._segment.newest_at(position)
        if newest is None or len(newest) != self._end - position:
            return False
        self._buffer, self._piece_position, self._piece_bytes = newest, position, len(newest)
        return True

    def _pass_neighbours(self) -> None:
        """Pass the large batches in front of what is wanted by their headers. One or two are there: index
        entries have the last offsets of batches."""
        position, previous_last = self._position, self._place.previous_last
        header = self._segment.header_at(position)
        while header is not None and header.magic == MAGIC and previous_last < header.base_offset:
            if header.last_offset >= self._start or header.size_bytes < _PASSED_BYTES:
                break
            position, previous_last = position + header.size_bytes, header.last_offset
            if self._end - position < HEADER_BYTES:
                return
            header = self._segment.header_at(position)
        if header is None or not previous_last < header.base_offset <= self._start:
            return  # what is in front may hold the start, whatever it says
        self.has_passed_neighbours = position > self._position
        self._position = self._piece_position = position
        self._place.previous_last = previous_last

    def collect(self, *, min_one_batch: bool) -> bool:
        """Returns whether the next batch is too much.

        Raises:
            CorruptionError: a batch is damaged; those in front of it are collected.
        """
        parts = self.parts
        while self._can_follow():
            before = self._position
            limit = len(self._buffer)
            if self._is_quick and limit:
                why = self._take_run()
                if why in (RUN_DONE, RUN_FULL):
                    return why == RUN_FULL
                if not self._can_follow():
                    continue
                if why == RUN_CUT and self._lacks_bytes() and self._read_piece():
                    continue
                before = self._position
                limit = self._end_of_batch()
            for found in self._checked_batches(limit):
                size_bytes = parts.size_bytes + found.header.size_bytes
                if found.header.last_offset >= self._stop:
                    return False  # part of this batch is not visible yet
                if size_bytes > self._max_bytes and (parts.size_bytes or not min_one_batch):
                    return True  # and not what comes behind it, in another segment
                parts.add(found.buffer, found.position, found.header.size_bytes)
                self.next_offset = found.header.next_offset
            if self._is_done:
                return False
            if self._position == before and not self._read_piece():
                break
        self._place.check_end(self._position)
        return False

    def _take_run(self) -> int:
        """Collect the next ordinary batches; returns why they end."""
        piece_position, place, parts = self._piece_position, self._place, self.parts
        reaches_end = piece_position + len(self._buffer) == self._end
        first, at, place.previous_last, why = whole_run(
            self._buffer,
            self._position - piece_position,
            place.previous_last,
            place.next_segment if reaches_end else -1,
            self._start,
            self._stop,
            self._max_bytes - parts.size_bytes,
            not parts.size_bytes,
        )
        self._position = piece_position + at
        if first >= 0:
            parts.add(self._buffer, first, at - first)
            self.next_offset = place.previous_last + 1
        return int(why)
