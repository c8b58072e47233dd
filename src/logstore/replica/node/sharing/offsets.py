"""How far share groups of a cluster are: asked of the share coordinator, and of the leaders for the ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.consumer_groups.topics import Topics
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResult
from logstore.broker.share.held import NO_LIMIT, records_of, state_of
from logstore.broker.share.kept import JUST_LOOKS, Beginning, Codes, Names, Reading, ReadState
from logstore.broker.share.requests import (
    AlterShareOffsets,
    AlterShareOffsetsResult,
    DeleteShareOffsets,
    DeleteShareOffsetsResult,
    ShareGroupOffsets,
    ShareOffset,
    ShareOffsetsQuery,
)
from logstore.format.messages.share_records import ShareKey
from logstore.model import TopicPartition
from logstore.replica.coordination.interface import View
from logstore.replica.node.peers import Peers
from logstore.replica.node.sharing.asking import StateAsker
from logstore.replica.node.sharing.members import ShareMembers
from logstore.replica.node.telling import leader_of
from logstore.wire.handlers.then import gather, then, then_ask
from logstore.wire.remote.translate.records import LIST_OFFSETS

_Found = Mapping[TopicPartition, ReadState]
_Ends = Mapping[TopicPartition, int]


class ShareOffsets:
    """Of one node, while it coordinates groups."""

    def __init__(
        self,
        node_id: int,
        view: Callable[[], View],
        topics: Callable[[], Topics],
        states: StateAsker,
        list_offsets: Callable[[ListOffsetsRequest], Pending[ListOffsetsResult]],
        peers: Peers,
    ) -> None:
        """``list_offsets``: of partitions that this node leads."""
        self._node_id = node_id
        self._view = view
        self._topics = topics
        self._states = states
        self._list_offsets = list_offsets
        self._peers = peers

    def describe(self, members: ShareMembers, query: ShareOffsetsQuery) -> Pending[ShareGroupOffsets]:
        """See :meth:`.Broker.share_group_offsets`."""
        wanted = self._all() if query.partitions is None else query.partitions

        def with_names(code: ErrorCode) -> Pending[ShareGroupOffsets]:
            if code is not NONE:
                return Answered(ShareGroupOffsets(code, query.group))
            return then_ask(self._look(self._keys(query.group, wanted)), with_states)

        def with_states(found: _Found) -> Pending[ShareGroupOffsets]:
            begun = [each for each, read in found.items() if read.error is NONE]
            return then(self._ends(begun), lambda ends: told(found, ends))

        def told(found: _Found, ends: _Ends) -> ShareGroupOffsets:
            offsets = [self._offset(each, found.get(each), ends.get(each)) for each in wanted]
            if query.partitions is None:
                offsets = [each for each in offsets if each.error is not NONE or each.start_offset >= 0]
            return ShareGroupOffsets(NONE, query.group, tuple(offsets))

        return then_ask(self._why_unknown(members, query.group), with_names)

    def _offset(self, partition: TopicPartition, read: ReadState | None, end: int | None) -> ShareOffset:
        if read is None:
            return ShareOffset(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if read.error is ErrorCode.GROUP_ID_NOT_FOUND or (read.error is NONE and read.state.start_offset < 0):
            return ShareOffset(partition)
        if read.error is not NONE:
            return ShareOffset(partition, read.error)
        records = records_of(read.state, NO_LIMIT)
        known = self._view().partitions.get(partition)
        leader_epoch = 0 if known is None else known.leader_epoch
        offset = ShareOffset(partition, NONE, records.start_offset, leader_epoch)
        if end is None:
            return offset._replace(error=ErrorCode.LEADER_NOT_AVAILABLE)
        return offset._replace(lag=state_of(partition, records, max(end, records.end_offset)).undone_count)

    def alter(self, members: ShareMembers, request: AlterShareOffsets) -> Pending[AlterShareOffsetsResult]:
        """See :meth:`.Broker.alter_share_group_offsets`."""
        keys = self._keys(request.group, [partition for partition, _ in request.offsets])

        def with_names(code: ErrorCode) -> Pending[AlterShareOffsetsResult]:
            if code not in (NONE, ErrorCode.GROUP_ID_NOT_FOUND):  # it need not have begun
                return Answered(AlterShareOffsetsResult(code))
            return then_ask(self._ends(keys), with_ends)

        def with_ends(ends: _Ends) -> Pending[AlterShareOffsetsResult]:
            errors: dict[TopicPartition, ErrorCode] = {}
            wanted: dict[TopicPartition, Beginning] = {}
            for partition, offset in request.offsets:
                if partition not in keys:
                    errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif partition not in ends:
                    errors[partition] = ErrorCode.LEADER_NOT_AVAILABLE
                elif not 0 <= offset <= ends[partition]:
                    errors[partition] = ErrorCode.INVALID_REQUEST
                else:
                    wanted[partition] = Beginning(keys[partition], offset, anew=True)
            if not wanted:
                return Answered(AlterShareOffsetsResult(NONE, errors))

            def told(codes: Codes) -> AlterShareOffsetsResult:
                changed = {partition: codes[each.key] for partition, each in wanted.items()}
                return AlterShareOffsetsResult(NONE, {**errors, **changed})

            return then(self._states.begin(list(wanted.values())), told)

        return then_ask(self._why_unchangeable(members, request.group), with_names)

    def delete(self, members: ShareMembers, request: DeleteShareOffsets) -> Pending[DeleteShareOffsetsResult]:
        """See :meth:`.Broker.delete_share_group_offsets`."""
        keys = self._keys(request.group, [each for each in self._all() if each.topic in request.topics])

        def with_names(code: ErrorCode) -> Pending[DeleteShareOffsetsResult]:
            if code is not NONE:
                return Answered(DeleteShareOffsetsResult(code))
            return then_ask(self._look(keys), with_states)

        def with_states(found: _Found) -> Pending[DeleteShareOffsetsResult]:
            errors = dict.fromkeys(request.topics, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            begun: dict[TopicPartition, ShareKey] = {}
            for partition, read in found.items():
                if read.error is NONE:
                    begun[partition] = keys[partition]
                if read.error is not ErrorCode.GROUP_ID_NOT_FOUND:
                    errors[partition.topic] = read.error
            members.forget_topics(request.group, {key.topic_id for key in begun.values()})

            def told(codes: Codes) -> DeleteShareOffsetsResult:
                failed = {each.topic: codes[key] for each, key in begun.items() if codes[key] is not NONE}
                return DeleteShareOffsetsResult(NONE, {**errors, **failed})

            return then(self._states.delete(list(begun.values())), told)

        return then_ask(self._why_unchangeable(members, request.group), with_names)

    # What is there

    def _all(self) -> tuple[TopicPartition, ...]:
        return tuple(
            TopicPartition(name, number)
            for name, topic in self._topics().items()
            for number in range(topic.partition_count)
        )

    def _keys(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ShareKey]:
        """Of those that exist."""
        topics, found = self._topics(), {}
        for each in partitions:
            topic = topics.get(each.topic)
            if topic is not None and 0 <= each.partition < topic.partition_count:
                found[each] = ShareKey(group, topic.topic_id, each.partition)
        return found

    def _why_unknown(self, members: ShareMembers, group: str) -> Pending[ErrorCode]:
        def why(found: Names) -> ErrorCode:
            if found.error is not NONE:
                return found.error
            is_known = group in found.names or group in members.names()
            return NONE if is_known else ErrorCode.GROUP_ID_NOT_FOUND

        return then(self._states.names(), why)

    def _why_unchangeable(self, members: ShareMembers, group: str) -> Pending[ErrorCode]:
        def why(code: ErrorCode) -> ErrorCode:
            has_members = code is NONE and members.describe(group) is not None
            return ErrorCode.NON_EMPTY_GROUP if has_members else code

        return then(self._why_unknown(members, group), why)

    def _look(self, keys: Mapping[TopicPartition, ShareKey]) -> Pending[_Found]:
        if not keys:
            return Answered({})
        read = self._states.read([Reading(key, JUST_LOOKS) for key in keys.values()])
        return then(read, lambda found: {partition: found[key] for partition, key in keys.items()})

    def _ends(self, partitions: Iterable[TopicPartition]) -> Pending[_Ends]:
        """The high watermarks, of those whose leaders say them."""
        view = self._view()
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            node_id = leader_of(view, each)
            if node_id is not None:
                by_leader.setdefault(node_id, []).append(each)

        def ends(results: Sequence[ListOffsetsResult]) -> _Ends:
            listed = [each for result in results for each in result.partitions]
            return {each.partition: each.offset for each in listed if each.error is NONE}

        return then(gather([self._ask(*each) for each in by_leader.items()]), ends)

    def _ask(self, node_id: int, partitions: Sequence[TopicPartition]) -> Pending[ListOffsetsResult]:
        request = ListOffsetsRequest(tuple([ListOffsetsPartition(each, LATEST) for each in partitions]))
        if node_id == self._node_id:
            return self._list_offsets(request)
        return self._peers.ask(node_id, LIST_OFFSETS, request)
