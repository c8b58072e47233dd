"""OffsetFetch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import OffsetFetchRequest as ToFetch
from logstore.broker.requests import OffsetFetchResult as Fetched
from logstore.format.messages.fields import NO_UUID
from logstore.logdir.acls import Operation, ResourceType
from logstore.model import TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.resolving import resolve
from logstore.wire.handlers.then import gather, then
from logstore.wire.messages.groups.offset_fetch import (
    Group,
    GroupPartitionResult,
    GroupResult,
    GroupTopic,
    GroupTopicResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionResult,
    TopicResult,
)

_WITH_GROUP_ERROR: Final = 2
"""From this version on the response has an error of its own."""
_MANY: Final = 8
"""From this version on offsets of several groups are asked for at once."""
_BY_ID: Final = 10
"""From this version on topics are named by their ids."""
_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1


def answer(call: Call, request: OffsetFetchRequest, version: int) -> Pending[OffsetFetchResponse]:
    """What the groups have committed of the topics that the client may see."""
    asked = [_ask(call, each, request.require_stable, version) for each in _groups(request, version)]
    return then(gather(asked), lambda found: _response(found, version))


def _groups(request: OffsetFetchRequest, version: int) -> tuple[Group, ...]:
    if version >= _MANY:
        return request.groups
    topics = request.topics
    wanted = (
        None if topics is None else tuple([GroupTopic(name, NO_UUID, numbers) for name, numbers in topics])
    )
    return (Group(request.group_id, topics=wanted),)


_Named = list[tuple[GroupTopic, str, ErrorCode]]


def _ask(call: Call, group: Group, require_stable: bool, version: int) -> Pending[GroupResult]:
    if not call.allows_group(Operation.DESCRIBE, group.group_id):
        return Answered(_refused(group, ErrorCode.GROUP_AUTHORIZATION_FAILED, version))
    named = None
    partitions = None
    if group.topics is not None:
        named = [(topic, *_resolved(call, topic, version)) for topic in group.topics]
        partitions = tuple(
            TopicPartition(name, number)
            for topic, name, code in named
            if code is ErrorCode.NONE
            for number in topic.partitions
        )

    def convert(found: Fetched) -> GroupResult:
        if found.error is not ErrorCode.NONE:
            return _refused(group, found.error, version)
        topics = _all(call, found, version) if named is None else _wanted(named, found)
        return GroupResult(group.group_id, tuple(topics))

    wanted = ToFetch(group.group_id, partitions, require_stable, group.member_id or None, group.member_epoch)
    return then(call.broker.offset_fetch(wanted), convert)


def _resolved(call: Call, topic: GroupTopic, version: int) -> tuple[str, ErrorCode]:
    return resolve(call, Operation.DESCRIBE, topic.name, topic.topic_id if version >= _BY_ID else None)


def _wanted(named: _Named, found: Fetched) -> Iterator[GroupTopicResult]:
    for topic, name, code in named:
        rows = [
            _row(found, TopicPartition(name, number)) if code is ErrorCode.NONE else _none(number, code)
            for number in topic.partitions
        ]
        yield GroupTopicResult(topic.name, topic.topic_id, tuple(rows))


def _all(call: Call, found: Fetched, version: int) -> Iterator[GroupTopicResult]:
    """All that the client may see; where topics have ids, without those that are gone."""
    for name, partitions in groupby(sorted({*found.offsets, *found.unstable}), key=lambda each: each.topic):
        topic_id = call.node.topics.id_of(name) or NO_UUID if version >= _BY_ID else NO_UUID
        is_gone = version >= _BY_ID and topic_id == NO_UUID
        if not is_gone and call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, is_noted=False):
            yield GroupTopicResult(name, topic_id, tuple([_row(found, each) for each in partitions]))


def _row(found: Fetched, partition: TopicPartition) -> GroupPartitionResult:
    if partition in found.unstable:
        return _none(partition.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = found.offsets.get(partition)
    if committed is None:
        return _none(partition.partition, ErrorCode.NONE)
    epoch = _NO_EPOCH if committed.leader_epoch is None else committed.leader_epoch
    return GroupPartitionResult(partition.partition, committed.offset, epoch, committed.metadata)


def _none(number: int, code: ErrorCode) -> GroupPartitionResult:
    return GroupPartitionResult(number, _NO_OFFSET, _NO_EPOCH, "", code)


def _refused(group: Group, code: ErrorCode, version: int) -> GroupResult:
    """The error, of the whole group where the version can say so; else of each partition."""
    if version >= _WITH_GROUP_ERROR:
        return GroupResult(group.group_id, (), code)
    topics = tuple(
        GroupTopicResult(
            topic.name, topic.topic_id, tuple([_none(number, code) for number in topic.partitions])
        )
        for topic in group.topics or ()
    )
    return GroupResult(group.group_id, topics, code)


def _response(found: tuple[GroupResult, ...], version: int) -> OffsetFetchResponse:
    if version >= _MANY:
        return OffsetFetchResponse(groups=found)
    (group,) = found
    topics = tuple(
        TopicResult(topic.name, tuple([PartitionResult(*each) for each in topic.partitions]))
        for topic in group.topics
    )
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def refuse(request: OffsetFetchRequest, code: ErrorCode, version: int) -> OffsetFetchResponse:
    """The same error for every group."""
    return _response(tuple([_refused(each, code, version) for each in _groups(request, version)]), version)
