"""Where a group is to go on: plans new offsets for it, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

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


class Logs(Protocol):
    """Where groups can go on: logs in a store, or of brokers elsewhere."""

    def now_ms(self) -> int: ...

    def check(self, partitions: Iterable[TopicPartition]) -> None:
        """
        Raises:
            UnknownTopicError, UnknownPartitionError: there is no such topic or partition.
        """

    def partitions_of(self, topics: Iterable[str]) -> Iterable[TopicPartition]:
        """
        Raises:
            UnknownTopicError: there is no such topic.
        """

    def find(self, partitions: Sequence[TopicPartition], when: str | int) -> Mapping[TopicPartition, int]:
        """The offset there, in each; the high watermark, if no record is as new. ``when`` is as of
        :func:`check_to`."""

    def spans(self, partitions: Sequence[TopicPartition]) -> Iterable[tuple[TopicPartition, int, int]]:
        """The log start and the end of each.

        Raises:
            UnknownTopicError, UnknownPartitionError: there is no such topic or partition.
        """


def plan_reset(
    logs: Logs,
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
        for name, start, end in logs.spans(list(planned)):
            _check_between(name, planned[name].offset, start, end)
        return dict(sorted(planned.items()))
    when = check_to(to, logs.now_ms())
    names = _scope(logs, committed, topics, partitions)
    found = logs.find(names, when)
    return {name: OffsetAndMetadata(found[name]) for name in names}


def _scope(
    logs: Logs,
    committed: Iterable[TopicPartition],
    topics: Iterable[str] | None,
    partitions: Iterable[PartitionName] | None,
) -> list[TopicPartition]:
    if topics is not None and partitions is not None:
        raise UsageError("give topics or partitions, not both")
    if partitions is not None:
        names = check_partitions(partitions)
        logs.check(names)
        return sorted(set(names))
    if topics is not None:
        return sorted(set(logs.partitions_of(check_topic_list(topics))))
    return sorted(committed)


def check_topic_list(topics: Any) -> list[Any]:
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


def check_to(to: Any, now_ms: int) -> str | int:
    """``earliest``, ``latest``, or milliseconds since the epoch.

    Raises:
        UsageError, InvalidTimestampError: it is none of them.
    """
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


def _check_between(partition: TopicPartition, offset: int, start: int, end: int) -> None:
    if not start <= offset <= end:
        raise OffsetOutOfRangeError(
            f"a group cannot go on at offset {shown(offset)} of {partition}: its log has offsets {start} "
            f"to {end}; 'earliest' and 'latest' are always there"
        ).of_log(start, end)


class LogsHere:
    """Those of a store."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def now_ms(self) -> int:
        return self._directory.context.clock.now_ms()

    def check(self, partitions: Iterable[TopicPartition]) -> None:
        for name in partitions:
            check_known(self._directory, name)

    def partitions_of(self, topics: Iterable[str]) -> Iterable[TopicPartition]:
        entries = [self._directory.topic(name) for name in topics]
        return [TopicPartition(each.name, number) for each in entries for number in each.held_partitions]

    def find(self, partitions: Sequence[TopicPartition], when: str | int) -> dict[TopicPartition, int]:
        return {name: _find(self._directory.log(name), when) for name in partitions}

    def spans(self, partitions: Sequence[TopicPartition]) -> Iterator[tuple[TopicPartition, int, int]]:
        for name in partitions:
            check_known(self._directory, name)
            log = self._directory.log(name)
            yield name, log.log_start_offset, log.log_end_offset


def _find(log: ReadableLog, when: str | int) -> int:
    readable = log.readable_offsets()
    if when == "earliest":
        return readable.start
    if isinstance(when, str):
        return readable.stop
    found = log.find_timestamp(when)
    return readable.stop if found is None else min(found.offset, readable.stop)


def end_of(directory: Directory, partition: TopicPartition) -> int | None:
    """The high watermark; None of a partition that is not here, or cannot be read."""
    try:
        return directory.log(partition).high_watermark
    except LogstoreError:
        return None
