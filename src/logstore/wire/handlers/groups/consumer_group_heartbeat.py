"""ConsumerGroupHeartbeat."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeat as Beat
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeatResult as Wanted
from logstore.broker.consumer_groups.requests import TopicIdPartition
from logstore.broker.pending import Answered, Pending
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.coordinated import as_told, words_as_told
from logstore.wire.handlers.then import then
from logstore.wire.messages.groups.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_NAMED: Final = 1
"""From this version on members choose their ids themselves (KIP-1082)."""


def answer(
    call: Call, request: ConsumerGroupHeartbeatRequest, version: int
) -> Pending[ConsumerGroupHeartbeatResponse]:
    """A member of the newer protocol joins, is alive, or leaves."""
    if not call.allows_group(Operation.READ, request.group_id):
        return Answered(refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, version))
    for name in request.subscribed_topic_names or ():
        if not call.allows_topic(Operation.DESCRIBE, name):
            return Answered(refuse(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED, version))
    if version >= _NAMED and not request.member_id:
        return Answered(refuse(request, ErrorCode.INVALID_REQUEST, version))
    owned = None
    if request.topic_partitions is not None:
        owned = frozenset(
            TopicIdPartition(topic.topic_id, number)
            for topic in request.topic_partitions
            for number in topic.partitions
        )
    beat = Beat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.server_assignor,
        owned,
        call.client_id,
        f"/{call.host}",
    )
    return then(call.broker.consumer_group_heartbeat(beat), lambda found: _response(call, found))


def _response(call: Call, found: Wanted) -> ConsumerGroupHeartbeatResponse:
    code = as_told(call, found.error, found.message)
    assignment = None
    if found.assignment is not None:
        assignment = Assignment(
            tuple(
                TopicPartitions(topic_id, tuple(each.partition for each in parts))
                for topic_id, parts in groupby(found.assignment, key=lambda each: each.topic_id)
            )
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        error_message=words_as_told(found.error, code, found.message),
        member_id=found.member_id,
        member_epoch=found.member_epoch,
        heartbeat_interval_ms=found.heartbeat_interval_ms,
        assignment=assignment,
    )


def refuse(
    request: ConsumerGroupHeartbeatRequest, code: ErrorCode, version: int
) -> ConsumerGroupHeartbeatResponse:
    """The error."""
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=code.name)
