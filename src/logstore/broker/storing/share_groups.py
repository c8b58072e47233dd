"""The share groups of a directory: their coordinator, and the topic that it keeps their states in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.records.durable import when_all_durable
from logstore.broker.share.coordinator import ShareCoordinator
from logstore.broker.share.held import NO_LIMIT, records_of, state_of
from logstore.broker.share.requests import DescribedShareGroup, Done, SharePartitionState
from logstore.broker.share.stored import ShareState, cut_back_all
from logstore.broker.storing.shares import ShareStorage
from logstore.errors import CorruptionError, LogstoreError, StorageError
from logstore.format.messages.share_records import ShareKey
from logstore.format.names import SHARE_STATE_TOPIC
from logstore.logdir.directory import LogDirectory
from logstore.logdir.watched import WatchedDirectory
from logstore.model import TopicPartition
from logstore.partition.log import Log
from logstore.warning import inform


def open_share_groups(directory: LogDirectory) -> ShareCoordinator:
    """The coordinator, with the states that are stored.

    Raises:
        CorruptionError, UnsupportedVersionError: they cannot be read.
    """
    storage = ShareStorage(directory)

    def when_durable(keys: Sequence[ShareKey], done: Done[ErrorCode]) -> None:
        _when_durable(directory, {storage.partition_for(key) for key in keys}, done)

    return ShareCoordinator(directory, storage, storage.load(), when_durable)


UNKNOWN_STATE: Final = "Unknown"
"""Of a group of which neither the members nor what they have are known here."""
ELSEWHERE_STATE: Final = "Elsewhere"
"""Of a group whose members another node of the cluster knows, while this one gives them records."""


def describe_stored(directory: WatchedDirectory, storage: ShareStorage) -> list[DescribedShareGroup]:
    """The groups as they are stored, by their names, for those who have no coordinator. Members are not
    stored, nor what they have: that counts as available.

    Raises:
        CorruptionError, UnsupportedVersionError: they cannot be read.
        StorageError: the disk refused.
    """
    names = {entry.topic_id: entry.name for entry in map(directory.topic, directory.topic_names())}
    found: dict[str, list[SharePartitionState]] = {}
    for key, state in storage.load().items():
        partitions = found.setdefault(key.group_id, [])
        if key.topic_id in names:
            partitions.append(
                _describe_stored(directory, TopicPartition(names[key.topic_id], key.partition), state)
            )
    return [
        DescribedShareGroup(ErrorCode.NONE, name, UNKNOWN_STATE, partitions=tuple(sorted(partitions)))
        for name, partitions in sorted(found.items())
    ]


def _describe_stored(
    directory: WatchedDirectory, partition: TopicPartition, state: ShareState
) -> SharePartitionState:
    records = records_of(state, NO_LIMIT)
    try:
        log = directory.log(partition)
        records.apply(records.plan_deleted(log.log_start_offset))
        high_watermark = max(log.high_watermark, records.end_offset)
    except (CorruptionError, StorageError):
        high_watermark = records.end_offset
    return state_of(partition, records, high_watermark)


def set_share_groups_back(directory: LogDirectory, ends: Mapping[TopicPartition, int]) -> None:
    """Take back, durably, what was said of records above the ends of their logs. A power cut may take records
    that were not flushed, and leave what workers have said of them. Other records would then come in their
    place, and count as done. So it is called before anything is appended.

    Args:
        ends: the end of each log that could be opened.

    Raises:
        LogstoreError: the states cannot be read or written.
    """
    storage = ShareStorage(directory)
    topics = {entry.topic_id: entry.name for entry in directory.topics()}
    changes: list[tuple[ShareKey, ShareState]] = []
    for key, state, end in cut_back_all(storage.load(), topics, ends):
        changes.append((key, state))
        inform("%s: set back to offset %d, the end of the log after a crash", key, end)
    if changes:
        storage.write(changes, flush=True)


def _when_durable(directory: LogDirectory, numbers: Iterable[int], done: Done[ErrorCode]) -> None:
    """Answer when the topic's partitions are durable up to their ends, without the lock of any."""
    waits: list[tuple[Log, int]] = []
    try:
        for number in numbers:
            log = directory.log(TopicPartition(SHARE_STATE_TOPIC, number))
            if directory.context.scheduler.has_no_threads:
                log.flush()  # the caller may be the thread that would do it in the background
            waits.append((log, log.log_end_offset))
    except LogstoreError:
        done(ErrorCode.KAFKA_STORAGE_ERROR)
        return
    when_all_durable(waits, done)
