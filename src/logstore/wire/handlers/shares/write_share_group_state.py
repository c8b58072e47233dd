"""WriteShareGroupState."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.share.kept import Writing
from logstore.broker.share.stored import ShareChange
from logstore.format.messages.share_records import ShareBatch
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.shares.kept import answer_codes, parts_of, refused
from logstore.wire.messages.shares.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)


def answer(
    call: Call, request: WriteShareGroupStateRequest, version: int
) -> Pending[WriteShareGroupStateResponse]:
    """What a leader says has changed."""
    parts = parts_of(request.group_id, request.topics)
    changes = [
        Writing(
            key,
            each.state_epoch,
            ShareChange(
                each.start_offset,
                tuple([ShareBatch(*batch) for batch in each.state_batches]),
                each.leader_epoch,
                each.delivery_complete_count,
            ),
        )
        for key, each in parts
    ]
    return answer_codes(call, dict(parts), lambda states: states.write(changes), WriteShareGroupStateResponse)


def refuse(
    request: WriteShareGroupStateRequest, code: ErrorCode, version: int
) -> WriteShareGroupStateResponse:
    """The error."""
    return WriteShareGroupStateResponse(refused(request.group_id, request.topics, code))
