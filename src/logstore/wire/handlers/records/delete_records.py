"""DeleteRecords."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.records.looking_up import INTERNAL_TOPICS
from logstore.broker.requests import DeletedRecords, DeleteRecordsPartition
from logstore.broker.requests import DeleteRecordsRequest as Asked
from logstore.broker.requests import DeleteRecordsResult as Done
from logstore.logdir.acls import Operation
from logstore.model import TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.messages.records.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    PartitionResult,
    TopicResult,
)

_FAILED: Final = -1
"""In place of where the partition begins."""


def answer(call: Call, request: DeleteRecordsRequest, version: int) -> Pending[DeleteRecordsResponse]:
    """Delete the beginning of partitions. Of internal topics the broker itself deletes what it no longer
    needs."""
    codes = {topic.name: _refusal(call, topic.name) for topic in request.topics}
    asked = tuple(
        DeleteRecordsPartition(TopicPartition(topic.name, each.partition), each.offset)
        for topic in request.topics
        if codes[topic.name] is ErrorCode.NONE
        for each in topic.partitions
    )
    return then(call.broker.delete_records(Asked(asked)), lambda done: _response(request, codes, done))


def _refusal(call: Call, name: str) -> ErrorCode:
    if not call.allows_topic(Operation.DELETE, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_TOPIC_EXCEPTION if name in INTERNAL_TOPICS else ErrorCode.NONE


def _response(
    request: DeleteRecordsRequest, codes: dict[str, ErrorCode], done: Done
) -> DeleteRecordsResponse:
    found = iter(done.partitions)
    topics = []
    for topic in request.topics:
        code = codes[topic.name]
        if code is ErrorCode.NONE:
            parts = tuple([_part(next(found)) for _ in topic.partitions])
        else:
            parts = tuple([PartitionResult(each.partition, _FAILED, code) for each in topic.partitions])
        topics.append(TopicResult(topic.name, parts))
    return DeleteRecordsResponse(topics=tuple(topics))


def _part(deleted: DeletedRecords) -> PartitionResult:
    return PartitionResult(deleted.partition.partition, deleted.log_start_offset, deleted.error)


def refuse(request: DeleteRecordsRequest, code: ErrorCode, version: int) -> DeleteRecordsResponse:
    """The same error for every partition."""
    return DeleteRecordsResponse(
        topics=tuple(
            TopicResult(
                topic.name,
                tuple(PartitionResult(each.partition, _FAILED, code) for each in topic.partitions),
            )
            for topic in request.topics
        )
    )
