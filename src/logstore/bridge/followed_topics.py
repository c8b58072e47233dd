"""The topics of a store that are copies of a cluster's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from logstore.bridge.cluster import ClusterQuestions, ClusterTopic, ClusterTopics
from logstore.config import TopicConfig
from logstore.errors import (
    CorruptionError,
    LogstoreError,
    TopicExistsError,
    UnknownTopicError,
    UsageError,
)
from logstore.logdir.directory import CREATED_AT_A_TIME
from logstore.logdir.followed import Followed, change_followed
from logstore.logdir.topics import NewTopic
from logstore.partition.log import Log
from logstore.store import Store


class FollowedTopics:
    """Makes the topics, and keeps which cluster each is of."""

    def __init__(self, store: Store, cluster: ClusterQuestions, leader: tuple[str, ...]) -> None:
        """``leader``: its addresses, if a standby follows it."""
        self._store = store
        self._cluster = cluster
        self._leader = leader

    def logs(self, name: str) -> Iterator[Log]:
        """The logs of a topic."""
        return iter(self._store[name])

    def count_here(self, name: str) -> int:
        """How many partitions a topic has in the store; 0 if it is not there, or damaged."""
        try:
            return len(self._store[name])
        except (UnknownTopicError, CorruptionError):
            return 0

    def prepare(self, found: ClusterTopics) -> dict[str, LogstoreError]:
        """Make the topics that are not here, with as many partitions, the settings and, if it is free, the id
        of the cluster's; and the partitions that are new.

        What a topic is a copy of is stored first: a crash in between leaves a note of a topic that does not
        exist, which means nothing.

        Returns:
            Why topics cannot be followed: they are here of another cluster, of an earlier topic of that name,
            no copies, or damaged.
        """
        refused: dict[str, LogstoreError] = {}
        directory = self._store.directory
        with change_followed(directory.context.files, directory.path) as followed:
            for topic in found.topics.values():
                source = Followed(found.cluster_id, topic.topic_id, self._leader)
                try:
                    if topic.name in self._store:
                        self._check_same(topic.name, followed.get(topic.name), source)
                    followed[topic.name] = source
                except UsageError as error:
                    directory.check_open()
                    refused[topic.name] = error
        refused.update(self._make_new([each for each in found.topics.values() if each.name not in refused]))
        for topic in found.topics.values():
            if topic.name not in refused:
                try:
                    self._grow(topic)
                except (UsageError, CorruptionError) as error:
                    directory.check_open()
                    refused[topic.name] = error
        return refused

    def are_here(self, name: str, log: Log | None) -> bool:
        """Whether the store still has the topic, and this log of it: it was not deleted here, nor the log
        opened again."""
        try:
            return name in self._store and (log is None or self._store.directory.log(log.partition) is log)
        except (UnknownTopicError, CorruptionError):
            return False

    def _check_same(self, name: str, noted: Followed | None, source: Followed) -> None:
        if noted is None:
            if any(log.log_end_offset for log in self._store[name]):
                raise UsageError(
                    f"topic {name!r} of {self._store.path} has records of its own, and is not a copy of the "
                    "cluster's. Pull into another store, or delete it here first"
                )
        elif noted.is_promoted:
            raise UsageError(
                f"topic {name!r} of {self._store.path} was promoted, and is the store's own; it is not "
                "copied again. Follow into another store, or delete it here first"
                + ". Its promotion was cut short: promote() completes it"
                * bool(noted.leader)
            )
        elif noted.cluster_id != source.cluster_id:
            raise UsageError(
                f"topic {name!r} of {self._store.path} is a copy of cluster {noted.cluster_id}; this is "
                f"cluster {source.cluster_id}. Connect to that one, pull into another store, or delete the "
                "topic here to copy this one"
            )
        elif None not in (noted.topic_id, source.topic_id) and noted.topic_id != source.topic_id:
            raise UsageError(
                f"topic {name!r} was deleted at the cluster, and made again: its id is {source.topic_id}, "
                f"and the copy is of {noted.topic_id}. Delete the topic here to copy the new one"
            )

    def _make_new(self, topics: Iterable[ClusterTopic]) -> dict[str, LogstoreError]:
        """Make those that are not here, some at a time: a cluster may have thousands. Returns why some are
        refused."""
        refused: dict[str, LogstoreError] = {}
        missing = [topic for topic in topics if topic.name not in self._store]
        for start in range(0, len(missing), CREATED_AT_A_TIME):
            wanted: list[NewTopic] = []
            for topic in missing[start : start + CREATED_AT_A_TIME]:
                try:
                    wanted.append(self._new_topic(topic))
                except UsageError as error:
                    refused[topic.name] = error
            for name, made in self._store.directory.create_topics(wanted).items():
                if isinstance(made, TopicExistsError) and name in self._store:
                    continue  # another bridge was faster; who copies is told by the logs
                if isinstance(made, UsageError | CorruptionError):
                    refused[name] = made
                elif isinstance(made, LogstoreError):
                    raise made
        self._store.directory.check_open()
        return refused

    def _new_topic(self, topic: ClusterTopic) -> NewTopic:
        return NewTopic(
            name=topic.name,
            partition_count=len(topic.leader_epochs),
            config=self._settings_of(topic.name),
            topic_id=topic.topic_id,
        )

    def _grow(self, topic: ClusterTopic) -> None:
        count = len(topic.leader_epochs)
        here = self._store[topic.name]
        if len(here) < count:
            try:
                self._store.directory.add_partitions(topic.name, count)
            except UsageError:
                if len(here) != count:  # else another bridge was faster
                    raise
        elif len(here) > count:
            raise UsageError(
                f"topic {topic.name!r} has {len(here)} partitions here and {count} at the cluster: it is not "
                "a copy of the cluster's"
            )
        list(here)  # raises if one is damaged

    def _settings_of(self, name: str) -> TopicConfig:
        """The cluster's, as far as they are known here."""
        known = TopicConfig.setting_names()
        settings = self._cluster.settings(name)
        return TopicConfig.from_properties({key: settings[key] for key in settings.keys() & known})
