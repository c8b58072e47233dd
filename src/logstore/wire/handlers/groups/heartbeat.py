"""Heartbeat."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import Heartbeat as Beat
from logstore.broker.pending import Answered, Pending
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.coordinated import as_told
from logstore.wire.handlers.then import then
from logstore.wire.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse


def answer(call: Call, request: HeartbeatRequest, version: int) -> Pending[HeartbeatResponse]:
    """A member is alive."""
    if not call.allows_group(Operation.READ, request.group_id):
        return Answered(refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, version))
    beat = Beat(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
    return then(call.broker.heartbeat(beat), lambda code: HeartbeatResponse(error_code=as_told(call, code)))


def refuse(request: HeartbeatRequest, code: ErrorCode, version: int) -> HeartbeatResponse:
    """The error."""
    return HeartbeatResponse(error_code=code)
