"""ShareAcknowledge."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.share.requests import AcknowledgedPartition
from logstore.broker.share.requests import ShareAcknowledgeRequest as ToTakeIn
from logstore.broker.share.requests import ShareAcknowledgeResult as TakenIn
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.share_sessions import Member, Place
from logstore.wire.handlers.shares.said import Said, check
from logstore.wire.handlers.then import then
from logstore.wire.messages.shares.share_acknowledge import (
    PartitionResult,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    TopicResult,
)

_WITH_RENEWALS: Final = 2
OF_PARTITIONS: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Clients act on these where they are told of a partition."""


def answer(call: Call, request: ShareAcknowledgeRequest, version: int) -> Pending[ShareAcknowledgeResponse]:
    """What became of records; at the end of a session the rest is let go."""
    code = check(call, request.group_id, request.member_id)
    member = Member(request.group_id or "", request.member_id or "")
    if code is ErrorCode.NONE:
        opened = call.node.share_sessions.acknowledge(member, request.share_session_epoch)
        code = opened.error
    if code is not ErrorCode.NONE:
        return Answered(refuse(request, code, version))
    said = Said.of(call, request.topics, may_renew=request.is_renew_ack)
    asked = ToTakeIn(*member, said.partitions, releases_rest=opened.is_last)

    def convert(result: TakenIn) -> ShareAcknowledgeResponse:
        if result.error is not ErrorCode.NONE:
            return refuse(request, result.error, version)
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=result.lock_duration_ms if version >= _WITH_RENEWALS else 0,
            topics=_topics(outcomes(said, result.partitions)),
        )

    return then(call.broker.share_acknowledge(asked), convert)


def outcomes(
    said: Said, told: tuple[AcknowledgedPartition, ...]
) -> dict[Place, tuple[ErrorCode, str | None]]:
    """What became of each partition's acknowledgements."""
    found: dict[Place, tuple[ErrorCode, str | None]] = {
        (each.partition.topic_id, each.partition.partition.partition): (each.error, each.message)
        for each in told
    }
    return found | {place: (code, None) for place, code in said.refused.items()}


def _topics(found: dict[Place, tuple[ErrorCode, str | None]]) -> tuple[TopicResult, ...]:
    return tuple(
        TopicResult(
            topic_id, tuple(PartitionResult(place[1], code, message) for place, (code, message) in parts)
        )
        for topic_id, parts in groupby(sorted(found.items()), key=lambda each: each[0][0])
    )


def refuse(request: ShareAcknowledgeRequest, code: ErrorCode, version: int) -> ShareAcknowledgeResponse:
    """The error."""
    return ShareAcknowledgeResponse(error_code=code, error_message=code.name)


def refuse_all(
    call: Call, request: ShareAcknowledgeRequest, code: ErrorCode, version: int
) -> ShareAcknowledgeResponse:
    """The error: an error of partitions of each that the request names."""
    if code not in OF_PARTITIONS:
        return refuse(request, code, version)
    places = [(topic.topic_id, each.partition) for topic in request.topics for each in topic.partitions]
    return ShareAcknowledgeResponse(topics=_topics(dict.fromkeys(places, (code, code.name))))
