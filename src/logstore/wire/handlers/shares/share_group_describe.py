"""ShareGroupDescribe."""

from __future__ import annotations

from itertools import groupby

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.share.requests import DescribedShareGroup, ShareGroupMember
from logstore.logdir.acls import Operation, ResourceType
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.group_kinds import GROUP_OPERATIONS
from logstore.wire.handlers.then import then
from logstore.wire.messages.parts import NOT_ASKED, Assignment, TopicPartitions
from logstore.wire.messages.shares.share_group_describe import (
    Group,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


def answer(
    call: Call, request: ShareGroupDescribeRequest, version: int
) -> Pending[ShareGroupDescribeResponse]:
    """Share groups and their members."""
    allowed = tuple(
        dict.fromkeys(each for each in request.group_ids if call.allows_group(Operation.DESCRIBE, each))
    )

    def convert(found: tuple[DescribedShareGroup, ...]) -> ShareGroupDescribeResponse:
        groups = {each.group: _group(call, request, each) for each in found}
        return ShareGroupDescribeResponse(
            groups=tuple(
                groups.get(each) or _refused(each, ErrorCode.GROUP_AUTHORIZATION_FAILED)
                for each in request.group_ids
            )
        )

    return then(call.broker.describe_share_groups(allowed), convert)


def _group(call: Call, request: ShareGroupDescribeRequest, found: DescribedShareGroup) -> Group:
    code, message = found.error, found.message
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        message = f"there is no share group {found.group!r}"
    if code is not ErrorCode.NONE:
        return Group(code, message or code.name, found.group, "Dead")
    operations = NOT_ASKED
    if request.include_authorized_operations:
        operations = call.authorized_operations(ResourceType.GROUP, found.group, GROUP_OPERATIONS)
    members = tuple([_member(call, each) for each in found.members])
    return Group(
        code, message, found.group, found.state, found.epoch, found.epoch, found.assignor, members, operations
    )


def _member(call: Call, member: ShareGroupMember) -> Member:
    return Member(
        member.member_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        tuple(each for each in member.topics if _may_see(call, each)),
        Assignment(
            tuple(
                TopicPartitions(topic_id, name, tuple(each.partition.partition for each in parts))
                for (topic_id, name), parts in groupby(
                    member.assignment, key=lambda each: (each.topic_id, each.partition.topic)
                )
                if _may_see(call, name)
            )
        ),
    )


def _may_see(call: Call, topic: str) -> bool:
    return call.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic, is_noted=False)


def _refused(group_id: str, code: ErrorCode) -> Group:
    return Group(code, code.name, group_id)


def refuse(request: ShareGroupDescribeRequest, code: ErrorCode, version: int) -> ShareGroupDescribeResponse:
    """The same error for every group."""
    return ShareGroupDescribeResponse(groups=tuple([_refused(each, code) for each in request.group_ids]))
