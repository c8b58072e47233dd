"""SyncGroup."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import SyncGroup as Syncs
from logstore.broker.groups.requests import SyncGroupResult as Synced
from logstore.broker.pending import Answered, Pending
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.coordinated import as_told
from logstore.wire.handlers.then import then
from logstore.wire.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse

_WITH_PROTOCOL: Final = 5
"""From this version on members say which protocol they follow (KIP-559)."""


def answer(call: Call, request: SyncGroupRequest, version: int) -> Pending[SyncGroupResponse]:
    """Hand out the assignment of a generation. The answer waits until its leader has brought it."""
    if not call.allows_group(Operation.READ, request.group_id):
        return Answered(refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, version))
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if version >= _WITH_PROTOCOL and not names_protocol:
        return Answered(refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, version))
    syncs = Syncs(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        {each.member_id: each.assignment for each in request.assignments},
    )
    return then(
        call.broker.sync_group(syncs),
        lambda synced: _response(synced._replace(error=as_told(call, synced.error))),
    )


def _response(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


def refuse(request: SyncGroupRequest, code: ErrorCode, version: int) -> SyncGroupResponse:
    """The error."""
    return SyncGroupResponse(error_code=code)
