"""Parquet files with the offsets that they were made from, both in one atomic commit.

A job that reads a topic and writes elsewhere must store how far it has read. If that is stored in another
place, it is ahead or behind after a crash, and records are lost or processed twice. So the output itself has
it::

    output/
        batch=0000000000/part-….parquet, _commit.json
        batch=0000000001/part-….parquet, _commit.json

A batch is written under a name that readers ignore, made durable, and then renamed: the rename is the commit.
Spark, pandas, DuckDB and Polars read ``output`` as an ordinary data set, with a column ``batch``, and see
only whole batches. (Spark's own streaming sink for Parquet needs a reader that knows its ``_spark_metadata``;
other readers see the files of failed attempts too.)

The commit renames a directory. So the output must be in a file system that all executors share and that
renames atomically, as POSIX requires; an object store does not.
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


class ReadOffsets(dict[str, dict[int, int]]):
    """:data:`Offsets` with what shows that a log is not the one any more that was read up to there."""

    def __init__(
        self,
        offsets: Offsets | None = None,
        *,
        topic_ids: Mapping[str, str] | None = None,
        epochs: Offsets | None = None,
    ) -> None:
        super().__init__(_copied(offsets))
        self.topic_ids = dict(topic_ids or {})
        """The ids of the topics, where they are known."""
        self.epochs = _copied(epochs)
        """The leader epochs of the records before the offsets, where they are known."""

    def followed_by(self, later: Offsets) -> ReadOffsets:
        """These, and the later ones of the topics and partitions that those have."""
        found = ReadOffsets(self, topic_ids=self.topic_ids, epochs=self.epochs)
        known = later if isinstance(later, ReadOffsets) else ReadOffsets(later)
        for topic, partitions in known.items():
            topic_id = found.topic_ids.pop(topic, None)
            if topic in known.topic_ids:
                if topic_id not in (None, known.topic_ids[topic]):  # deleted, and created again
                    found[topic], found.epochs[topic] = {}, {}
                found.topic_ids[topic] = known.topic_ids[topic]
            found.setdefault(topic, {}).update(partitions)
            kept = {
                each: epoch for each, epoch in found.epochs.get(topic, {}).items() if each not in partitions
            }
            found.epochs[topic] = kept | known.epochs.get(topic, {})
        return found


def _copied(offsets: Offsets | None) -> dict[str, dict[int, int]]:
    return {topic: dict(partitions) for topic, partitions in (offsets or {}).items()}


class Committed(NamedTuple):
    """The commit file of a batch."""

    number: int
    offsets: ReadOffsets
    """The next offset to read of each partition; empty if a streaming query keeps that in its checkpoint."""
    query_id: str | None
    """The id of the streaming query that wrote it; None for :meth:`ParquetOutput.commit`."""


class ParquetOutput:
    """A directory of Parquet batches, each committed with its offsets. One writer at a time."""

    def __init__(self, path: PathLike, *, files: Files | None = None) -> None:
        """
        Args:
            path: the directory; created with the first batch.
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
    def offsets(self) -> ReadOffsets:
        """The next offset to read of each partition, according to the newest batch; empty before the first
        batch."""
        last = self.last()
        return ReadOffsets() if last is None else last.offsets

    def commit(self, rows: DataFrame, offsets: Offsets, *, after: int | None = None) -> int:
        """Write the rows and the next offsets to read, in one atomic step. Returns the number of the batch.
        Topics that ``offsets`` does not name keep their offsets.

        Args:
            offsets: those of :func:`new_records` say more than numbers: by them the next call finds that a
                log was cut since, or a topic created again.
            after: the number of the batch that the rows follow (``last().number``, -1 for none). Default: the
                newest.

        Raises:
            RetriableError: another writer has committed since; nothing was written. Start again from
                :attr:`offsets`.
            UsageError: the output belongs to a streaming query.
            StorageError: the disk failed.
        """
        last = self.last()
        if last is not None and last.query_id is not None:
            raise UsageError(f"{self.path} is written by the streaming query {last.query_id}")
        previous = -1 if last is None else last.number
        if after is not None and after != previous:
            raise RetriableError(f"the newest batch of {self.path} is {previous} by now, not {after}")
        before = ReadOffsets() if last is None else last.offsets
        self._commit(rows, Committed(previous + 1, before.followed_by(offsets), None))
        return previous + 1

    def write_batch(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch of a streaming query: ``writeStream.foreachBatch(output.write_batch)``. Each batch is
        written exactly once, even if Spark passes it again after a crash. The offsets are in the query's
        checkpoint.

        Raises:
            UsageError: the output was written by another query (or by this one with another checkpoint, which
                counts batches from 0 again), or by :meth:`commit`; or it has a later batch of this query,
                which continues from an old copy of its checkpoint.
            StorageError: the disk failed.
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
        if batch_id < previous:  # only the last one is repeated after a crash
            raise UsageError(
                f"batch {batch_id} of {query_id} comes after batch {previous}, which is in {self.path} "
                "already: the checkpoint is a copy or was restored. Nothing was written, as its rows may be "
                "there already. Continue with the newest checkpoint, or begin with a new one and a new output"
            )
        if batch_id == previous + 1:
            self._commit(rows, Committed(batch_id, ReadOffsets(), query_id))

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
            topic_ids = {str(topic): str(topic_id) for topic, topic_id in commit.get("topic_ids", {}).items()}
            offsets, epochs = _numbers_of(commit["offsets"]), _numbers_of(commit.get("epochs", {}))
            known = ReadOffsets(offsets, topic_ids=topic_ids, epochs=epochs)
            return Committed(number, known, commit["query"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(f"is not the commit of batch {number}: {error!r}", path=path) from None

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
            "topic_ids": committed.offsets.topic_ids,
            "epochs": committed.offsets.epochs,
            "query": committed.query_id,
        }
        for entry in self._files.list_directory(staged):
            path = f"{staged}/{entry.name}"
            if entry.name.startswith("."):  # Hadoop's checksums, which would refuse a changed name
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
        self._files.rename(staged, target)  # fails if another writer was first: its directory is not empty
        self._files.flush_directory(self.path)

    def _remove_staged(self) -> None:
        """Remove what dead attempts have left."""
        if self._files.is_directory(self.path):
            entries = self._files.list_directory(self.path)
            staged = [f"{self.path}/{each.name}" for each in entries if each.name.startswith(_STAGED_PREFIX)]
            self._remove_trees(staged, "left by a dead attempt")

    def _remove_trees(self, paths: Sequence[str], reason: str) -> None:
        removals, files = Removals.of(self._files)
        try:
            for path in paths:
                _remove_tree(files, path)
        finally:
            if removals.count:
                told = (self.path, removals.count, removals.size_bytes, reason)
                inform("%s: removed %d files, %d bytes: %s", *told)


def _numbers_of(parsed: Any) -> Offsets:
    """By topic and partition."""
    return {
        topic: {int(partition): int(number) for partition, number in partitions.items()}
        for topic, partitions in parsed.items()
    }


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
