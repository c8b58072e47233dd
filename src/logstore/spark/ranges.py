"""Ranges of offsets: what one task reads, and how a read is divided among tasks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from logstore.model import TopicPartition

if TYPE_CHECKING:
    from logstore.spark.options import Options
    from logstore.spark.origins.origin import Origin


class Span(NamedTuple):
    """Offsets ``[start, stop)`` of one partition, to be read by one task or by several."""

    partition: TopicPartition
    start: int
    stop: int


class OffsetRange(InputPartition):
    """What one task reads: offsets ``[start, stop)`` of one partition."""

    def __init__(self, span: Span, pinned: Any) -> None:
        """``pinned``: the result of :meth:`.Origin.pin` for the span."""
        super().__init__(span)
        self.span = span
        self.pinned = pinned

    def __repr__(self) -> str:
        return f"<OffsetRange {self.span.partition} {self.span.start} to {self.span.stop}>"


def divide(origin: Origin, spans: Sequence[Span], options: Options) -> list[OffsetRange]:
    """The ranges that cover the spans: one for each, or as many as ``minPartitions`` and
    ``maxRecordsPerPartition`` ask for. Empty spans have none.

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
    return ranges


def _parts(spans: Sequence[Span], least_count: int) -> list[int]:
    """How many tasks read each span: in proportion to its offsets, as the connector does."""
    if len(spans) >= least_count:
        return [1] * len(spans)
    total = sum(span.stop - span.start for span in spans)
    return [max(round((span.stop - span.start) * least_count / total), 1) for span in spans]
