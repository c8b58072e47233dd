"""The data source that Spark knows as ``logstore``.

Spark creates one beside the driver, with the options of a ``spark.read`` or ``df.write``, and asks it for one
of four objects. Each is in a module of its own that is imported at its first use::

    batch_reader.BatchReader(options, schema)                 spark.read
    stream_reader.StreamReader(options, schema)               spark.readStream
    batch_writer.BatchWriter(options, schema, overwrite)      df.write
    stream_writer.StreamWriter(options, schema, overwrite)    df.writeStream

``options`` is a :class:`~logstore.spark.options.Options`, parsed and checked for that use; ``schema`` a
``pyspark.sql.types.StructType``. All four are pickled into tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore._version import how_to_install
from logstore.spark.options import Options, Use, check_names

try:
    from pyspark.sql.datasource import DataSource
except ImportError as error:
    raise ImportError(f"the Spark data source needs pyspark: {how_to_install('spark')} ({error})") from None

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


class LogstoreSource(DataSource):
    """``format("logstore")``: topics with the columns and options of Spark's Kafka connector."""

    def __init__(self, options: dict[str, str]) -> None:
        """
        Raises:
            InvalidConfigError: an unknown option.
        """
        super().__init__(options)
        check_names(options)

    @classmethod
    def name(cls) -> str:
        """What ``format()`` takes."""
        return "logstore"

    def schema(self) -> StructType:
        """The columns of a read if the user names none."""
        from logstore.spark.columns import full_schema

        options = Options(self.options, Use.ANY)
        return full_schema(
            with_headers=options.flag("includeHeaders", default=False),
            with_type=not options.flag("latestByKey", default=False),
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """``spark.read``."""
        from logstore.spark.batch_reader import BatchReader
        from logstore.spark.latest_reader import LatestReader

        options = Options(self.options, Use.BATCH_READ)
        made = LatestReader if options.flag("latestByKey", default=False) else BatchReader
        reader: DataSourceReader = made(options, schema)
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """``spark.readStream``. The reader raises what is wrong, not this: see :class:`.RefusedReader`."""
        from logstore.spark.stream_reader import RefusedReader, StreamReader

        reader: DataSourceStreamReader
        try:
            reader = StreamReader(Options(self.options, Use.STREAM_READ), schema)
        except Exception as error:
            reader = RefusedReader(error)
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """``df.write``."""
        from logstore.spark.batch_writer import BatchWriter

        writer: DataSourceArrowWriter = BatchWriter(Options(self.options, Use.BATCH_WRITE), schema, overwrite)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """``df.writeStream``."""
        from logstore.spark.stream_writer import StreamWriter

        writer: DataSourceStreamArrowWriter = StreamWriter(
            Options(self.options, Use.STREAM_WRITE), schema, overwrite
        )
        return writer
