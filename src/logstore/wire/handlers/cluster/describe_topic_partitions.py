"""DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Iterable

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import MetadataRequest, MetadataResult, PartitionMetadata, TopicMetadata
from logstore.format.messages.fields import NO_UUID
from logstore.logdir.acls import Operation, ResourceType
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.cluster.metadata import TOPIC_OPERATIONS, error_of
from logstore.wire.handlers.then import then
from logstore.wire.messages.cluster.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    Partition,
    Topic,
)


def answer(
    call: Call, request: DescribeTopicPartitionsRequest, version: int
) -> Pending[DescribeTopicPartitionsResponse]:
    """A page of topics and partitions, in the order of the names; of all topics, if none is named."""
    cursor = request.cursor or Cursor()
    names = sorted({each.name for each in request.topics if each.name >= cursor.topic})
    is_lost = bool(request.topics) and request.cursor is not None and cursor.topic not in names
    if is_lost or cursor.partition < 0:
        return Answered(refuse(request, ErrorCode.INVALID_REQUEST, version))
    denied = [each for each in names if not call.allows_topic(Operation.DESCRIBE, each)]
    wanted = tuple(each for each in names if each not in denied) if request.topics else None
    return then(
        call.broker.metadata(MetadataRequest(wanted)), lambda found: _response(call, request, found, denied)
    )


def _response(
    call: Call, request: DescribeTopicPartitionsRequest, found: MetadataResult, denied: list[str]
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor or Cursor()
    most = call.node.config.max_request_partition_size_limit
    room = max(1, min(most, request.response_partition_limit))
    topics: list[Topic] = []
    next_cursor = None
    for each in _shown(call, request, found):
        start = cursor.partition if each.name == cursor.topic else 0
        if room == 0:
            next_cursor = Cursor(each.name, 0)
            break
        parts = each.partitions[start : start + room]
        topics.append(_topic(call, each, parts))
        room -= len(parts)
        if start + len(parts) < len(each.partitions):
            next_cursor = Cursor(each.name, start + len(parts))
            break
    refused = [_refused(each, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for each in denied]
    return DescribeTopicPartitionsResponse(topics=(*topics, *refused), next_cursor=next_cursor)


def _shown(
    call: Call, request: DescribeTopicPartitionsRequest, found: MetadataResult
) -> Iterable[TopicMetadata]:
    """Of all topics, those that the client may see and that are there."""
    topics = sorted(found.topics, key=lambda each: each.name)
    if request.topics:
        return topics
    first = request.cursor.topic if request.cursor is not None else ""
    return (
        each
        for each in topics
        if each.name >= first
        and each.error is ErrorCode.NONE
        and call.allows_topic(Operation.DESCRIBE, each.name)
    )


def _topic(call: Call, found: TopicMetadata, partitions: tuple[PartitionMetadata, ...]) -> Topic:
    return Topic(
        error_of(found),
        found.name,
        found.topic_id or NO_UUID,
        found.is_internal,
        tuple([_partition(each) for each in partitions]),
        call.authorized_operations(ResourceType.TOPIC, found.name, TOPIC_OPERATIONS),
    )


def _partition(found: PartitionMetadata) -> Partition:
    return Partition(
        found.error,
        found.partition,
        found.leader_id,
        found.leader_epoch,
        found.replica_ids,
        found.isr_ids,
        eligible_replicas=found.eligible_ids,
        last_known_eligible_replicas=(),
    )


def _refused(name: str, code: ErrorCode) -> Topic:
    return Topic(code, name)


def refuse(
    request: DescribeTopicPartitionsRequest, code: ErrorCode, version: int
) -> DescribeTopicPartitionsResponse:
    """The error, of each topic that is named."""
    return DescribeTopicPartitionsResponse(topics=tuple(_refused(each.name, code) for each in request.topics))
