"""AlterShareGroupOffsets."""

from __future__ import annotations

from collections.abc import Callable

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.groups.requests import ListGroupsResult
from logstore.broker.pending import Answered, Pending
from logstore.broker.share.requests import AlterShareOffsets, AlterShareOffsetsResult, ListShareGroupsResult
from logstore.format.messages.fields import NO_UUID
from logstore.logdir.acls import Operation
from logstore.model import TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.resolving import resolve
from logstore.wire.handlers.shares import words
from logstore.wire.handlers.then import then, then_ask
from logstore.wire.messages.shares.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    PartitionResult,
    TopicResult,
)


def answer(
    call: Call, request: AlterShareGroupOffsetsRequest, version: int
) -> Pending[AlterShareGroupOffsetsResponse]:
    """Set how far a share group is in the topics that the client may read."""
    if not call.allows_group(Operation.READ, request.group_id):
        return Answered(refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, version))
    if not request.group_id:
        return Answered(refuse(request, ErrorCode.INVALID_GROUP_ID, version))
    codes = {topic.name: resolve(call, Operation.READ, topic.name)[1] for topic in request.topics}
    offsets = {
        TopicPartition(topic.name, each.partition): each.start_offset
        for topic in request.topics
        if codes[topic.name] is NONE
        for each in topic.partitions
    }

    def convert(result: AlterShareOffsetsResult) -> AlterShareGroupOffsetsResponse:
        if result.error is not NONE:
            message = words.of_group(request.group_id, result.error, result.message)
            return AlterShareGroupOffsetsResponse(error_code=result.error, error_message=message)
        return AlterShareGroupOffsetsResponse(
            topics=tuple(
                TopicResult(
                    topic.name,
                    call.node.topics.id_of(topic.name) or NO_UUID,
                    tuple(
                        _told(
                            topic.name,
                            each.partition,
                            result.errors.get(TopicPartition(topic.name, each.partition), codes[topic.name]),
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    asked = AlterShareOffsets(request.group_id, tuple(offsets.items()))

    def alter() -> Pending[AlterShareGroupOffsetsResponse]:
        return then(call.broker.alter_share_group_offsets(asked), convert)

    return then_ask(
        call.broker.list_share_groups(), lambda shares: _unless_consumers(call, asked, shares, alter)
    )


def _unless_consumers(
    call: Call,
    asked: AlterShareOffsets,
    shares: ListShareGroupsResult,
    alter: Callable[[], Pending[AlterShareGroupOffsetsResponse]],
) -> Pending[AlterShareGroupOffsetsResponse]:
    """No share group begins because the name of consumers was given by mistake, as with Kafka. Who deleted it
    again would delete the group of the consumers, with its offsets: a request to delete names no kind."""
    if asked.group in shares.groups:
        return alter()

    def if_free(listed: ListGroupsResult) -> Pending[AlterShareGroupOffsetsResponse]:
        if all(each.group_id != asked.group for each in listed.groups):
            return alter()
        code = ErrorCode.GROUP_ID_NOT_FOUND
        message = (
            f"{asked.group!r} is a group of consumers, and no share group: kafka-consumer-groups.sh sets it "
            "back; or take another name"
        )
        return Answered(AlterShareGroupOffsetsResponse(error_code=code, error_message=message))

    return then_ask(call.broker.list_groups(), if_free)


def _told(topic: str, number: int, code: ErrorCode) -> PartitionResult:
    return PartitionResult(number, code, words.of_topic(topic, code, number))


def refuse(
    request: AlterShareGroupOffsetsRequest, code: ErrorCode, version: int
) -> AlterShareGroupOffsetsResponse:
    """The error, of the whole request."""
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=code.name)
