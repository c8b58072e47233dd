"""DescribeShareGroupOffsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.share.requests import ShareGroupOffsets, ShareOffset, ShareOffsetsQuery
from logstore.format.messages.fields import NO_UUID
from logstore.logdir.acls import Operation, ResourceType
from logstore.model import TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import gather, then
from logstore.wire.messages.shares.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    Group,
    GroupResult,
    PartitionResult,
    TopicResult,
)


def answer(
    call: Call, request: DescribeShareGroupOffsetsRequest, version: int
) -> Pending[DescribeShareGroupOffsetsResponse]:
    """How far share groups are in the topics that the client may see."""
    allowed = [each for each in request.groups if call.allows_group(Operation.DESCRIBE, each.group_id)]
    found = gather([call.broker.share_group_offsets(_query(call, each)) for each in allowed])

    def convert(found: Sequence[ShareGroupOffsets]) -> DescribeShareGroupOffsetsResponse:
        results = {id(group): _result(call, group, each) for group, each in zip(allowed, found, strict=True)}
        return DescribeShareGroupOffsetsResponse(
            groups=tuple(
                results.get(id(each)) or _refused(each, ErrorCode.GROUP_AUTHORIZATION_FAILED)
                for each in request.groups
            )
        )

    return then(found, convert)


def _query(call: Call, group: Group) -> ShareOffsetsQuery:
    if group.topics is None:
        return ShareOffsetsQuery(group.group_id)
    return ShareOffsetsQuery(
        group.group_id,
        tuple(
            TopicPartition(topic.name, number)
            for topic in group.topics
            if _may_see(call, topic.name)
            for number in topic.partitions
        ),
    )


def _may_see(call: Call, topic: str) -> bool:
    return call.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic, is_noted=False)


def _result(call: Call, group: Group, found: ShareGroupOffsets) -> GroupResult:
    if found.error is ErrorCode.GROUP_ID_NOT_FOUND:  # as Kafka: it has not begun anywhere
        found = ShareGroupOffsets(NONE, found.group, _not_begun(group))
    if found.error is not NONE:
        return _refused(group, found.error, found.message)
    seen = [each for each in found.partitions if _may_see(call, each.partition.topic)]
    hidden = [
        ShareOffset(TopicPartition(topic.name, number), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for topic in group.topics or ()
        if not _may_see(call, topic.name)
        for number in topic.partitions
    ]
    return GroupResult(group.group_id, _by_topic(call, [*seen, *hidden]))


def _not_begun(group: Group) -> tuple[ShareOffset, ...]:
    return tuple(
        ShareOffset(TopicPartition(topic.name, number))
        for topic in group.topics or ()
        for number in topic.partitions
    )


def _by_topic(call: Call, offsets: Iterable[ShareOffset]) -> tuple[TopicResult, ...]:
    return tuple(
        TopicResult(
            name,
            call.node.topics.id_of(name) or NO_UUID,
            tuple(
                PartitionResult(
                    each.partition.partition,
                    each.start_offset,
                    each.leader_epoch,
                    each.lag,
                    each.error,
                    None if each.error is NONE else each.error.name,
                )
                for each in some
            ),
        )
        for name, some in groupby(offsets, key=lambda each: each.partition.topic)
    )


def _refused(group: Group, code: ErrorCode, message: str | None = None) -> GroupResult:
    return GroupResult(group.group_id, error_code=code, error_message=message or code.name)


def refuse(
    request: DescribeShareGroupOffsetsRequest, code: ErrorCode, version: int
) -> DescribeShareGroupOffsetsResponse:
    """The same error for every group."""
    return DescribeShareGroupOffsetsResponse(groups=tuple([_refused(each, code) for each in request.groups]))
