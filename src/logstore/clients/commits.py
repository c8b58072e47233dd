"""The commits of one consumer: when it asks for them, record by record, or from time to time by themselves.

Knows positions and the group; does not know what was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from logstore.arguments import shown
from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import RETRIABLE, error_of
from logstore.broker.requests import OffsetCommitRequest, OffsetCommitResult, OffsetFetchRequest
from logstore.clients.asking import ask
from logstore.clients.counts import ConsumerCounts
from logstore.clients.membership import Membership
from logstore.clients.positions import NO_POSITION, Position, Positions, partition_of
from logstore.clients.settings import ConsumerConfig
from logstore.clock import Clock
from logstore.errors import RetriableError, UsageError
from logstore.model import OffsetAndMetadata, Record, TopicPartition
from logstore.partition.arguments import check_epoch, check_offset
from logstore.serializing import SerializedRecord
from logstore.warning import warn

_NO_MEMBER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)

_NO_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Commits:
    """Of one consumer."""

    def __init__(
        self,
        broker: Broker,
        group: str | None,
        positions: Positions,
        config: ConsumerConfig,
        clock: Clock,
        counts: ConsumerCounts,
    ) -> None:
        self._broker = broker
        self._group = group
        self._positions = positions
        self._config = config
        self._clock = clock
        self._counts = counts
        self._last: dict[TopicPartition, tuple[UUID | None, int]] = {}
        """What this consumer has committed, and of which topic."""
        self._last_ms = clock.monotonic_ms()
        self.membership: Membership | None = None
        """Under which it commits. None: it assigns its partitions itself."""

    # By hand

    def commit(
        self, offsets: Mapping[Any, int | OffsetAndMetadata] | Record | SerializedRecord | None
    ) -> None:
        """See :meth:`.Consumer.commit`."""
        request = self.request_for(offsets)
        if request.offsets:
            self._commit(request)

    def request_for(
        self, offsets: Mapping[Any, int | OffsetAndMetadata] | Record | SerializedRecord | None
    ) -> OffsetCommitRequest:
        """What a commit asks for.

        Raises:
            UsageError: the consumer has no group, or does not read a partition.
        """
        if self._group is None:
            raise UsageError(
                "the consumer has no group to commit offsets for; consumer(..., group='billing')"
            )
        values: Mapping[Any, int | OffsetAndMetadata]
        if isinstance(offsets, Record | SerializedRecord):
            at = OffsetAndMetadata(offsets.offset + 1, leader_epoch=offsets.leader_epoch)
            values = {partition_of(offsets): at}
        elif offsets is None:
            values = {
                each.partition: each.to_commit for each in list(self._positions) if each.offset != NO_POSITION
            }
        elif isinstance(offsets, Mapping):
            values = offsets
        else:
            raise UsageError(
                f"offsets is {shown(offsets)}; give a record, or a mapping such as {{('orders', 0): 17}}"
            )
        return self._request(
            {self._positions.of(each): as_offset(value) for each, value in values.items()}, self._group
        )

    def _request(self, offsets: Mapping[Position, OffsetAndMetadata], group: str) -> OffsetCommitRequest:
        request = OffsetCommitRequest(
            group,
            {each.partition: value for each, value in offsets.items()},
            topic_ids={each.partition: each.topic_id for each in offsets if each.topic_id is not None},
        )
        membership = self.membership
        if membership is None:
            return request
        return request._replace(
            generation=membership.generation,
            member_id=membership.member_id,
            instance_id=self._config.group_instance_id,
        )

    def _commit(self, request: OffsetCommitRequest) -> None:
        self._take(request, self._ask(request))

    def _ask(self, request: OffsetCommitRequest) -> OffsetCommitResult:
        return ask(self._broker.offset_commit(request), "commit offsets", self._config)

    def _take(self, request: OffsetCommitRequest, result: OffsetCommitResult) -> None:
        group, membership = request.group, self.membership
        code = result.error  # it is looked for among the partitions
        if membership is not None and code in _NO_MEMBER:
            membership.refused(code)
            raise RetriableError(
                f"group {group!r} rebalances, and nothing was committed; what was read since the last "
                "commit comes again, here or to another member"
            )
        if code in _NO_MEMBER:
            raise UsageError(
                f"group {group!r} has members, which commit for it; a consumer of partitions that you name "
                "needs a group of its own"
            )
        if code is not ErrorCode.NONE:
            failed = [str(each) for each, error in result.errors.items() if error is not ErrorCode.NONE]
            what = result.message or code.name
            raise error_of(code, f"group {group!r}: no offset was committed for {', '.join(failed)}: {what}")
        self._counts.commit_count += 1
        self._last.update(
            {each: (request.topic_ids.get(each), value.offset) for each, value in request.offsets.items()}
        )
        self._last_ms = self._clock.monotonic_ms()

    # By themselves

    def commit_if_due(self) -> None:
        """Commit what has changed, if ``auto_commit_interval_ms`` are over and commits are automatic."""
        is_due = self._clock.monotonic_ms() - self._last_ms >= self._config.auto_commit_interval_ms
        if self._config.enable_auto_commit and is_due:
            self.commit_changed(self._positions.partitions)

    def commit_changed(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit the positions of these partitions that have moved, if commits are automatic."""
        if self._group is None or not self._config.enable_auto_commit:
            return
        wanted = set(partitions)
        changed = {
            each: each.to_commit
            for each in self._positions
            if each.partition in wanted
            and each.offset != NO_POSITION
            and (each.topic_id, each.offset) != self._last.get(each.partition)
        }
        self._last_ms = self._clock.monotonic_ms()
        if changed:
            self._commit_unasked(self._request(changed, self._group))

    def _commit_unasked(self, request: OffsetCommitRequest) -> None:
        """As Kafka's consumer, one that is out of its group goes on, and so joins again. What was read of a
        topic that is gone is left out: nobody can read behind it."""
        result = self._ask(request)
        if self.membership is not None and result.error in _NO_MEMBER:
            warn(
                "group %r rebalances, perhaps because this consumer did not poll for max_poll_interval_ms; "
                "what it has read of %s since the last commit is not committed, and comes again, here or to "
                "another member",
                request.group,
                ", ".join(map(str, request.offsets)),
            )
            self.membership.refused(result.error)
            return
        gone = [str(each) for each, code in result.errors.items() if code in _NO_TOPIC]
        if gone:
            warn(
                "group %r: the offset of %s is not committed, as the topic was deleted since it was read",
                request.group,
                ", ".join(gone),
            )
            others = {each: code for each, code in result.errors.items() if code not in _NO_TOPIC}
            result = OffsetCommitResult(others, result.message)
        self._take(request, result)

    # Looking

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed for these partitions.

        Raises:
            UsageError: the consumer has no group.
            RetriableError: it is not known yet, as an open transaction is about to commit it.
        """
        offsets, unstable = self.look_up(partitions)
        if unstable:
            names = ", ".join(map(str, sorted(unstable)))
            raise RetriableError(f"group {self._group!r} has offsets of {names} in an open transaction")
        return offsets

    def look_up(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], frozenset[TopicPartition]]:
        """The same, and the partitions of which an open transaction is about to commit offsets (KIP-447).
        Whatever the isolation, as in Kafka: who begins at the offset before reads records again whose results
        that transaction commits.

        Raises:
            UsageError: the consumer has no group.
            RetriableError: it is not known yet.
        """
        group = self._group
        if group is None:
            raise UsageError("the consumer has no group; consumer(..., group='billing')")
        request = OffsetFetchRequest(group, tuple(partitions), require_stable=True)
        result = ask(self._broker.offset_fetch(request), "tell of committed offsets", self._config)
        if result.error is ErrorCode.NONE:
            return dict(result.offsets), result.unstable.intersection(request.partitions or ())
        what = result.message or result.error.name
        if result.error in RETRIABLE:
            raise RetriableError(f"group {group!r}: {what}")
        raise error_of(result.error, what)


def as_offset(value: Any) -> OffsetAndMetadata:
    """An offset to commit, with or without metadata.

    Raises:
        UsageError: it is no offset, or its metadata is no text.
        OffsetOutOfRangeError: it is below 0.
    """
    if not isinstance(value, OffsetAndMetadata):
        return OffsetAndMetadata(check_offset(value, "offset"))
    check_offset(value.offset, "offset")
    if not isinstance(value.metadata, str):
        raise UsageError(f"metadata is {shown(value.metadata)}; it must be text")
    check_epoch(value.leader_epoch)
    return value
