"""A directory of topics, open for reading only: no lock, nothing written, another process may be writing."""

from __future__ import annotations

import threading
import uuid

from logstore.clock import Clock
from logstore.config import StoreConfig
from logstore.errors import ClosedError, LogstoreError, UnknownTopicError
from logstore.files import Files
from logstore.format.names import partition_directory_name
from logstore.logdir.catalogue import TopicEntry, TopicState, read_catalogue
from logstore.logdir.identity import live_partition_counts, prepare_directory
from logstore.model import TopicPartition
from logstore.partition.context import make_context
from logstore.partition.watching import ReadOnlyLog


class WatchedDirectory:
    """The topics and logs of a directory that this process only reads. Lock: ``_lock`` guards the tables."""

    def __init__(
        self,
        path: str,
        *,
        config: StoreConfig | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        """
        Raises:
            UsageError: the path is not a store.
        """
        self.context = make_context(path, config=config, files=files, clock=clock)
        self.path = self.context.home.path
        self.config = self.context.config
        self.damaged: dict[TopicPartition, LogstoreError] = {}
        self._lock = threading.Lock()
        self._logs: dict[TopicPartition, ReadOnlyLog] = {}
        self._ids: dict[str, uuid.UUID] = {}
        self._is_closed = False
        prepare_directory(self.context.files, self.path, create=False)
        self.was_clean = self.context.home.has_clean_marker()
        self.context.home.load()

    def check_open(self) -> None:
        """
        Raises:
            ClosedError: the store is closed.
        """
        if self._is_closed:
            raise ClosedError(f"{self.path} is closed")

    def _topics(self) -> dict[str, TopicEntry]:
        """Read anew each time: the writer may create and delete topics."""
        self.check_open()
        topics = read_catalogue(self.context.files, self.path) or {}
        for name, count in live_partition_counts(self.context.files, self.path).items():
            if name not in topics:
                topic_id = self._ids.setdefault(name, uuid.uuid4())
                topics[name] = TopicEntry(
                    name=name, topic_id=topic_id, partition_count=count, config=self.config.topic
                )
        return {name: topic for name, topic in topics.items() if topic.state is TopicState.LIVE}

    def topic_names(self) -> list[str]:
        return sorted(self._topics())

    def topic(self, name: str) -> TopicEntry:
        """
        Raises:
            UnknownTopicError: there is no such topic.
        """
        topic = self._topics().get(name)
        if topic is None:
            raise UnknownTopicError(f"there is no topic {name!r} in {self.path}")
        return topic

    def log(self, partition: TopicPartition) -> ReadOnlyLog:
        """
        Raises:
            UnknownTopicError: there is no such partition.
        """
        self.check_open()
        with self._lock:
            log = self._logs.get(partition)
            if log is None:
                directory = f"{self.path}/{partition_directory_name(*partition)}"
                if not self.context.files.is_directory(directory):
                    raise UnknownTopicError(f"there is no partition {partition} in {self.path}")
                context = self.context
                log = ReadOnlyLog(
                    context.home, context.files, context.clock, context.open_segments, directory, partition
                )
                self._logs[partition] = log
            return log

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            self._logs.clear()
