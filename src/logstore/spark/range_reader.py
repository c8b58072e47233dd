"""What a task does: read a range of offsets and give it as Spark's columns.

Used by batch and streaming reads alike. Made on the driver and pickled into tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from logstore.model import TopicPartition
from logstore.spark.columns import ColumnMap

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from logstore.spark.options import Options
    from logstore.spark.origin import Origin
    from logstore.spark.ranges import OffsetRange

BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 4 * 1024 * 1024


class RangeReader:
    """Reads ranges of one origin as the options and the schema ask."""

    def __init__(self, origin: Origin, options: Options, schema: StructType) -> None:
        """
        Raises:
            InvalidConfigError: a bad option.
            UsageError: a column that cannot be had; see :class:`~logstore.spark.columns.ColumnMap`.
        """
        self.origin = origin
        self.isolation = options.isolation()
        self._columns = ColumnMap(schema)

    def read(self, wanted: OffsetRange) -> Iterator[Any]:
        """The records of a range as ``pyarrow.RecordBatch`` with the schema's columns. Holds two of them, and
        one batch of the log, whatever the size of the range."""
        partition = TopicPartition(wanted.topic, wanted.partition)
        batches = self.origin.read(
            partition,
            wanted.start,
            wanted.stop,
            self.isolation,
            self._columns.of_log,
            BATCH_ROWS,
            BATCH_BYTES,
        )
        return map(self._columns.converter(partition), batches)
