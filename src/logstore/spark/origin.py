"""Where records come from: a directory today.

An :class:`Origin` is made on the driver and pickled into tasks; it opens what it needs when it is first
asked. Readers know no more than this class, so that another way to get at the bytes is one more subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import logstore
from logstore.errors import UnknownTopicError
from logstore.logdir.identity import guessed_topic_id
from logstore.model import Isolation, TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from logstore.partition.readable import ReadableLog
    from logstore.spark.options import Options


class Bounds(NamedTuple):
    """What can be read of a partition: offsets ``[start, end)``."""

    start: int
    end: int


class Origin(ABC):
    """Topics and their records. All methods but :meth:`read` are called on the driver."""

    @abstractmethod
    def partition_counts(self) -> dict[str, int]:
        """The number of partitions of every topic there is now, by name."""

    @abstractmethod
    def topic_id(self, topic: str) -> str | None:
        """The topic's id: another one after the topic was deleted and created again. None if it has none,
        which an old broker leaves.

        Raises:
            UnknownTopicError: there is no such topic.
        """

    @abstractmethod
    def bounds(self, partition: TopicPartition, isolation: Isolation) -> Bounds:
        """What can be read of a partition now.

        Raises:
            UnknownTopicError: there is no such partition.
        """

    @abstractmethod
    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """The offset of the first record at or after a time; None if there is none."""

    @abstractmethod
    def split(self, partition: TopicPartition, start: int, stop: int, parts: int) -> list[int]:
        """Offsets that cut ``[start, stop)`` into about ``parts`` pieces of about equal bytes, at places
        where reading begins without a detour; fewer where there are no such places."""

    @abstractmethod
    def read(
        self,
        partition: TopicPartition,
        start: int,
        stop: int,
        isolation: Isolation,
        columns: Iterable[str],
        batch_rows: int,
        batch_bytes: int,
    ) -> Iterator[pyarrow.RecordBatch]:
        """The records of ``[start, stop)`` as :meth:`logstore.Log.iterate_arrow` gives them."""

    @abstractmethod
    def read_latest(
        self,
        partition: TopicPartition,
        isolation: Isolation,
        columns: Iterable[str],
        batch_rows: int,
        batch_bytes: int,
    ) -> Iterator[pyarrow.RecordBatch]:
        """The current record of each key as :meth:`logstore.Log.latest_arrow` gives them."""

    @abstractmethod
    def close(self) -> None:
        """Forget what is open. It opens again when it is asked again."""

    @abstractmethod
    def __str__(self) -> str:
        """As error messages name it."""


class DirectoryOrigin(Origin):
    """A directory that every machine of the job has mounted at the same path."""

    def __init__(self, path: str) -> None:
        """``path`` is absolute."""
        self.path = path
        self._store: logstore.Store | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_store": None}

    def _opened(self) -> logstore.Store:
        if self._store is None:
            self._store = logstore.open(self.path, read_only=True)
        return self._store

    def _log(self, partition: TopicPartition) -> ReadableLog:
        topic = self._opened()[partition.topic]
        if partition.partition >= len(topic):
            raise UnknownTopicError(
                f"topic {partition.topic!r} in {self.path} has {len(topic)} partitions; there is no "
                f"{partition.partition}"
            )
        return topic[partition.partition]

    def partition_counts(self) -> dict[str, int]:
        return {name: len(topic) for name, topic in self._opened().items()}

    def topic_id(self, topic: str) -> str | None:
        topic_id = self._opened()[topic].topic_id
        return None if topic_id == guessed_topic_id(topic) else str(topic_id)

    def bounds(self, partition: TopicPartition, isolation: Isolation) -> Bounds:
        offsets = self._log(partition).readable_offsets(isolation)
        return Bounds(offsets.start, offsets.stop)

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        return self._log(partition).offset_at(timestamp_ms)

    def split(self, partition: TopicPartition, start: int, stop: int, parts: int) -> list[int]:
        return []

    def read(
        self,
        partition: TopicPartition,
        start: int,
        stop: int,
        isolation: Isolation,
        columns: Iterable[str],
        batch_rows: int,
        batch_bytes: int,
    ) -> Iterator[pyarrow.RecordBatch]:
        log = self._log(partition)
        return iter(
            log.iterate_arrow(
                start,
                stop,
                isolation=isolation,
                columns=columns,
                batch_rows=batch_rows,
                batch_bytes=batch_bytes,
            )
        )

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


def origin_of(options: Options) -> Origin:
    """The origin that a read's options name."""
    return DirectoryOrigin(options.directory())
