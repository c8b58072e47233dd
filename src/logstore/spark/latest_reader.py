"""``spark.read`` with ``latestByKey``: a topic as a table, the current record of each key.

One task for each partition, by :meth:`logstore.Log.latest`: no shuffle, and memory for keys only as far as
the task's map goes. Tombstones and aborted records are not in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from logstore.errors import UsageError
from logstore.model import TopicPartition
from logstore.spark.columns import ColumnMap
from logstore.spark.origin import origin_of
from logstore.spark.positions import Subscription
from logstore.spark.range_reader import BATCH_BYTES, BATCH_ROWS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from logstore.spark.options import Options

_NOT_WITH: Final = (
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "onCorruptBatch",
)
TYPE_COLUMN: Final = "timestampType"
"""The column that a table does not have."""


class WholePartition(InputPartition):
    """What one task reads: the keys of one partition."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__((topic, partition))
        self.topic = topic
        self.partition = partition


class LatestReader(DataSourceReader):
    """Reads the current record of each key. Each task sees its partition as it is when the task begins, so a
    DataFrame that is used again, as a table that a stream is joined with is for each micro-batch, is up to
    date again."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """
        Raises:
            InvalidConfigError, UsageError: an option or a column that cannot be had.
        """
        for name in _NOT_WITH:
            if name in options:
                options.refuse(name, "a table (latestByKey) is of whole partitions, as they are now")
        if TYPE_COLUMN in schema.fieldNames():
            raise UsageError(f"a table (latestByKey) has no column {TYPE_COLUMN!r}")
        self._origin = origin_of(options)
        self._isolation = options.isolation()
        self._subscription = Subscription(options)
        self._columns = ColumnMap(schema)

    def partitions(self) -> Sequence[InputPartition]:
        """One for each partition that there is now."""
        try:
            return [WholePartition(*partition) for partition in self._subscription.partitions(self._origin)]
        finally:
            self._origin.close()

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """In a task."""
        if not isinstance(partition, WholePartition):
            return iter(())
        wanted = TopicPartition(partition.topic, partition.partition)
        batches = self._origin.read_latest(
            wanted, self._isolation, self._columns.of_log, BATCH_ROWS, BATCH_BYTES
        )
        return map(self._columns.converter(wanted), batches)
