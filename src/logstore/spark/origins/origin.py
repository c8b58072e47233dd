"""Where records come from: what readers know of it.

An :class:`Origin` is created on the driver and pickled into tasks; it opens what it needs at first use.
Readers know only this class, so another source of bytes needs only another subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from logstore.errors import UnknownTopicError
from logstore.model import Isolation, TopicPartition
from logstore.partition.watching.pinned import OnDamage

if TYPE_CHECKING:
    import pyarrow

    from logstore.partition.reading.arrow import ColumnPlan


class Bounds(NamedTuple):
    """The readable offsets of a partition: ``[start, end)``."""

    start: int
    end: int


class ReadUpTo(NamedTuple):
    """What somebody has read of a partition."""

    offset: int
    """The next one."""
    epoch: int
    """The leader epoch of the record before it."""


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

    skips_damage = True
    """Whether :meth:`reading` can continue after a damaged place."""

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

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str | None]:
        """The ids of several topics, as they are now; those that do not exist are left out."""
        found = {}
        for topic in topics:
            with suppress(UnknownTopicError):
                found[topic] = self.topic_id(topic)
        return found

    @abstractmethod
    def bounds(self, partition: TopicPartition, isolation: Isolation) -> Bounds:
        """The readable offsets of a partition now.

        Raises:
            UnknownTopicError: there is no such partition.
        """

    def bounds_of(
        self, partitions: Iterable[TopicPartition], isolation: Isolation
    ) -> dict[TopicPartition, Bounds]:
        """The readable offsets of several partitions; those that do not exist are left out."""
        found = {}
        for partition in partitions:
            with suppress(UnknownTopicError):
                found[partition] = self.bounds(partition, isolation)
        return found

    @abstractmethod
    def epochs_before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The leader epochs of the records before offsets. Partitions for which it is unknown are left out,
        as in logs of very old brokers."""

    @abstractmethod
    def parted(self, read: Mapping[TopicPartition, ReadUpTo]) -> dict[TopicPartition, int]:
        """Where logs have other records than those that were read: since which offset at the latest, at most
        :attr:`ReadUpTo.offset` (KIP-320). Logs that only end earlier may be among them, with their ends. A
        log that has what was read is left out, and one that cannot tell.

        A log that is cut goes on in a later leader epoch, so the record before the offset shows it.
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
