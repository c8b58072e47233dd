"""Ranges of offsets: what one task reads, and how a read is divided among tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from logstore.model import TopicPartition

if TYPE_CHECKING:
    from logstore.spark.options import Options
    from logstore.spark.origin import Origin


class Span(NamedTuple):
    """Offsets ``[start, stop)`` of one partition, to be read by one task or by several."""

    partition: TopicPartition
    start: int
    stop: int


class OffsetRange(InputPartition):
    """What one task reads: offsets ``[start, stop)`` of one partition."""

    def __init__(self, topic: str, partition: int, start: int, stop: int) -> None:
        super().__init__((topic, partition, start, stop))
        self.topic = topic
        self.partition = partition
        self.start = start
        self.stop = stop


def divide(origin: Origin, spans: Sequence[Span], options: Options) -> list[OffsetRange]:
    """The ranges that cover some spans: one for each, or as many as ``minPartitions`` and
    ``maxRecordsPerPartition`` ask for. Empty spans have none."""
    return [OffsetRange(*span.partition, span.start, span.stop) for span in spans if span.start < span.stop]
