"""Verification and compaction as Spark jobs, for more partitions than one process should handle."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import SparkSession

from logstore.arguments import check_list
from logstore.config import StoreConfig
from logstore.errors import LogstoreError, UnknownTopicError
from logstore.files import OsFiles, PathLike, check_path
from logstore.logdir.verify import verify_partition, verify_store_files
from logstore.logdir.watched import WatchedDirectory
from logstore.model import TopicPartition
from logstore.partition.checking.findings import VerifyReport, join_reports
from logstore.partition.cleaning.reports import CompactionReport
from logstore.showing import Table, show
from logstore.store import open_store

T = TypeVar("T")
R = TypeVar("R")


def verify(spark: SparkSession, path: PathLike, *, topics: Iterable[str] | None = None) -> VerifyReport:
    """Check a store as :meth:`logstore.Store.verify` does, with a Spark task for each partition. Changes
    nothing. Another process may be writing.

    Args:
        path: the store's directory, which the executors must see under the same name.
        topics: check only these. Default: all, and the store's own files.

    Raises:
        UsageError: the path is not a store, or ``topics`` is no list.
        UnknownTopicError: there is no such topic.
    """
    if topics is not None:
        check_list(topics, "topics", "topic names")
    began = time.monotonic()
    directory = WatchedDirectory(OsFiles().absolute(check_path(path)))
    try:
        names = directory.topic_names() if topics is None else list(topics)
        partitions: list[TopicPartition] = []
        for name in names:
            with (
                contextlib.nullcontext() if topics else contextlib.suppress(UnknownTopicError)
            ):  # deleted meanwhile
                held = directory.topic(name).held_partitions
                partitions += [TopicPartition(name, number) for number in held]
        own = [verify_store_files(directory)] if topics is None else []
        store = directory.path
    finally:
        directory.close()
    reports = _run_tasks(spark, lambda partition: _verify(store, partition), partitions)
    return join_reports([*own, *reports], round((time.monotonic() - began) * 1000))


def _verify(path: str, partition: TopicPartition) -> VerifyReport:
    """Runs in an executor."""
    directory = WatchedDirectory(path)
    try:
        return verify_partition(directory, partition)
    except UnknownTopicError:  # deleted meanwhile
        return VerifyReport(partition_count=0)
    finally:
        directory.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionJob:
    """What a compaction of many stores did. True if nothing failed."""

    reports: Mapping[str, Mapping[TopicPartition, CompactionReport]]
    """The reports, by the store's path."""
    failures: Mapping[str, Sequence[str]]
    """What could not be compacted, and why, by the store's path. Everything else was compacted."""
    elapsed_ms: int

    def __bool__(self) -> bool:
        return not self.failures

    @property
    def saved_bytes(self) -> int:
        return sum(report.saved_bytes for store in self.reports.values() for report in store.values())

    def __str__(self) -> str:
        logs = [report for store in self.reports.values() for report in store.values()]
        lines = [
            f"{len(logs)} logs of {len(self.reports)} stores in {self.elapsed_ms} ms: "
            f"{sum(report.size_bytes_before for report in logs)} bytes became "
            f"{sum(report.size_bytes_after for report in logs)}"
        ]
        lines += [f"  {path}: {reason}" for path, reasons in self.failures.items() for reason in reasons]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What a notebook shows: the logs' sizes, and what could not be compacted."""
        logs = [
            (path, report.partition, report.size_bytes_before, report.size_bytes_after, report.elapsed_ms)
            for path, reports in self.reports.items()
            for report in reports.values()
        ]
        failures = [(path, reason) for path, reasons in self.failures.items() for reason in reasons]
        names = ("store", "partition", "bytes before", "bytes after", "ms")
        parts = [Table(names, logs, len(logs))]
        if failures:
            parts.append(Table(("store", "failure"), failures, len(failures)))
        return show(f"CompactionJob: {self.elapsed_ms} ms", parts)


def compact(spark: SparkSession, paths: Sequence[PathLike], *, now: bool = False) -> CompactionJob:
    """Compact the compacted topics of many stores, with a Spark task for each store.

    A store has one writer, so one task compacts a store's partitions one after the other. The data directory
    of each broker of a cluster is a store. A store that is open for writing elsewhere is left alone, and
    listed in ``failures``.

    Args:
        paths: the stores' directories, which the executors must see under the same names.
        now: also compact logs that are not dirty enough yet, as in :meth:`logstore.Log.compact`.

    Raises:
        UsageError: ``paths`` is no list, or has what is no path.
    """
    check_list(paths, "paths", "directories")
    began = time.monotonic()
    stores = [OsFiles().absolute(check_path(path)) for path in paths]
    results = _run_tasks(spark, lambda path: _compact(path, now), stores)
    reports = {path: done for path, (done, _) in zip(stores, results, strict=True)}
    failures = {path: failed for path, (_, failed) in zip(stores, results, strict=True) if failed}
    return CompactionJob(
        reports=reports, failures=failures, elapsed_ms=round((time.monotonic() - began) * 1000)
    )


def _compact(path: str, now: bool) -> tuple[dict[TopicPartition, CompactionReport], list[str]]:
    """Runs in an executor. Returns what was done, and what failed."""
    reports: dict[TopicPartition, CompactionReport] = {}
    failures: list[str] = []
    try:
        with open_store(path, create=False, config=StoreConfig(log_cleaner_enable=False)) as store:
            for topic in store.values():
                for number in topic.held_partitions if topic.config.compacts else ():
                    try:
                        reports[TopicPartition(topic.name, number)] = topic[number].compact(now=now)
                    except LogstoreError as error:
                        failures.append(f"{topic.name}-{number}: {type(error).__name__}: {error}")
    except LogstoreError as error:
        failures.append(f"{type(error).__name__}: {error}")
    return reports, failures


def _run_tasks(spark: SparkSession, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Run ``action`` for each item, in a task of its own; returns the results in the order of the items.
    Spark may run a failed task again, so ``action`` must be repeatable."""
    return spark.sparkContext.parallelize(items, max(len(items), 1)).map(action).collect()
