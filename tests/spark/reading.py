"""A batch read in this process: does what Spark does with the source and its reader, but without a JVM.

Pickles both as Spark does, and refuses results of a task that Spark would refuse.
"""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import pyarrow
from pyspark.sql.pandas.types import to_arrow_schema

from logstore.spark.columns import full_schema
from logstore.spark.source import LogstoreSource


class Task(NamedTuple):
    """One task of a planned read."""

    reader: Any
    partition: Any

    def run(self) -> list[pyarrow.RecordBatch]:
        reader, partition = pickle.loads(pickle.dumps((self.reader, self.partition)))
        return list(reader.read(partition))


class Read(NamedTuple):
    """A planned read."""

    schema: Any
    tasks: list[Task]

    def table(self) -> pyarrow.Table:
        """The results of all tasks, one after the other."""
        wanted = to_arrow_schema(self.schema, timezone="UTC")
        batches = [batch for task in self.tasks for batch in task.run()]
        assert all(batch.schema.equals(wanted) for batch in batches)
        return pyarrow.Table.from_batches(batches, wanted)

    def rows(self) -> list[dict[str, Any]]:
        """The rows, with timestamps as microseconds."""
        table = self.table()
        if "timestamp" in table.schema.names:
            at = table.schema.get_field_index("timestamp")
            table = table.set_column(at, "timestamp", table["timestamp"].cast("int64"))
        return table.to_pylist()

    def spans(self) -> list[tuple[str, int, int, int]]:
        """(topic, partition, start, stop) of each range, in the order of the tasks."""
        spans = [each.span for task in self.tasks for each in task.partition.ranges]
        return [(*span.partition, span.start, span.stop) for span in spans]


def plan(path: Any, schema: Any = None, **options: Any) -> Read:
    """Plan a read with some options, passed as Spark does: as text, and names in any case. ``path`` is a
    directory, or the option that names another place."""
    place = path if isinstance(path, dict) else {"path": path}
    given = {name: str(value) for name, value in {**place, **options}.items()}
    source = pickle.loads(pickle.dumps(LogstoreSource(given)))
    schema = source.schema() if schema is None else schema
    reader = source.reader(schema)
    return Read(schema, [Task(reader, partition) for partition in reader.partitions()])


def offsets(path: Any, **options: Any) -> list[int]:
    """The offsets of the records that a read returns."""
    return [row["offset"] for row in plan(path, full_schema(with_headers=False), **options).rows()]
