"""FindCoordinator."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call, CoordinatorKind
from logstore.wire.messages.groups.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_MANY: Final = 4
"""From this version on several keys are asked for at once."""


def answer(call: Call, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    """Who coordinates a group, or the transactions of an id. A node that is alone does all of it."""
    keys = request.keys if version >= _MANY else (request.key,)
    return _response([_coordinator(call, request.key_type, key) for key in keys], version)


def _coordinator(call: Call, kind: int, key: str) -> Coordinator:
    code = _refusal(call, kind, key)
    if code is not ErrorCode.NONE:
        return _none(key, code)
    found = call.node.coordinator_of(CoordinatorKind(kind), key)
    if found is None:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key, found.node_id, found.host, found.port)


def _refusal(call: Call, kind: int, key: str) -> ErrorCode:
    if kind == CoordinatorKind.GROUP:
        is_allowed, code = call.allows_group(Operation.DESCRIBE, key), ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif kind == CoordinatorKind.TRANSACTION:
        is_allowed = call.allows_transactions(Operation.DESCRIBE, key)
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif kind == CoordinatorKind.SHARE:
        is_allowed = call.allows_cluster(Operation.CLUSTER_ACTION)
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    else:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if is_allowed else code


def _none(key: str, code: ErrorCode) -> Coordinator:
    return Coordinator(key, -1, "", -1, code, code.name)


def _response(found: list[Coordinator], version: int) -> FindCoordinatorResponse:
    if version >= _MANY:
        return FindCoordinatorResponse(coordinators=tuple(found))
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def refuse(request: FindCoordinatorRequest, code: ErrorCode, version: int) -> FindCoordinatorResponse:
    """The same error for every key."""
    keys = request.keys if version >= _MANY else (request.key,)
    return _response([_none(key, code) for key in keys], version)
