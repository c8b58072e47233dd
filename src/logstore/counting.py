"""What a log counts while it works: plain numbers, changed under locks that are held anyway.

It counts each batch, fsync and compaction, never a record. What a log knows already, such as its offsets and
its size, is not counted here: :mod:`logstore.metrics` reads it when you ask. Knows no logs and no names.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from logstore.arguments import shown
from logstore.errors import UsageError

SECONDS: Final[tuple[float, ...]] = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""The upper bounds of histograms of seconds: three for each power of ten, from 10 µs (a write to the
page cache) to 10 s (a disk that hangs)."""
BYTES: Final[tuple[float, ...]] = tuple(float(4**power) for power in range(4, 14))
"""The upper bounds of histograms of sizes: 256 bytes to 64 MiB, each four times the one before."""


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """A histogram at one moment."""

    bounds: tuple[float, ...]
    """The upper bounds of the buckets, ascending and inclusive. One more bucket has what is larger."""
    counts: tuple[int, ...]
    """How many values are in each bucket; one more than there are bounds."""
    sums: tuple[float, ...]
    """The sum of the values in each bucket."""

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self.counts)

    @property
    def sum(self) -> float:
        """The sum of all of them."""
        return sum(self.sums)

    def quantile(self, share: float) -> float:
        """A bound that ``share`` of the values do not exceed: with 0.99, 99 % of them are no larger. It is
        the upper bound of a bucket: infinite if that is the last one; 0 without values.

        Raises:
            UsageError: ``share`` is not a number from 0 to 1.
        """
        if type(share) not in (int, float) or not 0 <= share <= 1:
            raise UsageError(f"share is {shown(share)}; it must be a number from 0 to 1, such as 0.99")
        wanted, seen = share * self.count, 0
        for number, count in enumerate(self.counts):
            seen += count
            if count and seen >= wanted:
                return self.bounds[number] if number < len(self.bounds) else float("inf")
        return 0.0

    def __add__(self, other: HistogramValue) -> HistogramValue:
        assert self.bounds == other.bounds
        return HistogramValue(
            self.bounds,
            tuple(map(int.__add__, self.counts, other.counts)),
            tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)),
        )


class Histogram:
    """Counts values by size. Its owner lets one thread at a time observe; any thread may ask for
    :attr:`value`. Cost: 0.15 µs for a value."""

    __slots__ = ("_bounds", "_used")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._used: tuple[int, list[int], list[float]] = (0, [], [])
        """The number of the first bucket that has anything; counts and sums from there to the last one. There
        are thousands of histograms, and most of them need a few buckets. Replaced in one assignment."""

    def observe(self, value: float) -> None:
        """Count a value."""
        number = bisect_left(self._bounds, value)
        first, counts, sums = self._used
        if not first <= number < first + len(counts):
            first, counts, sums = self._widen_to(number)
        counts[number - first] += 1
        sums[number - first] += value

    def _widen_to(self, number: int) -> tuple[int, list[int], list[float]]:
        """Let the bucket of this number be one of those that are used."""
        first, counts, sums = self._used
        if counts:
            before, behind = max(first - number, 0), max(number + 1 - first - len(counts), 0)
            counts = [0] * before + counts + [0] * behind
            sums = [0.0] * before + sums + [0.0] * behind
            self._used = first - before, counts, sums
        else:
            self._used = number, [0], [0.0]
        return self._used

    def add(self, value: HistogramValue) -> None:
        """Count everything that another histogram has counted."""
        for number, count in enumerate(value.counts):
            if count:
                first, counts, sums = self._widen_to(number)
                counts[number - first] += count
                sums[number - first] += value.sums[number]

    @property
    def value(self) -> HistogramValue:
        """What was counted so far."""
        first, counts, sums = self._used
        behind = len(self._bounds) + 1 - first - len(counts)
        return HistogramValue(
            self._bounds,
            (*[0] * first, *counts, *[0] * behind),
            (*[0.0] * first, *sums, *[0.0] * behind),
        )


class _HasRecords(Protocol):
    """The header of a batch."""

    @property
    def record_count(self) -> int: ...


@dataclass(eq=False, slots=True)
class LogCounts:
    """What one log has done since it was opened. The log's lock guards it; the numbers of compactions are
    guarded by its turn to compact."""

    appended_batch_count: int = 0
    appended_record_count: int = 0
    """Markers of transactions among them."""
    appended_bytes: int = 0
    write_failure_count: int = 0
    """Writes that the disk refused; each was undone."""
    write_seconds: Histogram | None = None
    """The time of each write to the active segment. None before the first, as the other two: most logs of a
    large store are idle."""
    flush_failure_count: int = 0
    flush_seconds: Histogram | None = None
    """The time of each flush that had anything to flush: one fsync for each segment."""
    deleted_segment_count: int = 0
    """By retention and by ``delete_before``."""
    deleted_bytes: int = 0
    compaction_count: int = 0
    """Compactions that had anything to do."""
    compaction_failure_count: int = 0
    compacted_read_bytes: int = 0
    compacted_written_bytes: int = 0
    compaction_seconds: Histogram | None = None

    def note_write(self, headers: Sequence[_HasRecords], size_bytes: int, seconds: float) -> None:
        """Batches were written, in one write. Cost: 0.25 µs for one."""
        if len(headers) == 1:
            self.appended_batch_count += 1
            self.appended_record_count += headers[0].record_count
        else:
            self.appended_batch_count += len(headers)
            self.appended_record_count += sum([header.record_count for header in headers])
        self.appended_bytes += size_bytes
        times = self.write_seconds
        if times is None:
            times = self.write_seconds = Histogram(SECONDS)
        times.observe(seconds)

    def note_flush(self, seconds: float) -> None:
        """Segments were flushed."""
        if self.flush_seconds is None:
            self.flush_seconds = Histogram(SECONDS)
        self.flush_seconds.observe(seconds)

    def note_deletion(self, segment_count: int, size_bytes: int) -> None:
        """Whole segments were deleted."""
        self.deleted_segment_count += segment_count
        self.deleted_bytes += size_bytes

    def note_compaction(self, read_bytes: int, written_bytes: int, seconds: float) -> None:
        """A compaction has ended."""
        self.compaction_count += 1
        self.compacted_read_bytes += read_bytes
        self.compacted_written_bytes += written_bytes
        if self.compaction_seconds is None:
            self.compaction_seconds = Histogram(SECONDS)
        self.compaction_seconds.observe(seconds)
