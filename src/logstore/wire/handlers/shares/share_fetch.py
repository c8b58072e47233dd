"""ShareFetch. A member is never given more records than it asks for, in either acquire mode (KIP-1206)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.share.requests import AcknowledgePartition, ShareFetchedPartition, TopicIdPartition
from logstore.broker.share.requests import ShareAcknowledgeRequest as ToTakeIn
from logstore.broker.share.requests import ShareFetchRequest as ToTake
from logstore.broker.share.requests import ShareFetchResult as Taken
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.share_sessions import FIRST_EPOCH, Member, Place
from logstore.wire.handlers.shares.aborted import without_aborted
from logstore.wire.handlers.shares.said import Said, check, place_of
from logstore.wire.handlers.shares.share_acknowledge import OF_PARTITIONS, outcomes
from logstore.wire.handlers.then import then, then_ask
from logstore.wire.messages.shares.acknowledged import Topic
from logstore.wire.messages.shares.share_fetch import (
    AcquiredRecords,
    PartitionResult,
    ShareFetchRequest,
    ShareFetchResponse,
    TopicResult,
)


def answer(call: Call, request: ShareFetchRequest, version: int) -> Pending[ShareFetchResponse]:
    """Take in what became of records, then give others; wait for some if there are none."""
    code = check(call, request.group_id, request.member_id)
    if code is ErrorCode.NONE and request.is_renew_ack and _takes_some(request):
        code = ErrorCode.INVALID_REQUEST
    member = Member(request.group_id or "", request.member_id or "")
    if code is ErrorCode.NONE:
        opened = call.node.share_sessions.fetch(
            call,
            member,
            request.share_session_epoch,
            added=_places(request.topics),
            forgotten=[
                (topic.topic_id, number) for topic in request.forgotten_topics for number in topic.partitions
            ],
            says_something=any(
                each.acknowledgements for topic in request.topics for each in topic.partitions
            ),
        )
        code = opened.error
    if code is not ErrorCode.NONE:
        return Answered(refuse(request, code, version))
    said = Said.of(call, request.topics, may_renew=request.is_renew_ack)
    if opened.is_last:
        asked = ToTakeIn(*member, said.partitions, releases_rest=True)
        return then(
            call.broker.share_acknowledge(asked),
            lambda result: _response(
                Taken(result.error, lock_duration_ms=result.lock_duration_ms, acknowledged=result.partitions),
                said,
                {},
            ),
        )
    return _fetch(call, request, member, said, _Wanted.of(call, opened.wanted))


def _takes_some(request: ShareFetchRequest) -> bool:
    """A request that renews locks takes no records, and says so (KIP-1222)."""
    return any((request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records))


def _places(topics: Iterable[Topic]) -> list[Place]:
    return [(topic.topic_id, each.partition) for topic in topics for each in topic.partitions]


class _Wanted(NamedTuple):
    """The partitions of a session: those that can be asked for, and the others."""

    partitions: tuple[TopicIdPartition, ...]
    refused: dict[Place, ErrorCode]

    @classmethod
    def of(cls, call: Call, wanted: Iterable[Place]) -> _Wanted:
        found = [(place, *place_of(call, place)) for place in wanted]
        return cls(
            tuple(partition for _, partition, _ in found if partition is not None),
            {place: code for place, _, code in found if code is not ErrorCode.NONE},
        )


def _fetch(
    call: Call, request: ShareFetchRequest, member: Member, said: Said, wanted: _Wanted
) -> Pending[ShareFetchResponse]:
    may_wait = not (said.refused or wanted.refused or request.is_renew_ack)
    most_bytes, min_bytes = call.room.take(
        min(request.max_bytes, call.node.config.fetch_max_bytes), request.min_bytes
    )
    asked = ToTake(
        *member,
        () if request.is_renew_ack else wanted.partitions,
        max(request.max_records, 0),
        max(request.max_wait_ms, 0) if may_wait else 0,
        max_partition_bytes=most_bytes,
        max_bytes=most_bytes,
        min_bytes=min_bytes,
        acknowledgements=said.partitions,
        begins=request.share_session_epoch == FIRST_EPOCH,
    )

    def give(result: Taken) -> Pending[ShareFetchResponse]:
        pairs = [without_aborted(each) for each in result.partitions]
        gaps = tuple(each for _, each in pairs if each is not None)
        given = tuple(each for each, _ in pairs if each.acquired or each.error is not ErrorCode.NONE)
        response = _response(result._replace(partitions=given), said, wanted.refused)
        if not gaps:
            return Answered(response)
        return _say_gaps(call, member, gaps, response)

    return then_ask(call.broker.share_fetch(asked), give)


def _say_gaps(
    call: Call, member: Member, gaps: tuple[AcknowledgePartition, ...], response: ShareFetchResponse
) -> Pending[ShareFetchResponse]:
    return then(call.broker.share_acknowledge(ToTakeIn(*member, gaps)), lambda _: response)


def _response(result: Taken, said: Said, refused: dict[Place, ErrorCode]) -> ShareFetchResponse:
    if result.error is not ErrorCode.NONE:
        return ShareFetchResponse(error_code=result.error, error_message=result.message or result.error.name)
    found = {place: PartitionResult(place[1], code, code.name) for place, code in refused.items()}
    for each in result.partitions:
        found[each.partition.topic_id, each.partition.partition.partition] = _given(each)
    for place, (code, message) in outcomes(said, result.acknowledged).items():
        part = found.get(place) or PartitionResult(place[1])
        found[place] = part._replace(acknowledge_error_code=code, acknowledge_error_message=message)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=result.lock_duration_ms,
        topics=_topics(found),
    )


def _topics(found: dict[Place, PartitionResult]) -> tuple[TopicResult, ...]:
    by_topic = sorted(found.items(), key=lambda each: each[0])
    return tuple(
        TopicResult(topic_id, tuple(part for _, part in parts))
        for topic_id, parts in groupby(by_topic, key=lambda each: each[0][0])
    )


def _given(each: ShareFetchedPartition) -> PartitionResult:
    return PartitionResult(
        each.partition.partition.partition,
        each.error,
        None if each.error is ErrorCode.NONE else each.error.name,
        records=each.data,
        acquired_records=tuple([AcquiredRecords(*one) for one in each.acquired]),
    )


def refuse(request: ShareFetchRequest, code: ErrorCode, version: int) -> ShareFetchResponse:
    """The error."""
    return ShareFetchResponse(error_code=code, error_message=code.name)


def refuse_all(call: Call, request: ShareFetchRequest, code: ErrorCode, version: int) -> ShareFetchResponse:
    """The error: an error of partitions of each that the session knows or the request names, and of what is
    said of its records there."""
    if code not in OF_PARTITIONS:
        return refuse(request, code, version)
    named = {
        (topic.topic_id, each.partition): each.acknowledgements
        for topic in request.topics
        for each in topic.partitions
    }
    forgotten = {(topic.topic_id, each) for topic in request.forgotten_topics for each in topic.partitions}
    known = call.node.share_sessions.places(Member(request.group_id or "", request.member_id or ""))
    found = {
        place: _refused(place, code, says_something=bool(named.get(place)))
        for place in {*named, *known} - forgotten
    }
    return ShareFetchResponse(topics=_topics(found))


def _refused(place: Place, code: ErrorCode, *, says_something: bool) -> PartitionResult:
    refused = PartitionResult(place[1])
    if code is not ErrorCode.INVALID_RECORD_STATE:
        refused = refused._replace(error_code=code, error_message=code.name)
    if says_something:
        refused = refused._replace(acknowledge_error_code=code, acknowledge_error_message=code.name)
    return refused
