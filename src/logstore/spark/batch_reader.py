"""``spark.read``: the offsets to read are decided once, when Spark plans the read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from logstore.spark.origins.choice import origin_of
from logstore.spark.positions import Subscription, resolve_spans
from logstore.spark.range_reader import RangeReader
from logstore.spark.ranges import ReadTask, divide

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from logstore.spark.options import Options


class BatchReader(DataSourceReader):
    """Reads ranges of offsets in tasks. Has no ``pushFilters``: with Spark 4.3.0, a DataFrame that
    is used twice would get the filters of its first use both times."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """
        Raises:
            InvalidConfigError, UsageError: an option or a column is not valid.
        """
        origin = origin_of(options)
        self._options = options
        self._subscription = Subscription(options)
        self._reader = RangeReader(origin, options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Called once for a DataFrame, however often it is used: every use reads what the log held then."""
        origin = self._reader.origin
        try:
            spans = resolve_spans(origin, self._subscription, self._options, self._reader.isolation)
            return divide(origin, spans, self._options)
        finally:
            origin.close()

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Runs in a task. If there is nothing to read, Spark still calls it once, with a partition of its
        own."""
        if not isinstance(partition, ReadTask):
            return iter(())
        return self._reader.read(partition)
