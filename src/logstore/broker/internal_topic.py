"""The topics in which a broker keeps its own state: with small segments, and compacted or without limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import ReadOnlyError, RetriableError, TopicExistsError, UnknownTopicError
from logstore.logdir.directory import LogDirectory
from logstore.logdir.watched import WatchedDirectory
from logstore.model import Role, TopicPartition
from logstore.partition.log import Log
from logstore.partition.watching.read_only import ReadOnlyLog

SEGMENT_BYTES: Final = 100 * 1024 * 1024
"""Kafka's ``offsets.topic.segment.bytes``, ``transaction.state.log.segment.bytes`` and
``share.coordinator.state.topic.segment.bytes``. Compaction leaves little of each segment."""

PART_BYTES: Final = 256 * 1024
"""Rows that need not be in one batch are written in batches of about this size."""
_ROW_OVERHEAD_BYTES: Final = 20

Row = tuple[bytes, bytes | None]
"""Key and value of a record."""


def parts_of(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in parts of about :data:`PART_BYTES`."""
    part: list[Row] = []
    size = 0
    for row in rows:
        key, value = row
        size_of_row = len(key) + len(value or b"") + _ROW_OVERHEAD_BYTES
        if part and size + size_of_row > PART_BYTES:
            yield part
            part, size = [], 0
        part.append(row)
        size += size_of_row
    if part:
        yield part


def internal_config(config: StoreConfig, *, is_compacted: bool) -> TopicConfig:
    """Kafka's settings for such a topic. When it is flushed without being asked for, and whether those who
    ask wait for it, is what the store says for all topics."""
    compacted = TopicConfig(
        cleanup_policy="compact",
        compression_type="producer",
        segment_bytes=SEGMENT_BYTES,
        flush_ms=config.topic.flush_ms,
        flush_messages=config.topic.flush_messages,
        acks_all_durable=config.topic.acks_all_durable,
    )
    if is_compacted:
        return compacted
    return replace(compacted, cleanup_policy="delete", retention_ms=-1, retention_bytes=-1)


class InternalTopic:
    """One such topic in one directory. It is made when it is first needed."""

    def __init__(
        self,
        directory: LogDirectory | WatchedDirectory,
        name: str,
        new_count: int,
        holds: str,
        *,
        is_compacted: bool = True,
    ) -> None:
        """``new_count``: how many partitions it gets; ``holds``: what is in it, for errors. One that is not
        compacted keeps its records until :meth:`.Log.delete_before`."""
        self._directory = directory
        self.name = name
        self._new_count = new_count
        self._holds = holds
        self._is_compacted = is_compacted
        self._was_there = False

    @property
    def is_there(self) -> bool:
        """Whether anything was ever stored here."""
        return self.find_count() is not None

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has; of one that is not there yet, how many it will have."""
        return self.find_count() or self._new_count

    def find_count(self) -> int | None:
        """How many partitions the topic has; None if it is not there."""
        if not self._was_there and self.name not in self._directory.topic_names():
            return None  # which costs less than the error
        try:
            count = self._directory.topic(self.name).partition_count
        except UnknownTopicError:
            self._was_there = False
            return None
        self._was_there = True
        return count

    def require(self) -> None:
        """Make the topic, durably, if it is not there.

        Raises:
            ReadOnlyError: the directory is open for reading only.
            UsageError: the directory is a broker's, in which only the broker makes topics.
        """
        directory = self.writable()
        if self.is_there:
            return
        try:
            config = internal_config(directory.config, is_compacted=self._is_compacted)
            directory.create_topic(self.name, self._new_count, config)
        except TopicExistsError:
            if not self.is_there:
                raise  # the name clashes with another's; else another thread was faster

    def writable(self) -> LogDirectory:
        """The directory, to change something.

        Raises:
            ReadOnlyError: it is open for reading only.
        """
        directory = self._directory
        if not isinstance(directory, LogDirectory):
            raise ReadOnlyError(
                f"{directory.path} was opened read-only; open it without read_only to change {self._holds}"
            )
        return directory

    def log_to_change(self, number: int) -> Log:
        """The log of one partition, to append to it. Raises as :meth:`log`.

        Raises:
            RetriableError: it is a follower's: only its leader appends to it.
            ReadOnlyError: the directory is open for reading only.
        """
        self.writable()
        log = self.log(number)
        assert isinstance(log, Log)
        if log.role is Role.FOLLOWER:
            raise RetriableError(f"{log.partition} is led by another node; ask that")
        return log

    def log(self, number: int) -> Log | ReadOnlyLog:
        """The log of one partition.

        Raises:
            UnknownTopicError: the topic is not there, or the directory does not hold the partition.
            CorruptionError: the log could not be opened.
        """
        return self._directory.log(TopicPartition(self.name, number))
