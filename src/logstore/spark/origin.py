"""Where records come from: for now, a directory.

An :class:`Origin` is created on the driver and pickled into tasks; it opens what it needs at first use.
Readers know only this class, so another source of bytes needs only another subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import logstore
from logstore.errors import UnknownTopicError
from logstore.logdir.identity import guessed_topic_id
from logstore.model import Isolation, TopicPartition
from logstore.partition.state.context import make_context
from logstore.partition.watching.pinned import OnDamage, PinnedRange, PinnedReader
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.spark.options import skips_corrupt_batches

if TYPE_CHECKING:
    import pyarrow

    from logstore.partition.reading.arrow import ColumnPlan
    from logstore.spark.options import Options


class Bounds(NamedTuple):
    """The readable offsets of a partition: ``[start, end)``."""

    start: int
    end: int


class TopicPartitions(NamedTuple):
    """The partitions of a topic."""

    partition_count: int
    """The number of all partitions, in any directory."""
    held: tuple[int, ...]
    """The numbers of the partitions in this directory, rising."""


class Reading(Protocol):
    """One pass over a range."""

    @property
    def position(self) -> int:
        """The offset to continue from: everything below it was returned, or does not exist."""
        ...

    def columns(self, plan: ColumnPlan) -> Iterator[pyarrow.RecordBatch]:
        """The records as :meth:`logstore.Log.iterate_arrow` returns them.

        Raises:
            CorruptionError: a batch is damaged. Everything before it was returned.
            OffsetOutOfRangeError: the next records were deleted or cut off meanwhile.
            UnknownTopicError: the topic was deleted.
        """
        ...


class Origin(ABC):
    """Topics and their records. Tasks use :meth:`reading` and :meth:`read_latest`; the rest is for the
    driver."""

    @abstractmethod
    def partitions(self) -> dict[str, TopicPartitions]:
        """The partitions of every existing topic, by name."""

    @abstractmethod
    def topic_id(self, topic: str) -> str | None:
        """The topic's id, which changes when the topic is deleted and created again. None if it has none, as
        an old broker leaves it.

        Raises:
            UnknownTopicError: there is no such topic.
        """

    @abstractmethod
    def bounds(self, partition: TopicPartition, isolation: Isolation) -> Bounds:
        """The readable offsets of a partition now.

        Raises:
            UnknownTopicError: there is no such partition.
        """

    @abstractmethod
    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """The offset of the first record at or after a time; None if there is none."""

    @abstractmethod
    def split(
        self, partition: TopicPartition, start: int, stop: int, parts: int, max_count: int | None
    ) -> list[int]:
        """Offsets that cut a range into pieces; see :meth:`logstore.Log.split`."""

    @abstractmethod
    def pin(self, partition: TopicPartition, start: int, stop: int, isolation: Isolation) -> Any:
        """What :meth:`reading` needs to know about a range. Can be pickled.

        Raises:
            OffsetOutOfRangeError: the range cannot be read now.
        """

    @abstractmethod
    def reading(self, pinned: Any, on_damage: OnDamage | None) -> Reading:
        """Begin to read what was pinned, possibly in another process. ``on_damage`` is called for each
        damaged place, which is skipped; without it, damage is an error."""

    @abstractmethod
    def read_latest(
        self,
        partition: TopicPartition,
        isolation: Isolation,
        columns: Iterable[str],
        batch_rows: int,
        batch_bytes: int,
    ) -> Iterator[pyarrow.RecordBatch]:
        """The current record of each key, as :meth:`logstore.Log.latest_arrow` returns them."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open; the next call opens it again."""

    @abstractmethod
    def __str__(self) -> str:
        """The name for error messages."""


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


def origin_of(options: Options) -> Origin:
    """The origin for the options of a read."""
    return DirectoryOrigin(options.directory(), passes_damage=skips_corrupt_batches(options))
