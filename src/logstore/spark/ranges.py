"""Ranges of offsets, and how a read is divided among tasks: large ones among several, small ones together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from logstore.model import TopicPartition

if TYPE_CHECKING:
    from logstore.spark.options import Options
    from logstore.spark.origins.origin import Origin


MANY_TASKS: Final = 64
"""So many are left where ranges are read together. Each takes Spark some tens of milliseconds of a core."""
_SMALL: Final = 100_000
"""Offsets: a task that has more to read takes longer for that than Spark does for the task."""


class Span(NamedTuple):
    """Offsets ``[start, stop)`` of one partition, to be read by one task or by several."""

    partition: TopicPartition
    start: int
    stop: int


class OffsetRange(NamedTuple):
    """A span that a task can read."""

    span: Span
    pinned: Any
    """The result of :meth:`.Origin.pin` for the span."""


class ReadTask(InputPartition):
    """What one task reads: ranges of offsets, one after the other."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(tuple(each.span for each in ranges))
        self.ranges = tuple(ranges)

    def __repr__(self) -> str:
        spans = [f"{span.partition} {span.start} to {span.stop}" for span, _ in self.ranges]
        return f"<ReadTask {', '.join(spans)}>"


def divide(origin: Origin, spans: Sequence[Span], options: Options) -> list[ReadTask]:
    """The tasks that read the spans: one for each, or as many as ``minPartitions`` and
    ``maxRecordsPerPartition`` ask for. Of very many, small ones are read together, unless ``minPartitions``
    says how many there are to be. Empty spans have none.

    Raises:
        InvalidConfigError: one of the two is not a number above 0.
    """
    least_count, max_count = options.number("minPartitions"), options.number("maxRecordsPerPartition")
    isolation = options.isolation()
    filled = [span for span in spans if span.start < span.stop]
    ranges = []
    for span, parts in zip(filled, _parts(filled, least_count or 0), strict=True):
        partition, start, stop = span
        cuts = (
            [] if parts == 1 and max_count is None else origin.split(partition, start, stop, parts, max_count)
        )
        for first, last in pairwise([start, *cuts, stop]):
            piece = Span(partition, first, last)
            ranges.append(OffsetRange(piece, origin.pin(partition, first, last, isolation)))
    if least_count is not None:
        return [ReadTask([each]) for each in ranges]
    counts = [span.stop - span.start for span, _ in ranges]
    return [ReadTask(ranges[group]) for group in together(counts, max_count)]


def together(counts: Sequence[int], max_count: int | None = None) -> list[slice]:
    """Which neighbours are few and small enough for one task. ``counts`` are their offsets, of which a task
    may read ``max_count``."""
    most_ranges, most_offsets = len(counts) // MANY_TASKS, min(max_count or _SMALL, _SMALL)
    starts: list[int] = []
    left = 0
    for number, count in enumerate(counts):
        if not starts or count > left or number - starts[-1] >= most_ranges:
            starts.append(number)
            left = most_offsets
        left -= count
    return [slice(start, stop) for start, stop in pairwise([*starts, len(counts)])]


def _parts(spans: Sequence[Span], least_count: int) -> list[int]:
    """How many tasks read each span: in proportion to its offsets, as the connector does."""
    if len(spans) >= least_count:
        return [1] * len(spans)
    total = sum(span.stop - span.start for span in spans)
    return [max(round((span.stop - span.start) * least_count / total), 1) for span in spans]
