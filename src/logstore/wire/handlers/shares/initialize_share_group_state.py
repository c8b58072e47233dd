"""InitializeShareGroupState."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.share.kept import Beginning
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.shares.kept import answer_codes, parts_of, refused
from logstore.wire.messages.shares.initialize_share_group_state import (
    BEGINS_ANEW,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)


def answer(
    call: Call, request: InitializeShareGroupStateRequest, version: int
) -> Pending[InitializeShareGroupStateResponse]:
    """A group is to work on partitions."""
    parts = parts_of(request.group_id, request.topics)
    wanted = [Beginning(key, each.start_offset, each.state_epoch >= BEGINS_ANEW) for key, each in parts]
    return answer_codes(
        call, dict(parts), lambda states: states.begin(wanted), InitializeShareGroupStateResponse
    )


def refuse(
    request: InitializeShareGroupStateRequest, code: ErrorCode, version: int
) -> InitializeShareGroupStateResponse:
    """The error."""
    return InitializeShareGroupStateResponse(refused(request.group_id, request.topics, code))
