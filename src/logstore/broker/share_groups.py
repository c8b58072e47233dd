"""The share groups of a directory: their coordinator, and the topic that it keeps their states in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from logstore.broker.codes import ErrorCode
from logstore.broker.durable import when_all_durable
from logstore.broker.share.coordinator import ShareCoordinator
from logstore.broker.share.requests import Done
from logstore.broker.share.stored import ShareState, combine
from logstore.broker.share_storage import ShareStorage
from logstore.errors import LogstoreError
from logstore.format.messages.share_records import ShareKey
from logstore.format.names import SHARE_STATE_TOPIC
from logstore.logdir.directory import LogDirectory
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
    for key, state in storage.load().items():
        end = ends.get(TopicPartition(topics.get(key.topic_id, ""), key.partition))
        if end is None or not _is_above(state, end):
            continue
        kept = [
            each._replace(last_offset=min(each.last_offset, end - 1))
            for each in state.batches
            if each.first_offset < end
        ]
        start = min(state.start_offset, end)
        changes.append((key, state._replace(start_offset=start, batches=combine(start, kept, ()))))
        inform("%s: set back to offset %d, the end of the log after a crash", key, end)
    if changes:
        storage.write(changes, flush=True)


def _is_above(state: ShareState, end: int) -> bool:
    return state.start_offset > end or any(each.last_offset >= end for each in state.batches)


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
