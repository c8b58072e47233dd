"""One end of a handover: a directory that this process locks meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from logstore.broker.share.stored import ShareState
from logstore.broker.storing.shares import ShareStorage
from logstore.clock import Clock
from logstore.config import TopicConfig
from logstore.errors import LockedError, UsageError
from logstore.files import Files
from logstore.format.messages.share_records import ShareKey
from logstore.format.names import CLUSTER_METADATA_NAME, SHARE_STATE_TOPIC, partition_directory_name
from logstore.logdir.catalogue import TopicEntry
from logstore.logdir.cluster import ClusterTopic, broker_settings, read_cluster_topics
from logstore.logdir.identity import is_brokers_directory
from logstore.logdir.topics import keep_everything
from logstore.logdir.watched import WatchedDirectory
from logstore.model import TopicPartition
from logstore.partition.state.home import META_PROPERTIES_NAME, LogHome
from logstore.partition.watching.read_only import ReadOnlyLog


class Place:
    """A directory of topics, a store's or a broker's. Reading its topics changes nothing."""

    def __init__(self, files: Files, clock: Clock, path: str, metadata: str | None) -> None:
        """
        Raises:
            UsageError: the path is not a directory of topics.
            CorruptionError, UnsupportedVersionError: the catalogue or the broker's metadata cannot be read.
        """
        self.files = files
        self.path = path
        self.home = LogHome(files, path)
        self.is_brokers = is_brokers_directory(files, path)
        self.cluster = self._read_cluster(metadata)
        self._watched = WatchedDirectory(path, files=files, clock=clock)

    def _read_cluster(self, metadata: str | None) -> dict[str, ClusterTopic] | None:
        if not self.is_brokers:
            if metadata is not None:
                raise UsageError(
                    f"{self.path} is not a broker's log directory, by its {META_PROPERTIES_NAME} or for want "
                    "of one, so it has no metadata elsewhere. Restore that file if a broker made the "
                    "directory; else leave the metadata out"
                )
            return None
        at = metadata or self.path
        if at.rpartition("/")[2] != CLUSTER_METADATA_NAME:
            at = f"{at}/{CLUSTER_METADATA_NAME}"
        topics = read_cluster_topics(self.files, at)
        if topics is None and metadata is not None:
            raise UsageError(f"{at} does not exist; give the directory that metadata.log.dir names")
        return topics

    def topic_names(self) -> list[str]:
        return self._watched.topic_names()

    def topic(self, name: str) -> TopicEntry:
        return self._watched.topic(name)

    def partition_count(self, name: str) -> int:
        """How many partitions a topic has in all directories, as far as this directory tells."""
        told = self.cluster.get(name) if self.cluster is not None else None
        return max(self.topic(name).partition_count, told.partition_count if told is not None else 0)

    def log(self, partition: TopicPartition) -> ReadOnlyLog:
        return self._watched.log(partition)

    def directory_of(self, partition: TopicPartition) -> str:
        return f"{self.path}/{partition_directory_name(*partition)}"

    def settings_of(self, name: str) -> tuple[TopicConfig, list[str]]:
        """The settings of a topic, and the names of those that logstore does not have.

        A broker's own defaults are not in its directory. Settings not made for the topic are those of a new
        store, except that nothing is deleted because of them.

        Raises:
            InvalidConfigError: the values contradict each other, or are out of range here.
        """
        if not self.is_brokers:
            return self.topic(name).config, []
        told = self.cluster.get(name) if self.cluster is not None else None
        return broker_settings(told, keep_everything(TopicConfig()))

    def share_states(self) -> dict[ShareKey, ShareState]:
        """How far share groups have come.

        Raises:
            CorruptionError, UnsupportedVersionError: that cannot be read.
        """
        return ShareStorage(self._watched).load() if SHARE_STATE_TOPIC in self.topic_names() else {}

    def close(self) -> None:
        self._watched.close()


@contextlib.contextmanager
def held(home: LogHome) -> Iterator[None]:
    """Hold a directory's lock, which brokers and stores respect.

    Raises:
        LockedError: a broker or a store has the directory open.
    """
    try:
        home.acquire()
    except LockedError as error:
        raise LockedError(
            error.held,
            "a handover needs both directories for itself; stop the broker, or close the store, then retry",
        ) from None
    try:
        yield
    finally:
        home.release()
