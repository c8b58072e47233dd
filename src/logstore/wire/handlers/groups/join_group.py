"""JoinGroup."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import GroupProtocol
from logstore.broker.groups.requests import JoinGroup as Joins
from logstore.broker.groups.requests import JoinGroupResult as Joined
from logstore.broker.pending import Answered, Pending
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.coordinated import as_told
from logstore.wire.handlers.then import then
from logstore.wire.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse, Member

_WITH_REBALANCE_TIMEOUT: Final = 1
"""Before this version the session timeout is both."""
_WITH_MEMBER_ID: Final = 4
"""From this version on a new member is first given its id, and joins with it (KIP-394)."""
_NULL_PROTOCOL: Final = 7
"""From this version on the protocol may be null."""
_CAN_SKIP_ASSIGNMENT: Final = 9
"""From this version on a leader may be told to assign nothing (KIP-814)."""


def answer(call: Call, request: JoinGroupRequest, version: int) -> Pending[JoinGroupResponse]:
    """Join a group. The answer waits for its next generation."""
    if not call.allows_group(Operation.READ, request.group_id):
        return Answered(refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, version))
    has_own = version >= _WITH_REBALANCE_TIMEOUT
    joins = Joins(
        request.group_id,
        request.protocol_type,
        tuple([GroupProtocol(each.name, each.metadata) for each in request.protocols]),
        request.session_timeout_ms,
        request.rebalance_timeout_ms if has_own else request.session_timeout_ms,
        request.member_id,
        request.group_instance_id,
        call.client_id,
        f"/{call.host}",  # as Kafka shows it
        requires_member_id=version >= _WITH_MEMBER_ID,
        can_skip_assignment=version >= _CAN_SKIP_ASSIGNMENT,
    )
    return then(
        call.broker.join_group(joins),
        lambda joined: _response(joined._replace(error=as_told(call, joined.error)), version),
    )


def _response(joined: Joined, version: int) -> JoinGroupResponse:
    protocol = joined.protocol
    if protocol is None and version < _NULL_PROTOCOL:
        protocol = ""
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=protocol,
        leader=joined.leader_id,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple([Member(*each) for each in joined.members]),
    )


def refuse(request: JoinGroupRequest, code: ErrorCode, version: int) -> JoinGroupResponse:
    """The error."""
    return _response(Joined(code, request.member_id), version)
