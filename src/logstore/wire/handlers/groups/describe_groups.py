"""DescribeGroups."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import DescribedGroup
from logstore.broker.groups.states import State
from logstore.broker.pending import Pending
from logstore.logdir.acls import Operation, ResourceType
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.group_kinds import GROUP_OPERATIONS
from logstore.wire.handlers.then import then
from logstore.wire.messages.groups.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    Group,
    Member,
)

_NOT_FOUND: Final = 6
"""From this version on a group that there is not is an error (KIP-1043); before, it is dead."""


def answer(call: Call, request: DescribeGroupsRequest, version: int) -> Pending[DescribeGroupsResponse]:
    """The groups and their members."""
    allowed = tuple(
        dict.fromkeys(each for each in request.groups if call.allows_group(Operation.DESCRIBE, each))
    )

    def convert(found: tuple[DescribedGroup, ...]) -> DescribeGroupsResponse:
        groups = {each.group_id: _group(call, request, each, version) for each in found}
        return DescribeGroupsResponse(
            groups=tuple(
                groups.get(each) or _refused(each, ErrorCode.GROUP_AUTHORIZATION_FAILED)
                for each in request.groups
            )
        )

    return then(call.broker.describe_groups(allowed), convert)


def _group(call: Call, request: DescribeGroupsRequest, found: DescribedGroup, version: int) -> Group:
    code, message = found.error, found.message
    if code is ErrorCode.NONE and found.state == State.DEAD.value and version >= _NOT_FOUND:
        code, message = ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {found.group_id!r}"
    group = Group(
        code,
        message,
        found.group_id,
        found.state,
        found.protocol_type,
        found.protocol,
        tuple([Member(*each) for each in found.members]),
    )
    if request.include_authorized_operations and code is ErrorCode.NONE:
        operations = call.authorized_operations(ResourceType.GROUP, found.group_id, GROUP_OPERATIONS)
        group = group._replace(authorized_operations=operations)
    return group


def _refused(group_id: str, code: ErrorCode) -> Group:
    return Group(code, code.name, group_id)


def refuse(request: DescribeGroupsRequest, code: ErrorCode, version: int) -> DescribeGroupsResponse:
    """The same error for every group."""
    return DescribeGroupsResponse(groups=tuple([_refused(each, code) for each in request.groups]))
