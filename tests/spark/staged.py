"""The little language of the tests about commits: stage, commit, read back; no Spark in it."""

from __future__ import annotations

from typing import Any

import pytest

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.files import Files
from logstore.partition.encoding.row_encoder import RowEncoder
from logstore.spark import commits, placing, staging
from logstore.spark.commits import Commits, opened
from logstore.spark.ledger import COMMITS_TOPIC
from logstore.spark.staging import StagedFile, StagedWriter, Target, is_staged_name, staged_name
from logstore.testing import ManualClock, MemoryFiles

PATH = "/store"
SINK = "query of the test"
START_MS = 1_700_000_000_000


def move_all(monkeypatch: Any) -> None:
    """Give each partition its own file from its first batch on, and let each such file become a segment."""
    monkeypatch.setattr(staging, "OWN_FILE_BYTES", 1)
    monkeypatch.setattr(placing, "MOVED_FROM_BYTES", 1)
    monkeypatch.setattr(placing, "_SEGMENTS_FOR_ONE", 2**40)


class Place:
    """A store on a disk, with what is staged into it and committed."""

    def __init__(self, files: Files | None = None, path: str = PATH) -> None:
        self.files = files or MemoryFiles()
        self.path = path
        self.clock = ManualClock()

    def create(self, name: str = "t", partitions: int = 2, **settings: Any) -> None:
        with self.open() as store:
            store.create_topic(name, partitions=partitions, config=TopicConfig(**settings))

    def open(self, **options: Any) -> logstore.Store:
        config = StoreConfig(linger_ms=0, log_cleaner_enable=False, num_recovery_threads_per_data_dir=1)
        return logstore.open(self.path, files=self.files, clock=self.clock, config=config, **options)

    def target(self, partition: int, topic: str = "t") -> Target:
        with self.open(read_only=True) as store:
            return Target(topic, str(store[topic].topic_id), partition)

    def stage(self, rows: dict[int, list[bytes]], **options: Any) -> StagedFile:
        """Stage the only file of a task."""
        [staged] = self.stage_all(rows, **options)
        return staged

    def stage_all(
        self,
        rows: dict[int, list[bytes]],
        *,
        batch: int = 0,
        task: int = 0,
        sink: str = SINK,
        topic: str = "t",
    ) -> list[StagedFile]:
        """Stage a task's files: two records per batch, partitions in turn."""
        with self.open(read_only=True) as store:
            config, topic_id = store[topic].config, str(store[topic].topic_id)
        encoder = RowEncoder(StoreConfig(), config)
        writer = StagedWriter(self.files, self.path, lambda: staged_name(sink, batch, task))
        for start in range(0, max(map(len, rows.values()), default=0), 2):
            for partition, values in rows.items():
                part = [(value, value) for value in values[start : start + 2]]
                if part:
                    target = Target(topic, topic_id, partition)
                    writer.append(target, encoder.encode(part, START_MS), config.segment_bytes)
        return writer.finish()

    def commit(self, *files: StagedFile, batch: int = 0, sink: str = SINK, **options: Any) -> Any:
        with opened(self.path, 0, self.files, self.clock) as store:
            return self.commits(store).commit(sink, batch, files, **options)

    def finish_all(self) -> list[tuple[str, int]]:
        with opened(self.path, 0, self.files, self.clock) as store:
            return self.commits(store).finish_all()

    def commits(self, store: logstore.Store) -> Commits:
        return Commits(store, self.files, self.clock)

    def values(self, topic: str = "t") -> dict[int, list[bytes]]:
        """The values in each partition."""
        with self.open(read_only=True) as store:
            return {number: [bytes(r.value) for r in log] for number, log in enumerate(store[topic])}

    def staged_names(self) -> list[str]:
        return [entry.name for entry in self.files.list_directory(self.path) if is_staged_name(entry.name)]

    def verify(self) -> None:
        with self.open(read_only=True) as store:
            report = store.verify()
            assert report, str(report)
            assert set(store) <= {"t", "u", COMMITS_TOPIC}


class Stop(BaseException):
    """The process ends here."""


def stop_at(monkeypatch: Any, step: str, skip: int = 0) -> None:
    """Let commits end at a step, as a killed process does, after passing it ``skip`` times."""
    left = [skip]

    def reached(name: str) -> None:
        if name == step:
            left[0] -= 1
            if left[0] < 0:
                raise Stop

    monkeypatch.setattr(commits, "reached", reached)


def dies(place: Place, *files: StagedFile, **options: Any) -> None:
    """Run a commit in a process that dies at the chosen step: nothing is closed."""
    store = place.open()
    with pytest.raises(Stop):
        place.commits(store).commit(SINK, options.pop("batch", 0), files, **options)
    store._directory.abandon()
