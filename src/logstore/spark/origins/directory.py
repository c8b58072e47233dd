"""The files of a directory: of a store, or of a Kafka broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import logstore
from logstore.errors import UnknownTopicError
from logstore.logdir.identity import guessed_topic_id
from logstore.model import Isolation, TopicPartition
from logstore.partition.state.context import make_context
from logstore.partition.watching.pinned import OnDamage, PinnedRange, PinnedReader
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.spark.origins.origin import Bounds, Origin, TopicPartitions

if TYPE_CHECKING:
    import pyarrow


class DirectoryOrigin(Origin):
    """A directory that every machine of the job has mounted at the same path."""

    def __init__(self, path: str, *, passes_damage: bool = False) -> None:
        """``path`` is absolute. With ``passes_damage``, damage at the end of a log is treated like damage
        elsewhere: records around it stay visible, and readers meet it when they get there."""
        self.path = path
        self._passes_damage = passes_damage
        self._store: logstore.Store | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_store": None}

    def _opened(self) -> logstore.Store:
        if self._store is None:
            self._store = logstore.open(self.path, read_only=True)
        return self._store

    def _log(self, partition: TopicPartition) -> ReadOnlyLog:
        return self._log_of(self._opened(), partition)

    def _log_of(self, store: logstore.Store, partition: TopicPartition) -> ReadOnlyLog:
        topic = store[partition.topic]
        if partition.partition >= len(topic):
            raise UnknownTopicError(
                f"topic {partition.topic!r} in {store.path} has {len(topic)} partitions; there is no "
                f"{partition.partition}"
            )
        log: Any = topic[partition.partition]
        assert isinstance(log, ReadOnlyLog)
        log.passes_damage = self._passes_damage
        return log

    def partitions(self) -> dict[str, TopicPartitions]:
        return {
            name: TopicPartitions(len(topic), topic.held_partitions) for name, topic in self._opened().items()
        }

    def topic_id(self, topic: str) -> str | None:
        topic_id = self._opened()[topic].topic_id
        return None if topic_id == guessed_topic_id(topic) else str(topic_id)

    def bounds(self, partition: TopicPartition, isolation: Isolation) -> Bounds:
        offsets = self._log(partition).readable_offsets(isolation)
        return Bounds(offsets.start, offsets.stop)

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        return self._log(partition).offset_at(timestamp_ms)

    def split(
        self, partition: TopicPartition, start: int, stop: int, parts: int, max_count: int | None
    ) -> list[int]:
        return self._log(partition).split(start, stop, parts=parts, max_count=max_count)

    def pin(self, partition: TopicPartition, start: int, stop: int, isolation: Isolation) -> PinnedRange:
        return self._log(partition).pin(start, stop, isolation=isolation)

    def reading(self, pinned: PinnedRange, on_damage: OnDamage | None) -> PinnedReader:
        def pin_anew(position: int) -> PinnedRange:
            with logstore.open(self.path, read_only=True) as store:
                log = self._log_of(store, pinned.partition)
                return log.pin(position, pinned.stop, isolation=pinned.isolation)

        return PinnedReader(pinned, make_context(self.path), pin_anew, on_damage)

    def read_latest(
        self,
        partition: TopicPartition,
        isolation: Isolation,
        columns: Iterable[str],
        batch_rows: int,
        batch_bytes: int,
    ) -> Iterator[pyarrow.RecordBatch]:
        log = self._log(partition)
        return iter(
            log.latest_arrow(
                isolation=isolation, columns=columns, batch_rows=batch_rows, batch_bytes=batch_bytes
            )
        )

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def __str__(self) -> str:
        return self.path
