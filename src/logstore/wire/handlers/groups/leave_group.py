"""LeaveGroup."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import LeaveGroup as Leaves
from logstore.broker.groups.requests import LeaveGroupResult as Left
from logstore.broker.groups.requests import LeavingMember
from logstore.broker.pending import Answered, Pending
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.messages.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResult

_MANY: Final = 3
"""From this version on several members may leave at once (KIP-345)."""


def answer(call: Call, request: LeaveGroupRequest, version: int) -> Pending[LeaveGroupResponse]:
    """Members leave."""
    if not call.allows_group(Operation.READ, request.group_id):
        return Answered(refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, version))
    leaving = (
        [LeavingMember(each.member_id, each.group_instance_id) for each in request.members]
        if version >= _MANY
        else [LeavingMember(request.member_id)]
    )
    leaves = Leaves(request.group_id, tuple(leaving))
    return then(call.broker.leave_group(leaves), lambda left: _response(left, version))


def _response(left: Left, version: int) -> LeaveGroupResponse:
    if version < _MANY:  # the one member's error is the request's
        codes = (left.error, *(each.error for each in left.members))
        return LeaveGroupResponse(
            error_code=next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
        )
    members = tuple([MemberResult(each.member_id, each.instance_id, each.error) for each in left.members])
    return LeaveGroupResponse(error_code=left.error, members=members)


def refuse(request: LeaveGroupRequest, code: ErrorCode, version: int) -> LeaveGroupResponse:
    """The error, of the whole request."""
    return LeaveGroupResponse(error_code=code)
