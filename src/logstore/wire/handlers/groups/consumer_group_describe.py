"""ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.requests import (
    AssignedPartition,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from logstore.broker.pending import Pending
from logstore.logdir.acls import Operation, ResourceType
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.group_kinds import GROUP_OPERATIONS
from logstore.wire.handlers.then import then
from logstore.wire.messages.groups.consumer_group_describe import (
    OF_CLASSIC_PROTOCOL,
    OF_NEWER_PROTOCOL,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Group,
    Member,
)
from logstore.wire.messages.parts import NOT_ASKED, Assignment, TopicPartitions


def answer(
    call: Call, request: ConsumerGroupDescribeRequest, version: int
) -> Pending[ConsumerGroupDescribeResponse]:
    """Groups of the newer protocol and their members."""
    allowed = tuple(
        dict.fromkeys(each for each in request.group_ids if call.allows_group(Operation.DESCRIBE, each))
    )

    def convert(found: tuple[DescribedConsumerGroup, ...]) -> ConsumerGroupDescribeResponse:
        groups = {each.group_id: _group(call, request, each) for each in found}
        return ConsumerGroupDescribeResponse(
            groups=tuple(
                groups.get(each) or _refused(each, ErrorCode.GROUP_AUTHORIZATION_FAILED)
                for each in request.group_ids
            )
        )

    return then(call.broker.describe_consumer_groups(allowed), convert)


def _group(call: Call, request: ConsumerGroupDescribeRequest, found: DescribedConsumerGroup) -> Group:
    operations = NOT_ASKED
    if request.include_authorized_operations and found.error is ErrorCode.NONE:
        operations = call.authorized_operations(ResourceType.GROUP, found.group_id, GROUP_OPERATIONS)
    return Group(
        found.error,
        found.message,
        found.group_id,
        found.state,
        found.group_epoch,
        found.assignment_epoch,
        found.assignor,
        tuple([_member(call, each) for each in found.members]),
        operations,
    )


def _member(call: Call, member: DescribedConsumer) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        member.topics,
        member.pattern or "",
        _assignment(call, member.assignment),
        _assignment(call, member.target),
        OF_CLASSIC_PROTOCOL if member.is_classic else OF_NEWER_PROTOCOL,
    )


def _assignment(call: Call, partitions: Sequence[AssignedPartition]) -> Assignment:
    """Without topics that the client may not see."""
    return Assignment(
        tuple(
            TopicPartitions(topic_id, name, tuple(each.partition for each in parts))
            for (topic_id, name), parts in groupby(partitions, key=lambda each: (each.topic_id, each.topic))
            if call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, is_noted=False)
        )
    )


def _refused(group_id: str, code: ErrorCode) -> Group:
    return Group(code, code.name, group_id)


def refuse(
    request: ConsumerGroupDescribeRequest, code: ErrorCode, version: int
) -> ConsumerGroupDescribeResponse:
    """The same error for every group."""
    return ConsumerGroupDescribeResponse(groups=tuple([_refused(each, code) for each in request.group_ids]))
