"""Share groups (KIP-932): ShareGroupHeartbeat, ShareFetch, ShareAcknowledge, ShareGroupDescribe.

The protocol names topics by ids, and has sessions, in which only what changes is named. Both are the caller's
affair: what is built here is given ids, an epoch, and what has changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from logstore.broker.codes import ErrorCode
from logstore.broker.share.partition import Acknowledgement
from logstore.broker.share.requests import (
    LEAVING,
    AcknowledgeBatch,
    AcknowledgedPartition,
    AcknowledgePartition,
    AcquiredRecords,
    DescribedShareGroup,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResult,
    ShareFetchedPartition,
    ShareFetchRequest,
    ShareFetchResult,
    ShareGroupConfig,
    ShareGroupHeartbeat,
    ShareGroupMember,
    TopicIdPartition,
)
from logstore.broker.storing.group_settings import texts_of
from logstore.logdir.group_settings import COPIES_DEAD_LETTERS, DEAD_LETTER_TOPIC
from logstore.model import TopicPartition
from logstore.wire.apis import ApiKey
from logstore.wire.messages.shares import (
    acknowledged,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from logstore.wire.messages.topics import incremental_alter_configs
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.connections.nodes import Lane
from logstore.wire.remote.translate.records import whole_batches
from logstore.wire.remote.translate.translation import Translation

Partitions = Iterable[TopicIdPartition]

_INT32_MAX: Final = 2**31 - 1
_EXACT: Final = 1
"""The acquire mode that never gives more records than were asked for (KIP-1206)."""
_GROUP: Final = 32
"""The type of a resource."""
LAST_EPOCH: Final = -1
"""Ends a share session, and lets go what its member has."""
_LOST: Final = frozenset(
    {
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
"""The member does not have one of the records any more: its lock has run out, or ended with the leader that
gave it. Then nothing counts that was said of the partition; of the last three it may all the same."""
_NO_SESSION: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
"""It has ended, and what the member had was let go: another broker has taken over, say."""
_NOT_A_MEMBER: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})


class FetchInSession(NamedTuple):
    """A ShareFetch as one broker gets it."""

    request: ShareFetchRequest
    epoch: int
    added: tuple[TopicIdPartition, ...]
    forgotten: tuple[TopicIdPartition, ...]


class AcknowledgeInSession(NamedTuple):
    """A ShareAcknowledge as one broker gets it."""

    request: ShareAcknowledgeRequest
    epoch: int


def _code_of(number: int) -> ErrorCode:
    """That a topic was made again under its name is told apart here."""
    return ErrorCode.UNKNOWN_TOPIC_ID if number == ErrorCode.UNKNOWN_TOPIC_ID else code_of_number(number)


def _topics(partitions: Partitions, said: Iterable[AcknowledgePartition]) -> tuple[acknowledged.Topic, ...]:
    """Partitions, with what is said of some."""
    found: dict[UUID, dict[int, tuple[acknowledged.Acknowledgements, ...]]] = {}
    for each in partitions:
        found.setdefault(each.topic_id, {})[each.partition.partition] = ()
    for partition, batches, _ in said:
        if batches:
            told = tuple(_said(batch) for batch in sorted(batches))
            found.setdefault(partition.topic_id, {})[partition.partition.partition] = told
    return tuple(
        acknowledged.Topic(
            topic_id, tuple(acknowledged.Partition(number, told) for number, told in parts.items())
        )
        for topic_id, parts in found.items()
    )


def _type_of(kind: Acknowledgement) -> int:
    """What was not used is released; the protocol has no other word."""
    return int(Acknowledgement.RELEASE if kind is Acknowledgement.UNUSED else kind)


def _said(batch: AcknowledgeBatch) -> acknowledged.Acknowledgements:
    return acknowledged.Acknowledgements(batch.first, batch.last, (_type_of(batch.kind),))


def _build_fetch(asked: FetchInSession, version: int) -> share_fetch.ShareFetchRequest:
    request = asked.request
    forgotten: dict[UUID, list[int]] = {}
    for each in asked.forgotten:
        forgotten.setdefault(each.topic_id, []).append(each.partition.partition)
    together = request.max_partition_bytes * max(len(request.partitions), 1)
    return share_fetch.ShareFetchRequest(
        request.group,
        request.member_id,
        asked.epoch,
        request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=min(request.max_bytes, together, _INT32_MAX),
        max_records=request.max_records,
        batch_size=request.max_records,
        share_acquire_mode=_EXACT,
        topics=_topics(asked.added, request.acknowledgements),
        forgotten_topics=tuple(
            share_fetch.ForgottenTopic(topic_id, tuple(numbers)) for topic_id, numbers in forgotten.items()
        ),
    )


def _parse_fetch(asked: FetchInSession, response: share_fetch.ShareFetchResponse) -> ShareFetchResult:
    if response.error_code:
        message = why_of_number(response.error_code, response.error_message)
        return _refuse_fetch(asked, _code_of(response.error_code), message)
    names = {each.topic_id: each.partition.topic for each in _all_of(asked.request)}
    answers = {
        (topic.topic_id, each.partition): each for topic in response.topics for each in topic.partitions
    }
    found = [
        _fetched(TopicIdPartition(TopicPartition(names[topic_id], number), topic_id), each)
        for (topic_id, number), each in answers.items()
        if topic_id in names
    ]
    outcomes = []
    for said in asked.request.acknowledgements:
        told = answers.get((said.partition.topic_id, said.partition.partition.partition))
        number, why = (0, None) if told is None else _told_of_said(told)
        outcomes.append(_outcome(said, number, why))
    return ShareFetchResult(
        ErrorCode.NONE,
        tuple(each for each in found if each.acquired or each.error is not ErrorCode.NONE),
        response.acquisition_lock_timeout_ms,
        acknowledged=tuple(outcomes),
    )


def _all_of(request: ShareFetchRequest) -> list[TopicIdPartition]:
    """A session may have partitions that were asked for before; their topics are the same."""
    return [*request.partitions, *(each.partition for each in request.acknowledgements)]


def _told_of_said(answer: share_fetch.PartitionResult) -> tuple[int, str | None]:
    """A partition that cannot be asked at all has its error in the other place."""
    if answer.acknowledge_error_code or not answer.error_code:
        return answer.acknowledge_error_code, answer.acknowledge_error_message
    is_about_all = _code_of(answer.error_code) in _ABOUT_ALL
    return (answer.error_code, answer.error_message) if is_about_all else (0, None)


_ABOUT_ALL: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


def _fetched(partition: TopicIdPartition, answer: share_fetch.PartitionResult) -> ShareFetchedPartition:
    data, _, _ = whole_batches(answer.records, 0)
    return ShareFetchedPartition(
        partition,
        _code_of(answer.error_code),
        data,
        tuple(
            AcquiredRecords(each.first_offset, each.last_offset, each.delivery_count)
            for each in answer.acquired_records
        ),
        message=why_of_number(answer.error_code, answer.error_message),
    )


def _refuse_fetch(asked: FetchInSession, code: ErrorCode, message: str | None) -> ShareFetchResult:
    return ShareFetchResult(
        code, message=message, acknowledged=_all_refused(asked.request.acknowledgements, code, message)
    )


FETCH: Final = Translation(
    key=ApiKey.SHARE_FETCH,
    build=_build_fetch,
    parse=_parse_fetch,
    refuse=_refuse_fetch,
    judge=lambda _: ErrorCode.NONE,
    lane=Lane.WAITS,
    may_repeat=False,
    wait_ms=lambda asked: asked.request.max_wait_ms,
)


def _build_acknowledge(
    asked: AcknowledgeInSession, version: int
) -> share_acknowledge.ShareAcknowledgeRequest:
    request = asked.request
    renews = any(batch.kind is Acknowledgement.RENEW for each in request.partitions for batch in each.batches)
    return share_acknowledge.ShareAcknowledgeRequest(
        request.group, request.member_id, asked.epoch, renews, _topics((), request.partitions)
    )


def _parse_acknowledge(
    asked: AcknowledgeInSession, response: share_acknowledge.ShareAcknowledgeResponse
) -> ShareAcknowledgeResult:
    if response.error_code:
        message = why_of_number(response.error_code, response.error_message)
        return refuse_acknowledge(asked, _code_of(response.error_code), message)
    answers = {
        (topic.topic_id, each.partition): each for topic in response.topics for each in topic.partitions
    }
    found = []
    for each in asked.request.partitions:
        answer = answers.get((each.partition.topic_id, each.partition.partition.partition))
        number, message = (0, None) if answer is None else (answer.error_code, answer.error_message)
        found.append(_outcome(each, number, message))
    return ShareAcknowledgeResult(tuple(found), lock_duration_ms=response.acquisition_lock_timeout_ms)


def _outcome(said: AcknowledgePartition, number: int, message: str | None) -> AcknowledgedPartition:
    """What became of what was said of one partition, from the number of its error."""
    code = _code_of(number)
    return outcome_of(said, code, why_of_number(number, message))


def outcome_of(said: AcknowledgePartition, code: ErrorCode, message: str | None) -> AcknowledgedPartition:
    """What became of what was said of one partition."""
    is_lost = code in _LOST or code is ErrorCode.UNKNOWN_TOPIC_ID
    return AcknowledgedPartition(
        said.partition,
        ErrorCode.INVALID_RECORD_STATE if code in _LOST else code,
        said.batches if is_lost else (),
        message,
    )


def _all_refused(
    said: Iterable[AcknowledgePartition], code: ErrorCode, message: str | None
) -> tuple[AcknowledgedPartition, ...]:
    is_lost = code in _NOT_A_MEMBER or code in _NO_SESSION
    code = ErrorCode.INVALID_RECORD_STATE if code in _NO_SESSION else code
    return tuple(
        AcknowledgedPartition(each.partition, code, each.batches if is_lost else (), message) for each in said
    )


def refuse_acknowledge(
    asked: AcknowledgeInSession, code: ErrorCode, message: str | None
) -> ShareAcknowledgeResult:
    """Nothing counts."""
    return ShareAcknowledgeResult(_all_refused(asked.request.partitions, code, message), code)


ACKNOWLEDGE: Final = Translation(
    key=ApiKey.SHARE_ACKNOWLEDGE,
    build=_build_acknowledge,
    parse=_parse_acknowledge,
    refuse=refuse_acknowledge,
    judge=lambda _: ErrorCode.NONE,
    may_repeat=False,
)


class Beat(NamedTuple):
    """What a coordinator answers to a heartbeat: partitions by the ids of their topics."""

    error: ErrorCode
    member_id: str = ""
    member_epoch: int = -1
    assignment: tuple[tuple[UUID, int], ...] | None = None
    """None: as before."""
    message: str | None = None
    heartbeat_interval_ms: int = 0


HEARTBEAT: Final = Translation[ShareGroupHeartbeat, Beat](
    key=ApiKey.SHARE_GROUP_HEARTBEAT,
    build=lambda request, version: share_group_heartbeat.ShareGroupHeartbeatRequest(
        request.group,
        request.member_id,
        request.member_epoch,
        request.rack_id,
        None
        if request.topics is None or request.member_epoch == LEAVING
        else tuple(sorted(set(request.topics))),
    ),
    parse=lambda request, response: Beat(
        code_of_number(response.error_code),
        response.member_id or request.member_id,
        response.member_epoch,
        None
        if response.assignment is None
        else tuple(
            (topic.topic_id, number)
            for topic in response.assignment.topic_partitions
            for number in topic.partitions
        ),
        why_of_number(response.error_code, response.error_message),
        response.heartbeat_interval_ms,
    ),
    refuse=lambda request, code, message: Beat(code, message=message),
)


def settings_of(config: ShareGroupConfig) -> dict[str, str]:
    """What a member gives its group. The dead-letter topic only if it has one: brokers before Kafka 4.4 do
    not know what that is, and an administrator may have given the group one."""
    texts = texts_of(config)
    if config.dead_letter_topic is None:
        del texts[DEAD_LETTER_TOPIC], texts[COPIES_DEAD_LETTERS]
    return texts


class Configure(NamedTuple):
    """A member gives its group settings."""

    group: str
    config: ShareGroupConfig


class Configured(NamedTuple):
    """What became of a setting."""

    error: ErrorCode
    message: str | None = None

    @property
    def why(self) -> str:
        """Why it was not set."""
        return self.message or self.error.name


def _parse_settings(request: Configure, response: Any) -> Configured:
    for each in response.resources:
        if each.error_code:
            return Configured(
                code_of_number(each.error_code), why_of_number(each.error_code, each.error_message)
            )
    return Configured(ErrorCode.NONE)


def configure(name: str) -> Translation[Configure, Configured]:
    """One setting of a group, as a member that joins has it."""
    return Translation(
        key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
        build=lambda request, version: incremental_alter_configs.IncrementalAlterConfigsRequest(
            (
                incremental_alter_configs.Resource(
                    _GROUP,
                    request.group,
                    (incremental_alter_configs.Config(name, 0, settings_of(request.config)[name]),),
                ),
            )
        ),
        parse=_parse_settings,
        refuse=lambda request, code, message: Configured(code, message),
    )


def _described(group: share_group_describe.Group) -> DescribedShareGroup:
    return DescribedShareGroup(
        code_of_number(group.error_code),
        group.group_id,
        group.group_state or "Dead",
        tuple(
            ShareGroupMember(
                each.member_id,
                each.client_id,
                each.subscribed_topic_names,
                each.member_epoch,
                each.client_host,
                each.rack_id,
                tuple(
                    TopicIdPartition(TopicPartition(topic.topic_name, number), topic.topic_id)
                    for topic in each.assignment.topic_partitions
                    for number in topic.partitions
                ),
            )
            for each in group.members
        ),
        (),
        why_of_number(group.error_code, group.error_message),
        group.group_epoch,
        group.assignor_name,
    )


DESCRIBE: Final = Translation[tuple[str, ...], dict[str, DescribedShareGroup]](
    key=ApiKey.SHARE_GROUP_DESCRIBE,
    build=lambda names, version: share_group_describe.ShareGroupDescribeRequest(names),
    parse=lambda names, response: {each.group_id: _described(each) for each in response.groups},
    refuse=lambda names, code, message: {
        name: DescribedShareGroup(code, name, message=message) for name in names
    },
    judge=lambda found: next((each.error for each in found.values() if each.error), ErrorCode.NONE),
)
