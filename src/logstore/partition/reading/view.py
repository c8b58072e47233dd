"""The view of a log that a reader works on: one immutable value, replaced in a single assignment by the
writer.

A reader takes the view once and works on it without a lock. Anything appended, rolled or deleted meanwhile
belongs to later views.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from logstore.errors import CorruptionError, LogstoreError, OffsetOutOfRangeError, StorageError
from logstore.format.index import AbortedTransactions
from logstore.model import Isolation, TopicPartition
from logstore.partition.segments.segment import Segment

MAX_CUTS = 100
"""So many truncations are told apart."""


class Truncations:
    """Counts how often the end of a log was cut, and where. A view keeps the count of when it was taken.

    Not only since the log was opened: ``cuts`` is stored (:func:`.sidecars.write_cuts`).
    """

    __slots__ = ("count", "cuts")

    def __init__(self, cuts: tuple[tuple[int, int], ...] = ()) -> None:
        self.count = cuts[-1][0] if cuts else 0
        self.cuts = cuts
        """Number and offset of each cut below which no later one went, oldest first: both numbers rise."""

    def note(self, offset: int) -> None:
        """Say where the last one was, which is counted."""
        deeper = [cut for cut in self.cuts if cut[1] < offset]
        if len(deeper) == MAX_CUTS:  # what is said of the oldest two errs on the safe side
            deeper[:2] = [(deeper[1][0], deeper[0][1])]
        self.cuts = (*deeper, (self.count, offset))

    def lowest_since(self, count: int) -> int | None:
        """The lowest offset of those after the first so many; None if there are none."""
        return next((offset for number, offset in self.cuts if number > count), None)


class LogView(NamedTuple):
    """The segments and offsets of a log at one moment."""

    segments: tuple[Segment, ...]
    """Ascending, never empty; the last one is active."""
    bases: tuple[int, ...]
    """Their base offsets."""
    active_size_bytes: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    durable_offset: int
    truncations: Truncations = Truncations()
    truncation_count: int = 0
    aborted: AbortedTransactions | None = None
    """All aborted transactions of the view, if known; else they are read from the segments' indexes."""
    partition: TopicPartition | None = None
    """The partition that is noted in the records."""

    def explains(self, error: LogstoreError, seen: LogView) -> bool:
        """Whether an error met in the older view ``seen`` may come from segments that were replaced. False if
        the segment that the error is about is still the same: other segments coming and going, as beside a
        writer that keeps rolling, explain nothing."""
        if self.segments == seen.segments:
            return False
        path = error_path(error)
        return path is None or not any(
            path.startswith(segment.path_of("")) and segment in self.segments for segment in seen.segments
        )

    @property
    def was_truncated(self) -> bool:
        """Whether the log was cut since: the bytes of this view may be gone or replaced."""
        return self.truncations.count != self.truncation_count

    def limit_of(self, isolation: Isolation) -> int:
        """The first offset that a reader at this isolation may not see."""
        if isolation is Isolation.LOG_END:
            return self.log_end_offset
        if isolation is Isolation.HIGH_WATERMARK:
            return self.high_watermark
        if isolation is Isolation.COMMITTED:
            return self.last_stable_offset
        return min(self.durable_offset, self.log_end_offset)

    def shown_to(self, isolation: Isolation) -> range:
        """The offsets that a reader at this isolation may see."""
        start = self.log_start_offset
        return range(start, max(start, self.limit_of(isolation)))

    def floor(self, offset: int) -> int:
        """The number of the segment that holds ``offset``, or would hold it."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def bounds_of(self, number: int) -> tuple[Segment, int, int]:
        """A segment, its bytes that belong to this view, and the first offset after it."""
        return self.segments[number], self.size_of(number), self.next_base(number)

    def size_of(self, number: int) -> int:
        """Bytes of a segment that belong to this view."""
        if number == len(self.segments) - 1:
            return self.active_size_bytes
        return self.segments[number].size_bytes

    def next_base(self, number: int) -> int:
        """The first offset after a segment."""
        if number + 1 < len(self.bases):
            return self.bases[number + 1]
        return self.log_end_offset

    def check_in_range(self, offset: int) -> None:
        """
        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log start or above the log end.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset, "outside the log, which holds", self.log_end_offset)

    def check_goes_on(self, offset: int, truncation_count: int) -> None:
        """
        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log start or above the log end; or what was in
                front of it was cut off since there were so many truncations.
        """
        self.check_in_range(offset)
        if truncation_count == self.truncation_count:
            return
        cut = self.truncations.lowest_since(truncation_count)
        if cut is not None and cut < offset:
            raise OffsetOutOfRangeError(
                f"the log was truncated to offset {cut} and has grown again, while a reader was at {offset} "
                f"({self.segments[0].directory}); what came in place of the records is there from {cut} on"
            ).of_log(self.log_start_offset, self.log_end_offset)

    def check_shown(self, offset: int, isolation: Isolation) -> None:
        """
        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log start, or at or above what the isolation shows.
        """
        limit = self.limit_of(isolation)
        if not self.log_start_offset <= offset < limit:
            raise self._out_of_range(offset, "outside the offsets that can be read now,", limit)

    def _out_of_range(self, offset: int, what: str, end: int) -> OffsetOutOfRangeError:
        if offset < self.log_start_offset:
            hint = "the records before that were deleted: begin at log_start_offset"
        else:
            hint = f"follow({end}) waits for new records"
        directory = self.segments[0].directory
        return OffsetOutOfRangeError(
            f"offset {offset} is {what} {self.log_start_offset} to {end} ({directory}); {hint}"
        ).of_log(self.log_start_offset, self.log_end_offset)


def error_path(error: LogstoreError) -> str | None:
    """The file that an error is about."""
    if isinstance(error, CorruptionError):
        return error.path
    return error.filename if isinstance(error, StorageError) else None
