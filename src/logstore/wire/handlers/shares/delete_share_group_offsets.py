"""DeleteShareGroupOffsets."""

from __future__ import annotations

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.share.requests import DeleteShareOffsets, DeleteShareOffsetsResult
from logstore.format.messages.fields import NO_UUID
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.resolving import resolve
from logstore.wire.handlers.shares import words
from logstore.wire.handlers.then import then
from logstore.wire.messages.shares.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    TopicResult,
)


def answer(
    call: Call, request: DeleteShareGroupOffsetsRequest, version: int
) -> Pending[DeleteShareGroupOffsetsResponse]:
    """Forget what a share group has done of the topics that the client may read."""
    if not call.allows_group(Operation.DELETE, request.group_id):
        return Answered(refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, version))
    codes = {topic.name: resolve(call, Operation.READ, topic.name)[1] for topic in request.topics}

    def convert(result: DeleteShareOffsetsResult) -> DeleteShareGroupOffsetsResponse:
        if result.error is not NONE:
            message = words.of_group(request.group_id, result.error, result.message)
            return DeleteShareGroupOffsetsResponse(error_code=result.error, error_message=message)
        told = {**codes, **result.errors}
        return DeleteShareGroupOffsetsResponse(
            topics=tuple(
                TopicResult(
                    topic.name,
                    call.node.topics.id_of(topic.name) or NO_UUID,
                    told[topic.name],
                    words.of_topic(topic.name, told[topic.name]),
                )
                for topic in request.topics
            )
        )

    asked = DeleteShareOffsets(request.group_id, tuple(name for name, code in codes.items() if code is NONE))
    return then(call.broker.delete_share_group_offsets(asked), convert)


def refuse(
    request: DeleteShareGroupOffsetsRequest, code: ErrorCode, version: int
) -> DeleteShareGroupOffsetsResponse:
    """The error, of the whole request."""
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=code.name)
