"""ShareGroupHeartbeat."""

from __future__ import annotations

from itertools import groupby

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.share.requests import JOINING, LEAVING
from logstore.broker.share.requests import ShareGroupHeartbeat as Beat
from logstore.broker.share.requests import ShareGroupHeartbeatResult as Wanted
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.coordinated import as_told, words_as_told
from logstore.wire.handlers.share_sessions import Member
from logstore.wire.handlers.shares.said import check, release_rest
from logstore.wire.handlers.then import then, then_ask
from logstore.wire.messages.shares.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)


def answer(
    call: Call, request: ShareGroupHeartbeatRequest, version: int
) -> Pending[ShareGroupHeartbeatResponse]:
    """A member of a share group joins, is alive, or leaves."""
    code = check(call, request.group_id, request.member_id)
    if code is not ErrorCode.NONE:
        return Answered(refuse(request, code, version))
    for name in request.subscribed_topic_names or ():
        if not call.allows_topic(Operation.DESCRIBE, name):
            return Answered(refuse(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED, version))
    topics = request.subscribed_topic_names
    session_ms, interval_ms = call.node.group_settings.share_times_of(request.group_id)
    beat = Beat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        None if topics is None else tuple(dict.fromkeys(topics)),
        call.client_id,
        client_host=f"/{call.host}",
        rack_id=request.rack_id,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=interval_ms,
        waits_for_topics=True,
    )
    if request.member_epoch == LEAVING:
        return _leave(call, beat)
    if request.member_epoch != JOINING:
        return then(call.broker.share_group_heartbeat(beat), lambda found: _response(call, found))
    config = call.node.group_settings.config_of(request.group_id)

    def go_on(found: Wanted) -> Pending[Wanted]:
        """Those who are there may have other settings, which are the group's."""
        if found.error is not ErrorCode.INVALID_REQUEST:
            return Answered(found)
        return call.broker.share_group_heartbeat(beat)

    joined = then_ask(call.broker.share_group_heartbeat(beat._replace(config=config)), go_on)
    return then(joined, lambda found: _response(call, found))


def _leave(call: Call, beat: Beat) -> Pending[ShareGroupHeartbeatResponse]:
    """The session of one who leaves goes on: what it says there of its last records may come later."""
    member = Member(beat.group, beat.member_id)
    has_session = member in call.node.share_sessions

    def left(found: Wanted) -> ShareGroupHeartbeatResponse:
        if has_session and member not in call.node.share_sessions:  # it has ended meanwhile
            release_rest(call, member)
        return _response(call, found)

    return then(call.broker.share_group_heartbeat(beat._replace(has_session=has_session)), left)


def _response(call: Call, found: Wanted) -> ShareGroupHeartbeatResponse:
    code = as_told(call, found.error, found.message)
    assignment = None
    if found.is_new:
        assignment = Assignment(
            tuple(
                TopicPartitions(topic_id, tuple(each.partition.partition for each in parts))
                for topic_id, parts in groupby(found.assignment, key=lambda each: each.topic_id)
            )
        )
    return ShareGroupHeartbeatResponse(
        error_code=code,
        error_message=words_as_told(found.error, code, found.message),
        member_id=found.member_id,
        member_epoch=found.member_epoch,
        heartbeat_interval_ms=found.heartbeat_interval_ms,
        assignment=assignment,
    )


def refuse(request: ShareGroupHeartbeatRequest, code: ErrorCode, version: int) -> ShareGroupHeartbeatResponse:
    """The error."""
    return ShareGroupHeartbeatResponse(error_code=code, error_message=code.name)
