"""OffsetForLeaderEpoch."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.requests import EpochEnd, EpochPartition
from logstore.broker.requests import OffsetsForLeaderEpochRequest as Asked
from logstore.broker.requests import OffsetsForLeaderEpochResult as Found
from logstore.logdir.acls import Operation
from logstore.model import TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.messages.records.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    PartitionResult,
    TopicResult,
)


def answer(
    call: Call, request: OffsetForLeaderEpochRequest, version: int
) -> Pending[OffsetForLeaderEpochResponse]:
    """Look up where leader epochs ended."""
    is_follower = call.allows_cluster(Operation.CLUSTER_ACTION, is_noted=False)
    allowed = {
        topic.name
        for topic in request.topics
        if is_follower or call.allows_topic(Operation.DESCRIBE, topic.name)
    }
    asked = tuple(
        EpochPartition(
            TopicPartition(topic.name, each.partition), each.leader_epoch, each.current_leader_epoch
        )
        for topic in request.topics
        if topic.name in allowed
        for each in topic.partitions
    )
    return then(
        call.broker.offsets_for_leader_epoch(Asked(asked)),
        lambda found: _response(request, allowed, found),
    )


def _response(
    request: OffsetForLeaderEpochRequest, allowed: set[str], result: Found
) -> OffsetForLeaderEpochResponse:
    found = iter(result.partitions)
    topics = []
    for topic in request.topics:
        if topic.name in allowed:
            parts = tuple([_part(next(found)) for _ in topic.partitions])
        else:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            parts = tuple([PartitionResult(code, each.partition) for each in topic.partitions])
        topics.append(TopicResult(topic.name, parts))
    return OffsetForLeaderEpochResponse(topics=tuple(topics))


def _part(found: EpochEnd) -> PartitionResult:
    return PartitionResult(found.error, found.partition.partition, found.epoch, found.end_offset)


def refuse(
    request: OffsetForLeaderEpochRequest, code: ErrorCode, version: int
) -> OffsetForLeaderEpochResponse:
    """The same error for every partition."""
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            TopicResult(topic.name, tuple(PartitionResult(code, each.partition) for each in topic.partitions))
            for topic in request.topics
        )
    )
