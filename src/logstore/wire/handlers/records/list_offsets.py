"""ListOffsets."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.requests import EARLIEST, LATEST, ListedOffset, ListOffsetsPartition
from logstore.broker.requests import ListOffsetsRequest as ToList
from logstore.broker.requests import ListOffsetsResult as Listed
from logstore.logdir.acls import Operation
from logstore.model import Isolation, TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.messages.records.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    PartitionResult,
    TopicResult,
)

_EARLIEST_LOCAL: Final = -4
"""Where what is on this machine begins (KIP-405): everything is."""
_LATEST_TIERED: Final = -5
"""Up to where records are in tiered storage: nowhere."""
_EARLIEST_PENDING: Final = -6
"""From where on records wait to go there (KIP-1023): none do."""
_NOWHERE: Final = {_LATEST_TIERED, _EARLIEST_PENDING}
_OTHERWISE: Final = {_EARLIEST_LOCAL: EARLIEST, **dict.fromkeys(_NOWHERE, LATEST)}
"""What is looked up in place of them: a partition that is not there is told of the same."""
_READ_COMMITTED: Final = 1


def answer(call: Call, request: ListOffsetsRequest, version: int) -> Pending[ListOffsetsResponse]:
    """Look up the start, the end, or a time."""
    allowed = {topic.name for topic in request.topics if call.allows_topic(Operation.DESCRIBE, topic.name)}
    asked = ToList(
        tuple(
            ListOffsetsPartition(
                TopicPartition(topic.name, each.partition),
                _OTHERWISE.get(each.timestamp_ms, each.timestamp_ms),
                each.current_leader_epoch,
            )
            for topic in request.topics
            if topic.name in allowed
            for each in topic.partitions
        ),
        Isolation.COMMITTED if request.isolation_level == _READ_COMMITTED else Isolation.HIGH_WATERMARK,
    )
    return then(call.broker.list_offsets(asked), lambda result: _response(request, allowed, result))


def _response(request: ListOffsetsRequest, allowed: set[str], result: Listed) -> ListOffsetsResponse:
    found = iter(result.partitions)
    topics = []
    for topic in request.topics:
        parts = []
        for each in topic.partitions:
            if topic.name not in allowed:
                parts.append(PartitionResult(each.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            else:
                listed = next(found)
                is_nowhere = each.timestamp_ms in _NOWHERE
                parts.append(PartitionResult(each.partition, listed.error) if is_nowhere else _part(listed))
        topics.append(TopicResult(topic.name, tuple(parts)))
    return ListOffsetsResponse(topics=tuple(topics))


def _part(listed: ListedOffset) -> PartitionResult:
    return PartitionResult(
        listed.partition.partition, listed.error, listed.timestamp_ms, listed.offset, listed.leader_epoch
    )


def refuse(request: ListOffsetsRequest, code: ErrorCode, version: int) -> ListOffsetsResponse:
    """The same error for every partition."""
    return ListOffsetsResponse(
        topics=tuple(
            TopicResult(topic.name, tuple(PartitionResult(each.partition, code) for each in topic.partitions))
            for topic in request.topics
        )
    )
