"""A directory of topics, open for reading only: no lock, nothing written, another process may be writing."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence

from logstore.arguments import did_you_mean, plain_text, shown
from logstore.clock import Clock
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import CorruptionError, LogstoreError, UnknownTopicError
from logstore.files import Files, OsFiles
from logstore.format.names import CLUSTER_METADATA_NAME, partition_directory_name
from logstore.large_files import real_path
from logstore.logdir.catalogue import TopicEntry, TopicState, read_catalogue
from logstore.logdir.cluster import WatchedCluster, broker_settings
from logstore.logdir.held import not_held
from logstore.logdir.identity import (
    check_topic_id,
    guessed_topic_id,
    is_brokers_directory,
    list_partitions,
    missing_directory,
    prepare_directory,
    stored_topic_id,
    unknown_partitions,
)
from logstore.logdir.topics import as_broker_left, deleted_unstored, entry_of_directories
from logstore.model import TopicPartition
from logstore.partition.checking.findings import VerifyReport
from logstore.partition.state.context import make_context
from logstore.partition.watching.files import Watch, WatchedCheckpoints
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.partition.watching.waiting import Waiting


class WatchedDirectory:
    """The topics and logs of a directory that this process only reads. Lock: ``_lock`` guards the tables."""

    def __init__(
        self,
        path: str,
        *,
        config: StoreConfig | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        ignores_catalogue: bool = False,
    ) -> None:
        """
        Args:
            ignores_catalogue: take the topics from the partition directories alone, to look into a store of
                which the catalogue is damaged.

        Raises:
            UsageError: the path is not a store.
            CorruptionError: the catalogue is damaged.
        """
        path = real_path(
            files or OsFiles(), path
        )  # a link that is swung leads the next open elsewhere, not this
        self.context = make_context(path, config=config, files=files, clock=clock)
        self.path = self.context.home.path
        self.config = self.context.config
        self.damaged: dict[TopicPartition, LogstoreError] = {}
        """Always empty: damage is found when a log is read."""
        self.damage_found: dict[TopicPartition, VerifyReport] = {}
        """Always empty: only the writer scrubs."""
        self._files = self.context.files
        self._checkpoints = WatchedCheckpoints(self.context.home, self._files, self.context.clock)
        self._lock = threading.Lock()
        self._ignores_catalogue = ignores_catalogue
        self._names = Watch(self._files, self.context.clock, self.path)
        self._topics: dict[str, TopicEntry] = {}
        self._cluster = WatchedCluster(self._files, f"{self.path}/{CLUSTER_METADATA_NAME}")
        self._unknown: set[str] = set()
        """Topics that are in no catalogue, so their settings are not known."""
        self._logs: dict[TopicPartition, tuple[uuid.UUID, ReadOnlyLog]] = {}
        self._is_closed = False
        prepare_directory(self._files, self.path, create=False)
        self._checkpoints.check_place()
        self.was_clean = self.context.home.has_clean_marker()
        self._live_topics()

    def check_open(self) -> None:
        """
        Raises:
            ForkedError: this process is a child of the one that opened the store.
            ClosedError: the store is closed.
        """
        self.context.fork_flag.check_usable(self.path, is_closed=self._is_closed)

    # Topics

    def _live_topics(self) -> dict[str, TopicEntry]:
        """The topics now; the writer may create and delete some at any time."""
        self.check_open()
        self._checkpoints.check_place()
        with self._lock:
            if self._names.has_changed():
                try:
                    self._topics = self._read_topics_locked()
                except BaseException:
                    self._names.forget()
                    raise
                self._drop_logs_locked()
            return self._topics

    def _drop_logs_locked(self) -> None:
        """Forget the logs of deleted topics and of partitions that are no longer held, and close their
        files so that the disk gets the space."""
        for partition, (topic_id, log) in list(self._logs.items()):
            topic = self._topics.get(partition.topic)
            if topic is None or topic.topic_id != topic_id or not topic.holds(partition.partition):
                del self._logs[partition]
                log.let_go()

    def _read_topics_locked(self) -> dict[str, TopicEntry]:
        """The topics of the catalogue, and those of directories that it does not know. Reads the catalogue
        again after the directories, because a topic may have been created in between."""
        topics = self._read_catalogue()
        listed = list_partitions(self._files, self.path)
        unknown = unknown_partitions(self._files, self.path, listed, topics)
        if unknown:
            topics = self._read_catalogue()
        for name in deleted_unstored(self._files, self.path, listed, topics):
            del topics[name]
        self._unknown = {name for name in unknown if name not in topics}
        for name in self._unknown:
            topics[name] = self._guess_locked(name, unknown[name])
        return {name: topic for name, topic in topics.items() if topic.state is TopicState.LIVE}

    def _read_catalogue(self) -> dict[str, TopicEntry]:
        topics = {} if self._ignores_catalogue else read_catalogue(self._files, self.path)
        if not topics or not is_brokers_directory(self._files, self.path):
            return topics or {}
        return as_broker_left(self._files, self.path, topics)

    def _guess_locked(self, name: str, numbers: set[int]) -> TopicEntry:
        topic_id = stored_topic_id(self._files, self.path, name, numbers)
        if topic_id is None:
            topic_id = guessed_topic_id(name)
        return entry_of_directories(name, topic_id, numbers, self.config.topic)

    def topic_names(self) -> list[str]:
        return sorted(self._live_topics())

    def topic(self, name: str) -> TopicEntry:
        """
        Raises:
            UnknownTopicError: there is no such topic.
        """
        topic = self._find(name)
        if topic is None:
            hint = did_you_mean(name, self.topic_names())
            raise UnknownTopicError(f"there is no topic {shown(name)} in {self.path}{hint}")
        return topic

    def has_topic(self, name: object) -> bool:
        return self._find(name) is not None

    def _find(self, name: object) -> TopicEntry | None:
        name = plain_text(name)
        return self._live_topics().get(name) if type(name) is str else None

    def waiting(self, directories: Sequence[str]) -> Waiting:
        """How a follower waits for changes in partition directories, and in this one, which has the
        checkpoints."""
        return Waiting(self._files, [self.path, *directories])

    def config_of(self, name: str) -> TopicConfig:
        """The settings of a topic; in a broker's directory, those made in the broker.

        Raises:
            UnknownTopicError: there is no such topic.
            CorruptionError, UnsupportedVersionError: the broker's metadata cannot be read.
            InvalidConfigError: a setting has a value that it cannot have here.
        """
        topic = self.topic(name)
        if topic.name not in self._unknown:
            return topic.config
        return broker_settings(self._cluster.current().get(topic.name), topic.config)[0]

    # Logs

    def log(self, partition: TopicPartition) -> ReadOnlyLog:
        """
        Raises:
            UnknownTopicError: there is no such partition, or the directory does not hold it.
            CorruptionError: its directory is missing, or belongs to another topic.
        """
        topic = self.topic(partition.topic)
        topic_id = topic.topic_id
        with self._lock:
            known_id, log = self._logs.get(partition, (None, None))
            if log is None or known_id != topic_id:
                self._check_held(topic, partition)
                log = self._open_locked(partition)
                self._logs[partition] = (topic_id, log)
            return log

    def _check_held(self, topic: TopicEntry, partition: TopicPartition) -> None:
        if 0 <= partition.partition < topic.partition_count and not topic.holds(partition.partition):
            raise not_held(topic, partition.partition, self.path)

    def _open_locked(self, partition: TopicPartition) -> ReadOnlyLog:
        directory = f"{self.path}/{partition_directory_name(*partition)}"
        if not self._files.is_directory(directory):
            now = self._read_topics_locked().get(partition.topic)
            if now is None:
                raise UnknownTopicError(f"topic {partition.topic!r} was deleted from {self.path}")
            self._check_held(now, partition)
            if not now.holds(partition.partition):  # one after the other goes where a broker deletes a topic
                raise UnknownTopicError(f"{partition} was deleted from {self.path}")
            raise missing_directory(self._files, self.path, partition)
        self._check_topic_id_locked(partition.topic, directory)
        topic = self._topics.get(partition.topic)
        config = None if topic is None or topic.name in self._unknown else topic.config
        return ReadOnlyLog(self.context, self._checkpoints, directory, partition, config)

    def _check_topic_id_locked(self, name: str, directory: str) -> None:
        """Check the topic id in a directory. A foreign id may also be that of a new topic of the same name;
        in that case the catalogue already has it, because the entry is written before the directories."""
        topic = self._topics.get(name)
        if topic is None:
            return
        try:
            check_topic_id(self._files, directory, name, topic.topic_id)
        except CorruptionError:
            now = self._read_topics_locked().get(name)
            if now is None or now.topic_id != topic.topic_id:
                raise UnknownTopicError(f"topic {name!r} was deleted from {self.path}") from None
            raise

    def close(self) -> None:
        """Forget everything; followers of a log get ClosedError."""
        self._is_closed = True
        if not self.context.fork_flag.is_forked:
            with self._lock:
                for _, log in self._logs.values():
                    log.close()
                self._logs.clear()
