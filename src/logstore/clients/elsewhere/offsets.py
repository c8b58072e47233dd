"""The committed offsets of one group, for those who need no group protocol, through a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.requests import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from logstore.clients.asking import HasTimeout, ask
from logstore.clients.offsets import (
    Committable,
    OffsetsOfGroup,
    PartitionName,
    check_partitions,
    check_values,
)
from logstore.errors import RetriableError
from logstore.model import OffsetAndMetadata, TopicPartition


class RemoteOffsets(OffsetsOfGroup):
    """The committed offsets of one group: a mapping from partition to
    :class:`~logstore.model.OffsetAndMetadata`. Made by :meth:`.RemoteStore.offsets`.

    A committed offset is the next one to read. Each call looks at what is committed now, which takes one
    round trip.
    """

    def __init__(self, broker: Broker, group: str, config: HasTimeout) -> None:
        super().__init__(group)
        self._broker = broker
        self._config = config

    def _fetch(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return fetch_offsets(self._broker, self._group, partitions, self._config)

    # Changing

    def commit(self, offsets: Mapping[Any, Committable]) -> None:
        """Commit an offset for each of some partitions. Other partitions keep theirs. An offset may also go
        back.

        Args:
            offsets: partition -> the next offset to read, an int or an
                :class:`~logstore.model.OffsetAndMetadata`. A plain pair ``("orders", 0)`` is a partition too.

        Raises:
            UnknownTopicError: there is no such topic or partition.
            RetriableError: the group has members, which commit for it; or no answer came in time.
            UsageError: a partition, an offset or its metadata is of another type.
        """
        commit_offsets(self._broker, self._group, check_values(offsets), self._config)

    def delete(self, partitions: Iterable[PartitionName] | None = None) -> tuple[TopicPartition, ...]:
        """Remove the offsets of some partitions, or of all. Returns the partitions that had one.

        Raises:
            RetriableError: the group has members that read a topic.
            UsageError: ``partitions`` is not a list of partitions.
        """
        wanted = None if partitions is None else check_partitions(partitions)
        known = tuple(sorted(self._fetch(wanted)))
        if not known:
            return ()
        request = OffsetDeleteRequest(self._group, known)
        result = ask(self._broker.offset_delete(request), "delete offsets", self._config)
        for code in (result.error, *result.errors.values()):
            if code is not ErrorCode.NONE:
                raise error_of(code, f"group {self._group!r}: {result.message or code.name}")
        return known


def fetch_offsets(
    broker: Broker, group: str, partitions: Iterable[TopicPartition] | None, config: HasTimeout
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a group has committed.

    Raises:
        LogstoreError: the broker does not tell.
    """
    wanted = None if partitions is None else tuple(partitions)
    result = ask(broker.offset_fetch(OffsetFetchRequest(group, wanted)), "tell of committed offsets", config)
    if result.error is ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    if result.error is not ErrorCode.NONE:
        raise error_of(result.error, f"group {group!r}: {result.message or result.error.name}")
    return dict(result.offsets)


def commit_offsets(
    broker: Broker, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], config: HasTimeout
) -> None:
    """Commit for a group, as one who is no member.

    Raises:
        RetriableError: the group has members.
        LogstoreError: the broker refuses.
    """
    if not offsets:
        return
    result = ask(broker.offset_commit(OffsetCommitRequest(group, offsets)), "commit offsets", config)
    if result.error is ErrorCode.UNKNOWN_MEMBER_ID:
        raise RetriableError(
            f"group {group!r} has members, and nothing was committed: close its consumers first"
        )
    if result.error is not ErrorCode.NONE:
        failed = [str(each) for each, code in result.errors.items() if code is not ErrorCode.NONE]
        what = result.message or result.error.name
        raise error_of(
            result.error, f"group {group!r}: no offset was committed for {', '.join(failed)}: {what}"
        )
