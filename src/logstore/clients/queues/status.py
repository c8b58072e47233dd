"""What is known of the queues of a store: who works on them, and how far they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from logstore.arguments import did_you_mean
from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.pending import wait_for
from logstore.broker.share.requests import (
    DescribedShareGroup,
    ShareGroupOffsets,
    ShareOffsetsQuery,
    SharePartitionState,
)
from logstore.broker.storing.share_groups import describe_stored
from logstore.broker.storing.shares import ShareStorage
from logstore.clients.offsets import check_group
from logstore.errors import RetriableError, UnknownGroupError, UsageError
from logstore.logdir.watched import WatchedDirectory

_SECONDS: Final = 30.0
_NOT_TOLD: Final = (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND)
"""Brokers before Kafka 4.2 do not tell how far queues are; and one may be deleted meanwhile."""
_NOT_THERE: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""A topic may be deleted meanwhile, too."""


class QueueStatus(NamedTuple):
    """A group that shares jobs."""

    group: str
    state: str
    """Kafka's name of it: ``Stable`` with workers, ``Empty`` without. ``Unknown`` in a read-only store:
    workers are known to the process that they are in."""
    workers: int
    """How many there are; 0 if that is not known."""
    partitions: tuple[SharePartitionState, ...]
    """How far it is in each partition; none if that is not known. A broker elsewhere tells how many jobs are
    not done: those that workers have count as waiting then."""

    @property
    def waiting_count(self) -> int:
        """Jobs that no worker has: offsets that were never given to one, were released, or put off, or wait
        for a dead-letter topic that takes them."""
        return sum(each.waiting_count for each in self.partitions)

    @property
    def taken_count(self) -> int:
        """Jobs that workers have now."""
        return sum(each.acquired_count for each in self.partitions)


def statuses(broker: Broker) -> list[QueueStatus]:
    """All groups, by their names.

    Raises:
        LogstoreError: one could not be read.
    """
    described = wait_for(broker.describe_share_groups(_names(broker)), _SECONDS)
    if described is None:
        raise RetriableError("the broker did not tell of the queues")
    return [_status(each) for each in _with_partitions(broker, described)]


def _with_partitions(broker: Broker, described: Iterable[DescribedShareGroup]) -> list[DescribedShareGroup]:
    """Those that are there, and how far they are, where the broker tells that apart.

    Raises:
        LogstoreError: it could not be read now.
    """
    groups = [each for each in described if each.error is not ErrorCode.GROUP_ID_NOT_FOUND]
    asked = {
        each.group: broker.share_group_offsets(ShareOffsetsQuery(each.group))
        for each in groups
        if each.error is ErrorCode.NONE and not each.partitions
    }
    told = {group: _by_lag(group, wait_for(pending, _SECONDS)) for group, pending in asked.items()}
    return [each._replace(partitions=told.get(each.group, each.partitions)) for each in groups]


def _by_lag(group: str, offsets: ShareGroupOffsets | None) -> tuple[SharePartitionState, ...]:
    """A partition that could not be asked must not be left out: its jobs would count as done."""
    if offsets is None:
        raise RetriableError(f"the broker did not tell how far queue {group!r} is")
    if offsets.error not in _NOT_TOLD:
        why = offsets.message or offsets.error.name
        raise error_of(offsets.error, f"queue {group!r}: how far it is cannot be read: {why}")
    for each in offsets.partitions:
        if each.error not in _NOT_THERE:
            what = f"how far {each.partition} is cannot be read: {each.error.name}"
            raise error_of(each.error, f"queue {group!r}: {what}")
    return tuple(
        SharePartitionState(
            each.partition, each.start_offset, each.start_offset, 0, 0, each.start_offset + each.lag
        )
        for each in sorted(offsets.partitions)
        if each.start_offset >= 0 and each.lag >= 0
    )


def statuses_as_stored(directory: WatchedDirectory, storage: ShareStorage) -> list[QueueStatus]:
    """The same of a read-only store, from what is stored.

    Raises:
        LogstoreError: it could not be read.
    """
    return [_status(each) for each in describe_stored(directory, storage)]


def _names(broker: Broker) -> tuple[str, ...]:
    """
    Raises:
        LogstoreError: they could not be read.
    """
    result = wait_for(broker.list_share_groups(), _SECONDS)
    if result is None:
        raise RetriableError("the broker did not tell of the queues")
    if result.error is not ErrorCode.NONE:
        raise error_of(result.error, f"the queues cannot be read: {result.message or result.error.name}")
    return result.groups


def _status(described: DescribedShareGroup) -> QueueStatus:
    if described.error is not ErrorCode.NONE:
        message = described.message or described.error.name
        raise error_of(described.error, f"queue {described.group!r}: {message}")
    return QueueStatus(described.group, described.state, len(described.members), described.partitions)


def delete(broker: Broker, group: str) -> None:
    """See :meth:`.Store.delete_queue`."""
    name = check_group(group)
    result = wait_for(broker.delete_share_groups((name,)), _SECONDS)
    if result is None:
        raise RetriableError(f"the broker did not delete queue {name!r}")
    code = result[name]
    if code is ErrorCode.NON_EMPTY_GROUP:
        raise UsageError(f"queue {name!r} has workers; close them first")
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        known = _names(broker)
        raise UnknownGroupError(f"there is no queue {name!r}{did_you_mean(name, known)}")
    if code is not ErrorCode.NONE:
        _names(broker)  # which says what is wrong with all of them
        raise error_of(code, f"queue {name!r} is kept: that it is deleted could not be stored ({code.name})")
