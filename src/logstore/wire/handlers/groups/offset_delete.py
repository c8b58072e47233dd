"""OffsetDelete."""

from __future__ import annotations

from collections.abc import Mapping

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import OffsetDeleteRequest as ToDelete
from logstore.broker.requests import OffsetDeleteResult as Deleted
from logstore.logdir.acls import Operation
from logstore.model import TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.resolving import resolve
from logstore.wire.handlers.then import then
from logstore.wire.messages.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    PartitionResult,
    Topic,
    TopicResult,
)


def answer(call: Call, request: OffsetDeleteRequest, version: int) -> Pending[OffsetDeleteResponse]:
    """Delete the offsets of the topics that the client may read."""
    if not call.allows_group(Operation.DELETE, request.group_id):
        return Answered(refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, version))
    if not request.group_id:
        return Answered(refuse(request, ErrorCode.INVALID_GROUP_ID, version))
    named = [(topic, resolve(call, Operation.READ, topic.name)[1]) for topic in request.topics]
    partitions = tuple(
        dict.fromkeys(
            TopicPartition(topic.name, each.partition)
            for topic, code in named
            if code is ErrorCode.NONE
            for each in topic.partitions
        )
    )
    if not partitions:
        return Answered(_response(named, {}))

    def convert(result: Deleted) -> OffsetDeleteResponse:
        if result.error is not ErrorCode.NONE:
            return refuse(request, result.error, version)
        return _response(named, result.errors)

    return then(call.broker.offset_delete(ToDelete(request.group_id, partitions)), convert)


def _response(
    named: list[tuple[Topic, ErrorCode]], errors: Mapping[TopicPartition, ErrorCode]
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=tuple(
            TopicResult(
                topic.name,
                tuple(
                    PartitionResult(
                        each.partition,
                        errors[TopicPartition(topic.name, each.partition)]
                        if code is ErrorCode.NONE
                        else code,
                    )
                    for each in topic.partitions
                ),
            )
            for topic, code in named
        )
    )


def refuse(request: OffsetDeleteRequest, code: ErrorCode, version: int) -> OffsetDeleteResponse:
    """The error, of the whole request."""
    return OffsetDeleteResponse(code)
