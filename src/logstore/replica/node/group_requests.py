"""The requests about groups, as a node of a cluster answers them."""

from __future__ import annotations

from collections.abc import Iterable

from logstore.broker.codes import ErrorCode
from logstore.broker.committing import forget_topics
from logstore.broker.consumer_groups.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribedConsumerGroup,
)
from logstore.broker.coordinating import ConsumerGroups
from logstore.broker.groups.requests import (
    DescribedGroup,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    ListGroupsResult,
    SyncGroup,
    SyncGroupResult,
)
from logstore.broker.local import LocalBroker
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import (
    OffsetCommitRequest,
    OffsetCommitResult,
    OffsetDeleteRequest,
    OffsetDeleteResult,
    OffsetFetchRequest,
    OffsetFetchResult,
)
from logstore.replica.node.coordinating import GroupTerms


class GroupBroker(LocalBroker):
    """A broker that coordinates groups while it leads them."""

    terms: GroupTerms
    """Set before the first request."""

    def use_groups(self, groups: ConsumerGroups) -> None:
        """A new term begins."""
        self._groups = groups
        self.committed = groups.committed

    def why_no_groups(self) -> ErrorCode:
        """Why this node, which coordinates no groups now, lists none; ``NONE`` if another one does."""
        return ErrorCode.NONE

    def forget_topics(self, topics: Iterable[str]) -> None:
        """These topics were deleted: what groups have committed and done of them goes, too. The nodes that
        coordinate that do it."""
        term = self.terms.look()
        if term is not None:
            forget_topics(term.coordinator.committed, topics)

    def offset_commit(self, request: OffsetCommitRequest) -> Pending[OffsetCommitResult]:
        ask = super().offset_commit
        return self.terms.ask(
            lambda: ask(request), lambda code: OffsetCommitResult(dict.fromkeys(request.offsets, code))
        )

    def offset_fetch(self, request: OffsetFetchRequest) -> Pending[OffsetFetchResult]:
        ask = super().offset_fetch
        return self.terms.ask(lambda: ask(request), OffsetFetchResult)

    def offset_delete(self, request: OffsetDeleteRequest) -> Pending[OffsetDeleteResult]:
        ask = super().offset_delete
        return self.terms.ask(lambda: ask(request), OffsetDeleteResult)

    def join_group(self, request: JoinGroup) -> Pending[JoinGroupResult]:
        ask = super().join_group
        return self.terms.ask(lambda: ask(request), lambda code: JoinGroupResult(code, request.member_id))

    def sync_group(self, request: SyncGroup) -> Pending[SyncGroupResult]:
        ask = super().sync_group
        return self.terms.ask(lambda: ask(request), SyncGroupResult)

    def heartbeat(self, request: Heartbeat) -> Pending[ErrorCode]:
        ask = super().heartbeat
        return self.terms.ask(lambda: ask(request), lambda code: code)

    def leave_group(self, request: LeaveGroup) -> Pending[LeaveGroupResult]:
        ask = super().leave_group
        return self.terms.ask(lambda: ask(request), LeaveGroupResult)

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat
    ) -> Pending[ConsumerGroupHeartbeatResult]:
        ask = super().consumer_group_heartbeat
        return self.terms.ask(lambda: ask(request), ConsumerGroupHeartbeatResult)

    def list_groups(self) -> Pending[ListGroupsResult]:
        """Clients ask all nodes, each for its own."""
        if self.terms.look() is None:
            return Answered(ListGroupsResult(self.why_no_groups()))
        return super().list_groups()

    def describe_groups(self, group_ids: tuple[str, ...]) -> Pending[tuple[DescribedGroup, ...]]:
        ask = super().describe_groups
        return self.terms.ask(
            lambda: ask(group_ids),
            lambda code: tuple([DescribedGroup(code, name, "") for name in group_ids]),
        )

    def describe_consumer_groups(
        self, group_ids: tuple[str, ...]
    ) -> Pending[tuple[DescribedConsumerGroup, ...]]:
        ask = super().describe_consumer_groups
        return self.terms.ask(
            lambda: ask(group_ids),
            lambda code: tuple([DescribedConsumerGroup(code, name) for name in group_ids]),
        )

    def delete_groups(self, group_ids: tuple[str, ...]) -> Pending[dict[str, ErrorCode]]:
        ask = super().delete_groups
        return self.terms.ask(lambda: ask(group_ids), lambda code: dict.fromkeys(group_ids, code))
