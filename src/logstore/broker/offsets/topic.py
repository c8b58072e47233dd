"""The topic ``__consumer_offsets``: its settings, and which of its partitions has what of a group.

A group's offsets and metadata are all in one partition, so that a batch can hold a whole commit.
"""

from __future__ import annotations

from typing import Final

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import ReadOnlyError, TopicExistsError, UnknownTopicError
from logstore.format.names import OFFSETS_TOPIC
from logstore.logdir.directory import LogDirectory
from logstore.logdir.watched import WatchedDirectory
from logstore.model import TopicPartition
from logstore.partition.log import Log
from logstore.partition.watching.read_only import ReadOnlyLog

SEGMENT_BYTES: Final = 100 * 1024 * 1024
"""Kafka's ``offsets.topic.segment.bytes``. Segments of this topic are small, since compaction leaves little
of each."""

_INT32 = 1 << 32
_INT31 = 1 << 31


def java_hash(text: str) -> int:
    """What ``String.hashCode`` returns in Java: over UTF-16 units, from -2^31 to 2^31 - 1."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8 | units[at + 1])) % _INT32
    return found - _INT32 if found >= _INT31 else found


def partition_of(group: str, partition_count: int) -> int:
    """The partition of ``__consumer_offsets`` that has a group's records, as Kafka's clients and brokers find
    it: the absolute hash (0 for -2^31, which has none) modulo the number of partitions."""
    if partition_count == 1:
        return 0
    found = abs(java_hash(group))
    return 0 if found == _INT31 else found % partition_count


def config_of_offsets(config: StoreConfig) -> TopicConfig:
    """Kafka's settings for the topic. When a commit is flushed without being asked for is what the store
    says for all topics."""
    return TopicConfig(
        cleanup_policy="compact",
        compression_type="producer",
        segment_bytes=SEGMENT_BYTES,
        flush_ms=config.topic.flush_ms,
        flush_messages=config.topic.flush_messages,
    )


class OffsetsTopic:
    """The topic in one directory. It is made with the first commit."""

    def __init__(self, directory: LogDirectory | WatchedDirectory) -> None:
        self._directory = directory
        self._new_count = directory.config.offsets_topic_num_partitions
        self._was_there = False

    @property
    def is_there(self) -> bool:
        """Whether anything was ever committed here."""
        return self.find_count() is not None

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has; of one that is not there yet, how many it will have."""
        return self.find_count() or self._new_count

    def find_count(self) -> int | None:
        """How many partitions the topic has; None if it is not there."""
        if not self._was_there and OFFSETS_TOPIC not in self._directory.topic_names():
            return None  # which costs less than the error
        try:
            count = self._directory.topic(OFFSETS_TOPIC).partition_count
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
            directory.create_topic(OFFSETS_TOPIC, self._new_count, config_of_offsets(directory.config))
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
                f"{directory.path} was opened read-only; open it without read_only to change offsets"
            )
        return directory

    def log(self, number: int) -> Log | ReadOnlyLog:
        """The log of one partition.

        Raises:
            UnknownTopicError: the topic is not there, or the directory does not hold the partition.
            CorruptionError: the log could not be opened.
        """
        return self._directory.log(TopicPartition(OFFSETS_TOPIC, number))
