"""DeleteGroups."""

from __future__ import annotations

from collections.abc import Mapping

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then, then_ask
from logstore.wire.messages.groups.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    GroupResult,
)


def answer(call: Call, request: DeleteGroupsRequest, version: int) -> Pending[DeleteGroupsResponse]:
    """Delete groups without members. A name that no group of consumers has may be a share group's."""
    names = tuple(dict.fromkeys(each for each in request.groups if call.allows_group(Operation.DELETE, each)))

    def and_share_groups(codes: dict[str, ErrorCode]) -> Pending[DeleteGroupsResponse]:
        others = tuple([each for each, code in codes.items() if code is ErrorCode.GROUP_ID_NOT_FOUND])
        if not others:
            return Answered(_response(request, codes))
        return then(
            call.broker.delete_share_groups(others), lambda found: _response(request, {**codes, **found})
        )

    return then_ask(call.broker.delete_groups(names), and_share_groups)


def _response(request: DeleteGroupsRequest, codes: Mapping[str, ErrorCode]) -> DeleteGroupsResponse:
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return DeleteGroupsResponse(
        groups=tuple([GroupResult(each, codes.get(each, denied)) for each in request.groups])
    )


def refuse(request: DeleteGroupsRequest, code: ErrorCode, version: int) -> DeleteGroupsResponse:
    """The same error for every group."""
    return _response(request, dict.fromkeys(request.groups, code))
