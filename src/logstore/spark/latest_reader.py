"""``spark.read`` with ``latestByKey``: a topic as a table, the current record of each key.

One task for each partition, or for several small ones, by :meth:`logstore.Log.latest`: no shuffle, and no
more memory for keys than the task's map has. Tombstones and aborted records are not in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from logstore.errors import UsageError
from logstore.model import TopicPartition
from logstore.spark.columns import ColumnMap
from logstore.spark.origins.choice import origin_of
from logstore.spark.origins.origin import Bounds
from logstore.spark.positions import Subscription
from logstore.spark.range_reader import BATCH_BYTES, BATCH_ROWS
from logstore.spark.ranges import MANY_TASKS, together

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


class WholePartitions(InputPartition):
    """What one task reads: the keys of partitions, one after the other."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(tuple(partitions))
        self.partitions = tuple(partitions)


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
        """One task for each partition that exists now, or for several small ones of very many."""
        origin = self._origin
        try:
            partitions = self._subscription.partitions(origin)
            if len(partitions) < 2 * MANY_TASKS:
                return [WholePartitions([partition]) for partition in partitions]
            bounds = origin.bounds_of(partitions, self._isolation)
            sizes = [bounds.get(partition, Bounds(0, 0)) for partition in partitions]
            groups = together([end - start for start, end in sizes])
            return [WholePartitions(partitions[group]) for group in groups]
        finally:
            origin.close()

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Runs in a task."""
        if not isinstance(partition, WholePartitions):
            return
        for wanted in partition.partitions:
            batches = self._origin.read_latest(
                wanted, self._isolation, self._columns.of_log, BATCH_ROWS, BATCH_BYTES
            )
            yield from map(self._columns.converter(wanted), batches)
