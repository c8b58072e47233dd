"""``spark.read`` with ``latestByKey``: a topic as a table, the current record of each key.

One task for each partition, by :meth:`logstore.Log.latest`: no shuffle, and no more memory for keys than the
task's map has. Tombstones and aborted records are not in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from logstore.errors import UsageError
from logstore.model import TopicPartition
from logstore.spark.columns import ColumnMap
from logstore.spark.origins.choice import origin_of
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
    """Reads the current record of each key. Each task sees its partition as it is when the task begins. So a
    DataFrame that is used again is up to date again, such as a table joined with each micro-batch of a
    stream."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """
        Raises:
            InvalidConfigError, UsageError: an option or a column is not valid.
        """
        for name in _NOT_WITH:
            if name in options:
                options.refuse(name, "a table (latestByKey) always reads whole partitions, as they are now")
        if TYPE_COLUMN in schema.fieldNames():
            raise UsageError(f"a table (latestByKey) has no column {TYPE_COLUMN!r}")
        self._origin = origin_of(options)
        self._isolation = options.isolation()
        self._subscription = Subscription(options)
        self._columns = ColumnMap(schema)

    def partitions(self) -> Sequence[InputPartition]:
        """One task for each partition that exists now."""
        try:
            return [WholePartition(*partition) for partition in self._subscription.partitions(self._origin)]
        finally:
            self._origin.close()

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Runs in a task."""
        if not isinstance(partition, WholePartition):
            return iter(())
        wanted = TopicPartition(partition.topic, partition.partition)
        batches = self._origin.read_latest(
            wanted, self._isolation, self._columns.of_log, BATCH_ROWS, BATCH_BYTES
        )
        return map(self._columns.converter(wanted), batches)
