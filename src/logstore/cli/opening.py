"""Opening stores and partitions for a command, and saying what is there instead of what is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final, cast

from logstore.cli.errors import CommandError
from logstore.config import UNLIMITED, StoreConfig
from logstore.errors import InvalidTopicError, LogstoreError, UnknownTopicError
from logstore.files import OsFiles
from logstore.format.names import CLUSTER_METADATA_NAME, parse_directory_name, parse_segment_file_name
from logstore.logdir.cluster import ClusterTopic, WatchedCluster
from logstore.logdir.held import shown_numbers
from logstore.logdir.identity import is_brokers_directory, list_partitions, unknown_partitions
from logstore.partition.state.home import LOCK_NAME, META_PROPERTIES_NAME, STORE_NAMES
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.store import Store, open_store
from logstore.topic import Topic

_ALONE: Final = StoreConfig(log_cleaner_enable=False, log_retention_check_interval_ms=UNLIMITED)
"""A command does what it was told to, and no background work."""
_MOST_STORES: Final = 5
"""Of those that an error names."""


@contextmanager
def reading(path: str) -> Iterator[Store]:
    """The store, read-only: no lock, nothing written.

    Raises:
        CommandError: there is none.
    """
    check_store(path)
    with open_store(path, read_only=True) as store:
        yield store


@contextmanager
def writing(path: str) -> Iterator[Store]:
    """The store, open for writing and without background deletion and compaction.

    Raises:
        CommandError: there is none.
        LockedError: another process has it open.
    """
    check_store(path)
    with open_store(path, create=False, config=_ALONE) as store:
        yield store


def told_of_queue(store: Store, group: str) -> str | None:
    """What is said of a group that no consumers have, if it is that of a queue."""
    with suppress(LogstoreError):  # what is asked for is not there, whatever is stored of queues
        for each in store.queues():
            if each.group == group:
                return (
                    f"{group!r} is the group of a queue, where {each.waiting_count} jobs wait. Queues are "
                    "not shown here: store.queues() in a program, and kafka-share-groups.sh, tell of them"
                )
    return None


def check_store(path: str) -> None:
    """
    Raises:
        CommandError: the path is no directory, an empty one, one partition's, or one around stores.
    """
    files = OsFiles()
    full = files.absolute(path)
    if files.is_file(full):
        raise CommandError(f"{path} is a file; `logstore info` shows what is in a segment or an index")
    if not files.is_directory(full):
        raise CommandError(f"there is no directory {path}")
    names = {entry.name for entry in files.list_directory(full)}
    if names <= {LOCK_NAME}:  # to read_only=True that is a store without topics; to a nightly check it is not
        raise CommandError(
            f"{path} is empty: there is no store in it. If there should be, is its file system mounted?"
        )
    inner = _stores_within(files, full, names)
    if inner:
        raise CommandError(f"{path} has no topics itself; name one of the stores in it: {', '.join(inner)}")
    if any(map(parse_segment_file_name, names)):
        parent, _, name = full.rpartition("/")
        if name == CLUSTER_METADATA_NAME:
            raise CommandError(
                f"{path} is the metadata log of a cluster, and no topic: `logstore info FILE` shows "
                "what is in its files"
            )
        try:
            topic, number, _ = parse_directory_name(name)
        except InvalidTopicError:
            raise CommandError(
                f"{path} is the directory of one partition, without a store around it"
            ) from None
        raise CommandError(
            f"{path} is the directory of one partition: name the store and the topic, {parent} {topic}, "
            f"and where a command takes it, --partition {number}"
        )


def _stores_within(files: OsFiles, path: str, names: set[str]) -> list[str]:
    """The stores, or ``log.dirs`` of a broker, in a directory that is none; of many the first."""
    if names & STORE_NAMES or unknown_partitions(files, path, list_partitions(files, path), ()):
        return []
    found = (
        f"{path}/{name}" for name in sorted(names) if files.is_file(f"{path}/{name}/{META_PROPERTIES_NAME}")
    )
    return list(islice(found, _MOST_STORES))


def topics_of(store: Store) -> Iterator[Topic]:
    """All topics, without those that another process deletes meanwhile."""
    for name in store:
        try:
            topic = store[name]
        except UnknownTopicError:
            continue
        yield topic


def logs_of(topic: Topic, numbers: Sequence[int] | None = None) -> list[ReadOnlyLog]:
    """The partitions of a topic of a store that was opened for reading; all that are held, unless some are
    named.

    Raises:
        UnknownTopicError: there is no such partition, or it is not held.
        CorruptionError: one is missing.
    """
    wanted = topic.held_partitions if not numbers else sorted(set(numbers))
    return [cast(ReadOnlyLog, topic[number]) for number in wanted]


def told_of_elsewhere(topic: Topic) -> str | None:
    """What is said of a topic some of whose partitions are not in the directory."""
    elsewhere = set(range(len(topic))).difference(topic.held_partitions)
    if not elsewhere:
        return None
    return (
        f"{topic.name} has {len(topic)} partitions, and {shown_numbers(elsewhere)} "
        f"{'is' if len(elsewhere) == 1 else 'are'} not in this directory"
    )


class Settings:
    """The settings of topics: a store's from its catalogue, a broker's from its metadata log."""

    def __init__(self, path: str) -> None:
        files = OsFiles()
        full = files.absolute(path)
        self.is_brokers = is_brokers_directory(files, full)
        """Whether a broker has made the directory."""
        self._topics: dict[str, ClusterTopic] = {}
        if self.is_brokers:
            with suppress(LogstoreError):  # they are then not known
                self._topics = WatchedCluster(files, f"{full}/{CLUSTER_METADATA_NAME}").current()

    def of(self, topic: Topic) -> dict[str, str] | None:
        """What differs from the defaults, in Kafka's spelling; None where it is not known: of a broker whose
        metadata is not in the directory or cannot be read."""
        if not self.is_brokers:
            return topic.config.to_properties()
        found = self._topics.get(topic.name)
        return None if found is None else found.settings

    def cleanup_policy_of(self, topic: Topic) -> str | None:
        """None where it is a broker's default, which is not in its directory."""
        if not self.is_brokers:
            return topic.config.cleanup_policy
        return (self.of(topic) or {}).get("cleanup.policy")
