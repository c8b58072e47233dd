"""Parquet beside the offsets that it was made from, both in one atomic commit.

Whoever reads a topic and writes elsewhere must store how far it has come. Stored in another place, that is
early or late after a crash, and records are lost or done twice. Here it lies in the output itself::

    output/
        batch=0000000000/part-….parquet, _commit.json
        batch=0000000001/part-….parquet, _commit.json

A batch is written under a name that readers pass over, made durable, and then renamed: that is the commit.
Spark, pandas, DuckDB and Polars read ``output`` as an ordinary data set, with a column ``batch``, and see
whole batches only. (Spark's own streaming sink for Parquet needs a reader that knows its ``_spark_metadata``;
any other sees the files of failed attempts as well.)

The commit is a rename of a directory: the output must lie in a file system that all executors share and that
renames at once, as POSIX demands; an object store does not.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from logstore.errors import CorruptionError, RetriableError, StorageError, UsageError
from logstore.files import Files, OsFiles, PathLike, Removals, check_path, read_small_file, write_new_file
from logstore.warning import inform

COMMIT_NAME = "_commit.json"
_PREFIX = "batch="
_DIGITS = 10
_STAGED_PREFIX = "_staged-"
_MAX_COMMIT_BYTES = 16 * 1024 * 1024
_VERSION = 1

Offsets = Mapping[str, Mapping[int, int]]
"""The next offset to read, by topic and partition."""


class Committed(NamedTuple):
    """What a batch says of itself."""

    number: int
    offsets: dict[str, dict[int, int]]
    """Up to where the topics were read; empty if a streaming query keeps that in its checkpoint."""
    query_id: str | None
    """Of the streaming query that wrote it."""


class ParquetOutput:
    """A directory of Parquet batches, each committed with its offsets. One writer at a time."""

    def __init__(self, path: PathLike, *, files: Files | None = None) -> None:
        """
        Args:
            path: the directory; made with the first batch.
            files: another file system for the commits, for tests.
        """
        self._files = files or OsFiles()
        self.path = self._files.absolute(check_path(path))

    def last(self) -> Committed | None:
        """The newest batch; None if there is none.

        Raises:
            CorruptionError: its commit file is damaged, or a batch before it is missing.
        """
        numbers = self._numbers()
        if not numbers:
            return None
        if numbers != list(range(len(numbers))):
            missing = next(number for number, found in enumerate(numbers) if number != found)
            raise CorruptionError(f"batch {missing} is missing before batch {numbers[-1]}", path=self.path)
        return self._read(numbers[-1])

    @property
    def offsets(self) -> dict[str, dict[int, int]]:
        """Up to where the topics were read, with the newest batch. Empty in front of the first."""
        last = self.last()
        return {} if last is None else last.offsets

    def commit(self, rows: DataFrame, offsets: Offsets, *, after: int | None = None) -> int:
        """Write the rows and, at once with them, up to where their topics were read. Returns the number of
        the batch. Topics that ``offsets`` does not name stay where they were.

        Args:
            after: the number of the batch that the rows follow (``last().number``, -1 for none); the newest
                unless given.

        Raises:
            RetriableError: another writer has committed since; nothing was written. Begin again from
                :attr:`offsets`.
            UsageError: the output is that of a streaming query.
            StorageError: the disk refused.
        """
        last = self.last()
        if last is not None and last.query_id is not None:
            raise UsageError(f"{self.path} is written by the streaming query {last.query_id}")
        previous = -1 if last is None else last.number
        if after is not None and after != previous:
            raise RetriableError(f"{self.path} has batch {previous} by now, not {after} as its newest")
        merged = {topic: dict(partitions) for topic, partitions in (last.offsets if last else {}).items()}
        for topic, partitions in offsets.items():
            merged.setdefault(topic, {}).update(partitions)
        self._commit(rows, Committed(previous + 1, merged, None))
        return previous + 1

    def write_batch(self, rows: DataFrame, batch_id: int) -> None:
        """For ``writeStream.foreachBatch(output.write_batch)``: each batch of a streaming query once, also if
        Spark hands it over again after a crash. The offsets are in the query's checkpoint.

        Raises:
            UsageError: the output was written by another query (or this one with another checkpoint, which
                begins to count anew), or by :meth:`commit`.
            StorageError: the disk refused.
        """
        query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if not query_id:
            raise UsageError("write_batch is for foreachBatch of a streaming query; commit() writes others")
        last = self.last()
        if last is not None and last.query_id != query_id:
            owner = "commit()" if last.query_id is None else f"the streaming query {last.query_id}"
            raise UsageError(
                f"{self.path} is written by {owner}, not by {query_id}: give each query, and each new "
                "checkpoint, an output of its own"
            )
        previous = -1 if last is None else last.number
        if batch_id > previous + 1:
            raise CorruptionError(f"batch {previous + 1} is missing before batch {batch_id}", path=self.path)
        if batch_id == previous + 1:
            self._commit(rows, Committed(batch_id, {}, query_id))

    # Files

    def _numbers(self) -> list[int]:
        if not self._files.is_directory(self.path):
            return []
        names = [entry.name for entry in self._files.list_directory(self.path) if entry.is_directory]
        parts = [name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX)]
        return sorted(int(part) for part in parts if part.isdecimal())

    def _directory(self, number: int) -> str:
        return f"{self.path}/{_PREFIX}{number:0{_DIGITS}}"

    def _read(self, number: int) -> Committed:
        path = f"{self._directory(number)}/{COMMIT_NAME}"
        data = read_small_file(self._files, path, _MAX_COMMIT_BYTES)
        if data is None:
            raise CorruptionError("the batch's commit file is missing", path=path)
        try:
            commit = json.loads(data)
            if commit["version"] != _VERSION or commit["batch"] != number:
                raise ValueError("another version, or batch")
            offsets = {
                topic: {int(partition): int(offset) for partition, offset in partitions.items()}
                for topic, partitions in commit["offsets"].items()
            }
            return Committed(number, offsets, commit["query"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(f"is no commit of batch {number}: {error!r}", path=path) from None

    def _commit(self, rows: DataFrame, committed: Committed) -> None:
        self._remove_staged()
        staged = f"{self.path}/{_STAGED_PREFIX}{uuid.uuid4().hex}"
        try:
            rows.write.parquet(f"file://{staged}")
            self._finish(staged, committed)
            self._rename(staged, committed.number)
        except BaseException:
            with contextlib.suppress(StorageError):
                self._remove_trees([staged], f"batch {committed.number} failed")
            raise

    def _finish(self, staged: str, committed: Committed) -> None:
        """Make what Spark wrote durable, and put the offsets beside it."""
        commit: dict[str, Any] = {
            "version": _VERSION,
            "batch": committed.number,
            "offsets": committed.offsets,
            "query": committed.query_id,
        }
        for entry in self._files.list_directory(staged):
            path = f"{staged}/{entry.name}"
            if entry.name.startswith("."):  # checksums of Hadoop's, which would refuse a changed name
                self._files.remove(path)
                continue
            file = self._files.open(path, write=True)
            try:
                file.flush()
            finally:
                file.close()
        write_new_file(self._files, f"{staged}/{COMMIT_NAME}", json.dumps(commit).encode())
        self._files.flush_directory(staged)

    def _rename(self, staged: str, number: int) -> None:
        target = self._directory(number)
        if self._files.is_directory(target):
            raise RetriableError(f"another writer has committed batch {number} of {self.path}")
        self._files.rename(staged, target)  # fails where another was there first: it is not empty
        self._files.flush_directory(self.path)

    def _remove_staged(self) -> None:
        """What attempts left that died."""
        if self._files.is_directory(self.path):
            entries = self._files.list_directory(self.path)
            staged = [f"{self.path}/{each.name}" for each in entries if each.name.startswith(_STAGED_PREFIX)]
            self._remove_trees(staged, "left by an attempt that died")

    def _remove_trees(self, paths: Sequence[str], reason: str) -> None:
        removals = Removals(self._files)
        try:
            for path in paths:
                _remove_tree(removals.files, path)
        finally:
            if removals.count:
                told = (self.path, removals.count, removals.size_bytes, reason)
                inform("%s: removed %d files, %d bytes: %s", *told)


def _remove_tree(files: Files, path: str) -> None:
    if not files.is_directory(path):
        return
    for entry in files.list_directory(path):
        child = f"{path}/{entry.name}"
        if entry.is_directory:
            _remove_tree(files, child)
        else:
            files.remove(child)
    files.remove_directory(path)
