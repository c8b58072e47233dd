"""DeleteShareGroupState."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.shares.kept import answer_codes, keys_of, refused
from logstore.wire.messages.shares.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)


def answer(
    call: Call, request: DeleteShareGroupStateRequest, version: int
) -> Pending[DeleteShareGroupStateResponse]:
    """Forget how far a group is."""
    keys = keys_of(request.group_id, request.topics)
    return answer_codes(call, keys, lambda states: states.delete(keys), DeleteShareGroupStateResponse)


def refuse(
    request: DeleteShareGroupStateRequest, code: ErrorCode, version: int
) -> DeleteShareGroupStateResponse:
    """The error."""
    return DeleteShareGroupStateResponse(refused(request.group_id, request.topics, code))
