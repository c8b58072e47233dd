"""``df.writeStream``: writes each micro-batch of a query into topics, exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from logstore.errors import UsageError
from logstore.spark import commits
from logstore.spark.batch_writer import Staged, columns_of, staged_files
from logstore.spark.options import Options
from logstore.spark.writing import plan_write, stage_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a streaming query; Spark does not document them."""


class StreamWriter(DataSourceStreamArrowWriter):
    """A query's writes. One instance is pickled into the tasks, others commit: so the messages have
    everything that the commit needs."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        """
        Raises:
            UsageError: the output mode is ``complete``; or as :func:`~logstore.spark.writing.plan_write`.
        """
        if overwrite:
            raise UsageError(
                'output mode complete would replace the topic with each batch: use outputMode("append"), or '
                'foreachBatch with option writeId for the rows of "update"'
            )
        self._sink_id = options.identity("sinkId")
        self._plan = plan_write(options, columns_of(schema))

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Runs in a task."""
        task = TaskContext.get()
        sink = self._sink_id or (task and task.getLocalProperty(QUERY_ID))
        if not task or not sink:
            raise UsageError(
                "this Spark does not tell tasks the id of their query: give option sinkId, a different one "
                "for each checkpoint"
            )
        batch_id = int(task.getLocalProperty(BATCH_ID) or 0)
        staged = stage_rows(self._plan, sink, batch_id, task.partitionId(), iterator)
        return Staged(sink, staged)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's
        """Runs beside the driver, when all tasks are done. Spark may repeat it for a committed batch."""
        sink = _sink_of(messages)
        if sink is not None:
            timeout_ms = self._plan.lock_timeout_ms
            files = staged_files(messages)
            commits.commit(self._plan.path, sink, batchId, files, lock_timeout_ms=timeout_ms)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Runs beside the driver, when a task has failed for good, or the commit has."""
        sink = _sink_of(messages) or self._sink_id
        if sink is not None:
            commits.abort(self._plan.path, sink, batchId)


def _sink_of(messages: Sequence[Any]) -> str | None:
    return next((message.sink for message in messages if message is not None), None)
