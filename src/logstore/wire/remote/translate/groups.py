"""Groups of the classic protocol, and their offsets: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ListGroups,
DescribeGroups, DeleteGroups, OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from logstore.broker.codes import ErrorCode
from logstore.broker.committing import IS_OF_ANOTHER
from logstore.broker.groups.requests import (
    CLASSIC,
    CONSUMER,
    DescribedGroup,
    DescribedMember,
    Heartbeat,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeftMember,
    ListedGroup,
    ListGroupsResult,
    SyncGroup,
    SyncGroupResult,
)
from logstore.broker.requests import (
    OffsetCommitRequest,
    OffsetCommitResult,
    OffsetDeleteRequest,
    OffsetDeleteResult,
    OffsetFetchRequest,
    OffsetFetchResult,
)
from logstore.model import OffsetAndMetadata, TopicPartition
from logstore.wire.apis import ApiKey
from logstore.wire.messages.groups import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from logstore.wire.messages.transactions import txn_offset_commit
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.connections.nodes import Lane
from logstore.wire.remote.connections.questions import ANY_VERSION
from logstore.wire.remote.translate.translation import Translation, by_topic, codes_of

_BY_NAME: Final = 9
"""OffsetCommit, OffsetFetch: later versions name topics by ids."""
_MANY_GROUPS: Final = 8
_MANY_MEMBERS: Final = 3
_WITH_MEMBER: Final = 3
_WITHOUT_ADDING: Final = 4
"""TxnOffsetCommit: later versions take the group into the transaction unasked."""
_WITHOUT_PROTOCOL: Final = 4
_LONGEST_REBALANCE_MS: Final = 300_000
"""How long a member may wait for its leader."""
_GRACE_MS: Final = 5_000
"""How much longer than its rebalance timeout a join may take, as in Kafka's clients."""
_OF_CONSUMERS: Final = frozenset({"", CLASSIC, CONSUMER})
"""Types of groups (KIP-848) that are listed; share groups and others are not."""


# Members

JOIN_GROUP: Final = Translation[JoinGroup, JoinGroupResult](
    key=ApiKey.JOIN_GROUP,
    build=lambda request, version: join_group.JoinGroupRequest(
        request.group_id,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.member_id,
        request.instance_id,
        request.protocol_type,
        tuple(join_group.Protocol(each.name, each.metadata) for each in request.protocols),
    ),
    parse=lambda request, response: JoinGroupResult(
        code_of_number(response.error_code),
        response.member_id,
        response.generation_id,
        response.protocol_type or request.protocol_type,
        response.protocol_name,
        response.leader,
        response.skip_assignment,
        tuple(
            JoinedMember(each.member_id, each.group_instance_id, bytes(each.metadata))
            for each in response.members
        ),
    ),
    refuse=lambda request, code, message: JoinGroupResult(code, request.member_id, message=message),
    lane=Lane.WAITS,
    may_repeat=False,
    wait_ms=lambda request: max(request.rebalance_timeout_ms, 0) + _GRACE_MS,
)


def syncing(request: SyncGroup) -> Translation[SyncGroup, SyncGroupResult]:
    """SyncGroup. Later versions want to hear the protocol, which a member need not say here (KIP-559)."""
    says_protocol = request.protocol_type is not None and request.protocol is not None
    return Translation(
        key=ApiKey.SYNC_GROUP,
        build=lambda request, version: sync_group.SyncGroupRequest(
            request.group_id,
            request.generation,
            request.member_id,
            request.instance_id,
            request.protocol_type,
            request.protocol,
            tuple(sync_group.Assignment(member, part) for member, part in request.assignments.items()),
        ),
        parse=lambda request, response: SyncGroupResult(
            code_of_number(response.error_code),
            response.protocol_type or request.protocol_type,
            response.protocol_name or request.protocol,
            bytes(response.assignment),
        ),
        refuse=lambda request, code, message: SyncGroupResult(code),
        last=ANY_VERSION if says_protocol else _WITHOUT_PROTOCOL,
        lane=Lane.WAITS,
        wait_ms=lambda _: _LONGEST_REBALANCE_MS,
    )


HEARTBEAT: Final = Translation[Heartbeat, ErrorCode](
    key=ApiKey.HEARTBEAT,
    build=lambda request, version: heartbeat.HeartbeatRequest(
        request.group_id, request.generation, request.member_id, request.instance_id
    ),
    parse=lambda request, response: code_of_number(response.error_code),
    refuse=lambda request, code, message: code,
    judge=lambda code: code,
)

LEAVE_GROUP: Final = Translation[LeaveGroup, LeaveGroupResult](
    key=ApiKey.LEAVE_GROUP,
    build=lambda request, version: leave_group.LeaveGroupRequest(
        request.group_id,
        members=tuple(leave_group.Member(each.member_id, each.instance_id) for each in request.members),
    ),
    parse=lambda request, response: LeaveGroupResult(
        code_of_number(response.error_code),
        tuple(
            LeftMember(code_of_number(each.error_code), each.member_id, each.group_instance_id)
            for each in response.members
        ),
    ),
    refuse=lambda request, code, message: LeaveGroupResult(code),
    first=_MANY_MEMBERS,
)


# Looking after groups

LIST_GROUPS: Final = Translation[None, ListGroupsResult](
    key=ApiKey.LIST_GROUPS,
    build=lambda request, version: list_groups.ListGroupsRequest(),
    parse=lambda request, response: ListGroupsResult(
        code_of_number(response.error_code),
        tuple(
            ListedGroup(
                each.group_id, each.protocol_type, each.group_state, each.group_type.lower() or CLASSIC
            )
            for each in response.groups
            if each.group_type.lower() in _OF_CONSUMERS and each.protocol_type != "share"
        ),
        why_of_number(response.error_code),
    ),
    refuse=lambda request, code, message: ListGroupsResult(code, message=message),
    first=4,
)

SHARE_TYPE: Final = "share"

LIST_SHARE_GROUPS: Final = Translation[None, ListGroupsResult](
    key=ApiKey.LIST_GROUPS,
    build=lambda request, version: list_groups.ListGroupsRequest(types_filter=(SHARE_TYPE,)),
    parse=lambda request, response: ListGroupsResult(
        code_of_number(response.error_code),
        tuple(ListedGroup(each.group_id, each.protocol_type, each.group_state) for each in response.groups),
        why_of_number(response.error_code),
    ),
    refuse=lambda request, code, message: ListGroupsResult(code, message=message),
    first=5,
)

_DEAD: Final = "Dead"


def _described(group: describe_groups.Group) -> DescribedGroup:
    code = code_of_number(group.error_code)
    if code is ErrorCode.GROUP_ID_NOT_FOUND:  # of version 6; before it is dead, without an error
        return DescribedGroup(ErrorCode.NONE, group.group_id, _DEAD)
    return DescribedGroup(
        code,
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        tuple(
            DescribedMember(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                bytes(each.member_metadata),
                bytes(each.member_assignment),
            )
            for each in group.members
        ),
        why_of_number(group.error_code, group.error_message),
    )


DESCRIBE_GROUPS: Final = Translation[tuple[str, ...], dict[str, DescribedGroup]](
    key=ApiKey.DESCRIBE_GROUPS,
    build=lambda names, version: describe_groups.DescribeGroupsRequest(names),
    parse=lambda names, response: {each.group_id: _described(each) for each in response.groups},
    refuse=lambda names, code, message: {
        name: DescribedGroup(code, name, "", message=message) for name in names
    },
    judge=lambda found: next((each.error for each in found.values() if each.error), ErrorCode.NONE),
)

DELETE_GROUPS: Final = Translation[tuple[str, ...], dict[str, ErrorCode]](
    key=ApiKey.DELETE_GROUPS,
    build=lambda names, version: delete_groups.DeleteGroupsRequest(names),
    parse=lambda names, response: {
        each.group_id: code_of_number(each.error_code) for each in response.groups
    },
    refuse=lambda names, code, message: dict.fromkeys(names, code),
    judge=lambda found: next((code for code in found.values() if code), ErrorCode.NONE),
    lane=Lane.WAITS,
    may_repeat=False,
)


# Committed offsets


def _first_error(result: OffsetCommitResult) -> ErrorCode:
    return result.error


def _build_commit(request: OffsetCommitRequest, version: int) -> offset_commit.OffsetCommitRequest:
    topics = tuple(
        offset_commit.Topic(
            name,
            partitions=tuple([_commit_row(*item) for item in items]),
        )
        for name, items in by_topic(request.offsets.items(), lambda item: item[0]).items()
    )
    return _commit_of(request, topics)


def _commit_row(partition: TopicPartition, value: OffsetAndMetadata) -> offset_commit.Partition:
    epoch = -1 if value.leader_epoch is None else value.leader_epoch
    return offset_commit.Partition(partition.partition, value.offset, epoch, value.metadata)


def _commit_of(
    request: OffsetCommitRequest, topics: tuple[offset_commit.Topic, ...]
) -> offset_commit.OffsetCommitRequest:
    return offset_commit.OffsetCommitRequest(
        request.group, request.generation, request.member_id, request.instance_id, topics=topics
    )


def _parse_commit(request: OffsetCommitRequest, response: Any) -> OffsetCommitResult:
    numbers = codes_of(request.offsets, response.topics)
    strange = next((why for number in numbers.values() if (why := why_of_number(number))), None)
    return OffsetCommitResult({each: code_of_number(number) for each, number in numbers.items()}, strange)


OFFSET_COMMIT: Final = Translation(
    key=ApiKey.OFFSET_COMMIT,
    build=_build_commit,
    parse=_parse_commit,
    refuse=lambda request, code, message: OffsetCommitResult(dict.fromkeys(request.offsets, code), message),
    judge=_first_error,
    last=_BY_NAME,
)


def _build_commit_by_id(request: OffsetCommitRequest, version: int) -> offset_commit.OffsetCommitRequest:
    found: dict[UUID, list[offset_commit.Partition]] = {}
    for partition, value in request.offsets.items():
        found.setdefault(request.topic_ids[partition], []).append(_commit_row(partition, value))
    topics = tuple(
        offset_commit.Topic(topic_id=topic_id, partitions=tuple(rows)) for topic_id, rows in found.items()
    )
    return _commit_of(request, topics)


def _parse_commit_by_id(request: OffsetCommitRequest, response: Any) -> OffsetCommitResult:
    numbers = {
        (topic.topic_id, each.partition): int(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }
    found = {each: numbers.get((request.topic_ids[each], each.partition), -1) for each in request.offsets}
    is_of_another = ErrorCode.UNKNOWN_TOPIC_ID in found.values()
    strange = next((why for number in found.values() if (why := why_of_number(number))), None)
    return OffsetCommitResult(
        {
            each: ErrorCode.UNKNOWN_TOPIC_ID
            if number == ErrorCode.UNKNOWN_TOPIC_ID
            else code_of_number(number)
            for each, number in found.items()
        },
        strange or (IS_OF_ANOTHER if is_of_another else None),
    )


OFFSET_COMMIT_BY_ID: Final = Translation(
    key=ApiKey.OFFSET_COMMIT,
    build=_build_commit_by_id,
    parse=_parse_commit_by_id,
    refuse=lambda request, code, message: OffsetCommitResult(dict.fromkeys(request.offsets, code), message),
    judge=_first_error,
    first=_BY_NAME + 1,
)
"""The ids of all topics are known. Older brokers do not serve it."""


def _build_txn_commit(request: OffsetCommitRequest, version: int) -> txn_offset_commit.TxnOffsetCommitRequest:
    producer = request.transaction
    assert producer is not None
    topics = tuple(
        txn_offset_commit.Topic(
            name,
            tuple(
                txn_offset_commit.Partition(
                    partition.partition,
                    value.offset,
                    -1 if value.leader_epoch is None else value.leader_epoch,
                    value.metadata,
                )
                for partition, value in items
            ),
        )
        for name, items in by_topic(request.offsets.items(), lambda item: item[0]).items()
    )
    return txn_offset_commit.TxnOffsetCommitRequest(
        producer.transactional_id,
        request.group,
        producer.producer_id,
        producer.producer_epoch,
        request.generation,
        request.member_id,
        request.instance_id,
        topics,
    )


TXN_OFFSET_COMMIT: Final = Translation(
    key=ApiKey.TXN_OFFSET_COMMIT,
    build=_build_txn_commit,
    parse=_parse_commit,
    refuse=lambda request, code, message: OffsetCommitResult(dict.fromkeys(request.offsets, code), message),
    judge=_first_error,
    first=_WITH_MEMBER,
    last=_WITHOUT_ADDING,
)


def _build_offset_fetch(request: OffsetFetchRequest, version: int) -> offset_fetch.OffsetFetchRequest:
    topics = None
    if request.partitions is not None:
        topics = tuple(
            offset_fetch.GroupTopic(name, partitions=tuple(each.partition for each in items))
            for name, items in by_topic(request.partitions, lambda each: each).items()
        )
    group = offset_fetch.Group(request.group, topics=topics)
    return offset_fetch.OffsetFetchRequest(groups=(group,), require_stable=request.require_stable)


def _parse_offset_fetch(
    request: OffsetFetchRequest, response: offset_fetch.OffsetFetchResponse
) -> OffsetFetchResult:
    found = next((each for each in response.groups if each.group_id == request.group), None)
    if found is None:
        why = "the broker has left the group out of its answer"
        return OffsetFetchResult(ErrorCode.UNKNOWN_SERVER_ERROR, message=why)
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    unstable = set()
    for topic in found.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition)
            code = code_of_number(each.error_code)
            if code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                unstable.add(partition)
            elif code is ErrorCode.NONE and each.offset >= 0:
                epoch = None if each.leader_epoch < 0 else each.leader_epoch
                offsets[partition] = OffsetAndMetadata(each.offset, each.metadata or "", epoch)
    code = code_of_number(found.error_code)
    return OffsetFetchResult(code, offsets, frozenset(unstable), why_of_number(found.error_code))


OFFSET_FETCH: Final = Translation(
    key=ApiKey.OFFSET_FETCH,
    build=_build_offset_fetch,
    parse=_parse_offset_fetch,
    refuse=lambda request, code, message: OffsetFetchResult(code, message=message),
    first=_MANY_GROUPS,
    last=_BY_NAME,
)

OFFSET_DELETE: Final = Translation[OffsetDeleteRequest, OffsetDeleteResult](
    key=ApiKey.OFFSET_DELETE,
    build=lambda request, version: offset_delete.OffsetDeleteRequest(
        request.group,
        tuple(
            offset_delete.Topic(name, tuple(offset_delete.Partition(each.partition) for each in items))
            for name, items in by_topic(request.partitions, lambda each: each).items()
        ),
    ),
    parse=lambda request, response: OffsetDeleteResult(
        code_of_number(response.error_code),
        {}
        if response.error_code
        else {
            each: code_of_number(number)
            for each, number in codes_of(request.partitions, response.topics).items()
        },
        why_of_number(response.error_code),
    ),
    refuse=lambda request, code, message: OffsetDeleteResult(code, message=message),
    may_repeat=False,
)
