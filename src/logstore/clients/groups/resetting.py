"""Where a group is to go on: plans new offsets for it, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from logstore.arguments import milliseconds_of, plain_text, shown
from logstore.clients.offsets import Committable, PartitionName, check_known, check_partitions, check_values
from logstore.errors import LogstoreError, OffsetOutOfRangeError, UsageError
from logstore.logdir.directory import LogDirectory
from logstore.logdir.watched import WatchedDirectory
from logstore.model import OffsetAndMetadata, TopicPartition
from logstore.partition.reading.readable import ReadableLog

Directory = LogDirectory | WatchedDirectory

ResetTo = str | datetime | timedelta | Mapping[Any, Committable]
"""Where a group is to go on: ``"earliest"``, ``"latest"``; a time with its time zone, for the first record at
or after it; a ``timedelta``, for so long ago; or partition -> offset."""

_MILLISECOND = timedelta(milliseconds=1)


class OffsetReset(NamedTuple):
    """A committed offset, before and after a reset."""

    before: int | None
    """None if the group had none for the partition."""
    after: int


def plan_reset(
    directory: Directory,
    to: ResetTo,
    committed: Iterable[TopicPartition],
    topics: Iterable[str] | None,
    partitions: Iterable[PartitionName] | None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The new offsets: of these topics or partitions, or of those that the group has committed offsets of; in
    the order of their names.

    Raises:
        UnknownTopicError, UnknownPartitionError: there is no such topic or partition, or not here.
        OffsetOutOfRangeError: an offset is below the log start or above the log end.
        UsageError, InvalidTimestampError: an argument is wrong.
    """
    if isinstance(to, Mapping):
        if topics is not None or partitions is not None:
            raise UsageError("to is a mapping, which names its partitions; leave out topics and partitions")
        planned = check_values(to)
        if not planned:
            raise UsageError("to is empty: there is nothing to reset")
        for name, value in planned.items():
            check_known(directory, name)
            _check_in(directory.log(name), value.offset)
        return dict(sorted(planned.items()))
    when = _check_to(to, directory.context.clock.now_ms())
    return {
        name: OffsetAndMetadata(_find(directory.log(name), when))
        for name in _scope(directory, committed, topics, partitions)
    }


def _scope(
    directory: Directory,
    committed: Iterable[TopicPartition],
    topics: Iterable[str] | None,
    partitions: Iterable[PartitionName] | None,
) -> list[TopicPartition]:
    if topics is not None and partitions is not None:
        raise UsageError("give topics or partitions, not both")
    if partitions is not None:
        names = check_partitions(partitions)
        for name in names:
            check_known(directory, name)
        return sorted(set(names))
    if topics is not None:
        entries = [directory.topic(name) for name in _check_topics(topics)]
        return sorted(
            {TopicPartition(each.name, number) for each in entries for number in each.held_partitions}
        )
    return sorted(committed)


def _check_topics(topics: Any) -> list[Any]:
    """
    Raises:
        UsageError: it is no list.
    """
    if isinstance(topics, str):
        raise UsageError(f"topics is {shown(topics)}; give a list of names such as [{shown(topics)}]")
    try:
        return list(topics)
    except (TypeError, ValueError):  # a released memoryview's
        raise UsageError(f"topics is {shown(topics)}; give a list of names such as ['orders']") from None


def _check_to(to: Any, now_ms: int) -> str | int:
    """``earliest``, ``latest``, or milliseconds since the epoch."""
    if isinstance(to, datetime):
        return max(milliseconds_of(to, "to"), 0)
    if isinstance(to, timedelta):
        return max(now_ms - to // _MILLISECOND, 0)
    name: Any = plain_text(to)
    if type(name) is str and name in ("earliest", "latest"):
        return name
    hint = "; for an offset give {('orders', 0): 17}" if type(to) is int else ""
    raise UsageError(
        f"to is {shown(to)}; it must be 'earliest', 'latest', a datetime, a timedelta, or a mapping from "
        f"(topic, partition) to offset{hint}"
    )


def _find(log: ReadableLog, when: str | int) -> int:
    """The offset there; the high watermark, if no record is as new."""
    readable = log.readable_offsets()
    if when == "earliest":
        return readable.start
    if isinstance(when, str):
        return readable.stop
    found = log.find_timestamp(when)
    return readable.stop if found is None else min(found.offset, readable.stop)


def _check_in(log: ReadableLog, offset: int) -> None:
    start, end = log.log_start_offset, log.log_end_offset
    if not start <= offset <= end:
        raise OffsetOutOfRangeError(
            f"a group cannot go on at offset {shown(offset)} of {log.partition}: its log has offsets {start} "
            f"to {end}; 'earliest' and 'latest' are always there"
        ).of_log(start, end)


def end_of(directory: Directory, partition: TopicPartition) -> int | None:
    """The high watermark; None of a partition that is not here, or cannot be read."""
    try:
        return directory.log(partition).high_watermark
    except LogstoreError:
        return None
