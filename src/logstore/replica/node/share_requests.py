"""The requests about share groups, as a node of a cluster answers them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.coordinating import ConsumerGroups
from logstore.broker.pending import Answered, Pending
from logstore.broker.share.kept import Names, first_error
from logstore.broker.share.requests import (
    AlterShareOffsets,
    AlterShareOffsetsResult,
    DeleteShareOffsets,
    DeleteShareOffsetsResult,
    DescribedShareGroup,
    ListShareGroupsResult,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResult,
    ShareFetchRequest,
    ShareFetchResult,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareGroupOffsets,
    ShareOffsetsQuery,
)
from logstore.broker.storing.share_groups import ELSEWHERE_STATE
from logstore.config import TopicConfig
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.replica.coordination.interface import Session, View
from logstore.replica.node.assigning import config_of
from logstore.replica.node.partition import PartitionReplica
from logstore.replica.node.peers import Peers
from logstore.replica.node.sharing.asking import StateAsker
from logstore.replica.node.sharing.led import LedShares
from logstore.replica.node.sharing.letters import LetterBox
from logstore.replica.node.sharing.members import ShareMembers
from logstore.replica.node.sharing.offsets import ShareOffsets
from logstore.replica.node.sharing.settings import ClusterGroupSettings
from logstore.replica.node.sharing.states import LedStates
from logstore.replica.node.telling import TopicsOfCluster
from logstore.replica.node.transaction_requests import TransactionBroker
from logstore.wire.handlers.then import gather, then, then_ask

T = TypeVar("T")


class ShareBroker(TransactionBroker):
    """A broker that has the members of share groups while it coordinates groups, their states while it leads
    the topic of those, and gives records of what it leads."""

    def __init__(
        self,
        directory: LogDirectory,
        node_id: int,
        replicas: Mapping[TopicPartition, PartitionReplica],
        view: Callable[[], View],
        is_coming: Callable[[str], bool | None],
        peers: Peers,
        session: Callable[[], Session | None],
        was_deleted: Callable[[uuid.UUID], bool],
    ) -> None:
        """``is_coming``: see :class:`.TransactionBroker`. ``was_deleted``: whether somebody has deleted a
        topic; False if the coordinator cannot be asked."""
        super().__init__(directory, node_id, replicas, view, is_coming, peers)
        self._group_settings = ClusterGroupSettings(view, session, self._topic_config, directory.config)
        self.group_settings = self._group_settings  # type: ignore[assignment]  # the same methods
        self._led_states = LedStates(directory, replicas)
        clock = directory.context.clock
        self._states = StateAsker(node_id, view, self._led_states, peers, clock)
        self._letters = LetterBox(directory, node_id, view, self.produce, peers, self._topic_config)
        self._led_shares = LedShares(
            directory, replicas, self._states, self._group_settings.config_of, self._letters
        )
        self._all_topics = TopicsOfCluster(view)
        self._offsets = ShareOffsets(node_id, view, self._all_topics, self._states, self.list_offsets, peers)
        self._was_deleted = was_deleted
        self._members = self._no_members()

    def _topic_config(self, name: str) -> TopicConfig | None:
        topic = self._view().topics.get(name)
        return None if topic is None else config_of(self._directory, topic)

    @property
    def share_states(self) -> LedStates:
        return self._led_states

    def use_groups(self, groups: ConsumerGroups) -> None:
        super().use_groups(groups)
        self._members = self._no_members()

    def _no_members(self) -> ShareMembers:
        clock = self._directory.context.clock
        return ShareMembers(self._all_topics, self._states, self._group_settings.newest_config_of, clock)

    def look_at_shares(self) -> None:
        """See what this node leads, and what others lead now."""
        if self._led_states.look():  # it may have been away when topics were deleted
            self._forget_deleted()
        self._led_shares.look()

    def forget_topics(self, topics: Iterable[str]) -> None:
        super().forget_topics(topics)
        self._forget_deleted()

    def _forget_deleted(self) -> None:
        known = {topic.topic_id for topic in self._view().topics.values()}
        self._led_states.forget_topics(lambda each: each not in known and self._was_deleted(each))

    def close_shares(self) -> None:
        """The node ends."""
        self._led_shares.close()
        self._led_states.close()
        self._states.close()
        self._letters.close()

    def share_group_heartbeat(self, request: ShareGroupHeartbeat) -> Pending[ShareGroupHeartbeatResult]:
        if not request.waits_for_topics:
            message = "a queue of a cluster is used through logstore.connect(): its records are on many nodes"
            return Answered(ShareGroupHeartbeatResult(ErrorCode.INVALID_REQUEST, message=message))
        return self._ask_members(
            lambda members: members.heartbeat(request), lambda code: ShareGroupHeartbeatResult(code)
        )

    def _ask_members(
        self, ask: Callable[[ShareMembers], Pending[T]], refusal: Callable[[ErrorCode], T]
    ) -> Pending[T]:
        return self.terms.ask(lambda: ask(self._members), refusal)

    def share_fetch(self, request: ShareFetchRequest) -> Pending[ShareFetchResult]:
        return self._led_shares.fetch(request)

    def share_acknowledge(self, request: ShareAcknowledgeRequest) -> Pending[ShareAcknowledgeResult]:
        return self._led_shares.acknowledge(request)

    # For administrators

    def share_groups_in_use(self) -> tuple[DescribedShareGroup, ...]:
        """What this node knows of them: members if it coordinates groups, and how far they are in the
        partitions that it leads, where a member has asked for them."""
        is_coordinator = self.terms.look() is not None
        groups = {each.group: each for each in (self._members.describe_all() if is_coordinator else ())}
        for name, partitions in self._led_shares.describe().items():
            state = "Empty" if is_coordinator else ELSEWHERE_STATE
            group = groups.get(name) or DescribedShareGroup(NONE, name, state)
            groups[name] = group._replace(partitions=tuple(sorted(partitions)))
        return tuple(groups[name] for name in sorted(groups))

    def list_share_groups(self) -> Pending[ListShareGroupsResult]:
        """Clients ask all nodes, each for its own: those that it coordinates."""
        if self.terms.look() is None:
            return Answered(ListShareGroupsResult(self.why_no_groups()))
        members = self._members

        def all_of(found: Names) -> ListShareGroupsResult:
            return ListShareGroupsResult(found.error, tuple(sorted(members.names() | {*found.names})))

        return then(self._states.names(), all_of)

    def describe_share_groups(self, names: tuple[str, ...]) -> Pending[tuple[DescribedShareGroup, ...]]:
        def describe(members: ShareMembers) -> Pending[tuple[DescribedShareGroup, ...]]:
            known = {name: found for name in names if (found := members.describe(name)) is not None}
            if len(known) == len(set(names)):
                return Answered(tuple(known[name] for name in names))
            return then(
                self._states.names(),
                lambda found: tuple(known.get(name) or _stored(name, found) for name in names),
            )

        return self._ask_members(
            describe, lambda code: tuple(DescribedShareGroup(code, each) for each in names)
        )

    def delete_share_groups(self, names: tuple[str, ...]) -> Pending[dict[str, ErrorCode]]:
        def delete(members: ShareMembers) -> Pending[dict[str, ErrorCode]]:
            if not names:
                return Answered({})
            return then_ask(self._states.names(), lambda found: delete_known(members, found))

        def delete_known(members: ShareMembers, found: Names) -> Pending[dict[str, ErrorCode]]:
            known = members.names() | {*found.names}
            codes = {
                name: ErrorCode.GROUP_ID_NOT_FOUND if name not in known else members.forget(name)
                for name in names
            }
            asked = [name for name, code in codes.items() if code is NONE]
            told = gather([self._states.delete(members.keys_of(name)) for name in asked])
            return then(told, lambda each: {**codes, **dict(zip(asked, map(first_error, each), strict=True))})

        return self._ask_members(delete, lambda code: dict.fromkeys(names, code))

    def share_group_offsets(self, query: ShareOffsetsQuery) -> Pending[ShareGroupOffsets]:
        return self._ask_members(
            lambda members: self._offsets.describe(members, query),
            lambda code: ShareGroupOffsets(code, query.group),
        )

    def alter_share_group_offsets(self, request: AlterShareOffsets) -> Pending[AlterShareOffsetsResult]:
        return self._ask_members(
            lambda members: self._offsets.alter(members, request), AlterShareOffsetsResult
        )

    def delete_share_group_offsets(self, request: DeleteShareOffsets) -> Pending[DeleteShareOffsetsResult]:
        return self._ask_members(
            lambda members: self._offsets.delete(members, request), DeleteShareOffsetsResult
        )


def _stored(name: str, found: Names) -> DescribedShareGroup:
    """A group that has no members in this term."""
    if found.error is not NONE:
        return DescribedShareGroup(found.error, name)
    if name in found.names:
        return DescribedShareGroup(NONE, name, "Empty")
    return DescribedShareGroup(ErrorCode.GROUP_ID_NOT_FOUND, name)
