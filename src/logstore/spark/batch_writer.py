"""``df.write``: writes the rows of a job into topics, exactly once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from logstore.errors import UsageError
from logstore.spark import commits
from logstore.spark.options import Options
from logstore.spark.staging import StagedFile
from logstore.spark.writing import plan_write, stage_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass
class Staged(WriterCommitMessage):
    """What a task reports to the commit."""

    sink: str
    staged: list[StagedFile]
    """The files in their order; none if the task had no rows."""


def staged_files(messages: Sequence[Any]) -> list[StagedFile]:
    """The files of the tasks, in their order."""
    return [staged for message in messages if message is not None for staged in message.staged]


def columns_of(schema: StructType) -> list[tuple[str, str]]:
    """Name and type of each column."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _sink_of(write_id: str | None, topic: str | None) -> str:
    """An id holds for the topic that the write names: a batch may go into two topics with one id."""
    if write_id is None:
        return str(uuid.uuid4())
    return write_id if topic is None else f"{write_id} -> {topic}"


class BatchWriter(DataSourceArrowWriter):
    """One job's write. Pickled into the tasks; the original instance commits."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        """
        Raises:
            UsageError: the save mode is ``overwrite``; or as :func:`~logstore.spark.writing.plan_write`.
        """
        if overwrite:
            raise UsageError(
                'a topic cannot be overwritten: use mode("append"); logstore.open(path).delete_topic(name) '
                "removes a topic"
            )
        self._plan = plan_write(options, columns_of(schema))
        self._sink = _sink_of(options.identity("writeId"), self._plan.topic)

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Runs in a task."""
        task = TaskContext.get()
        number = 0 if task is None else task.partitionId()
        return Staged(self._sink, stage_rows(self._plan, self._sink, 0, number, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs beside the driver, when all tasks are done."""
        commits.commit(
            self._plan.path,
            self._sink,
            0,
            staged_files(messages),
            is_job=True,
            lock_timeout_ms=self._plan.lock_timeout_ms,
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs beside the driver, when a task has failed for good, or the commit has."""
        commits.abort(self._plan.path, self._sink, 0)
