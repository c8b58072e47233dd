"""How far share groups are (KIP-932): DescribeShareGroupOffsets, AlterShareGroupOffsets,
DeleteShareGroupOffsets."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import RETRIABLE
from logstore.broker.share.requests import (
    AlterShareOffsets,
    AlterShareOffsetsResult,
    DeleteShareOffsets,
    DeleteShareOffsetsResult,
    ShareGroupOffsets,
    ShareOffset,
    ShareOffsetsQuery,
)
from logstore.model import TopicPartition
from logstore.wire.apis import ApiKey
from logstore.wire.messages.shares import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.translate.translation import Translation, by_topic, codes_of


def _build_describe(
    query: ShareOffsetsQuery, version: int
) -> describe_share_group_offsets.DescribeShareGroupOffsetsRequest:
    topics = None
    if query.partitions is not None:
        topics = tuple(
            describe_share_group_offsets.Topic(name, tuple(each.partition for each in some))
            for name, some in by_topic(query.partitions, lambda each: each).items()
        )
    group = describe_share_group_offsets.Group(query.group, topics)
    return describe_share_group_offsets.DescribeShareGroupOffsetsRequest((group,))


def _parse_describe(
    query: ShareOffsetsQuery, response: describe_share_group_offsets.DescribeShareGroupOffsetsResponse
) -> ShareGroupOffsets:
    (group,) = response.groups
    found = {
        TopicPartition(topic.name, each.partition): ShareOffset(
            TopicPartition(topic.name, each.partition),
            code_of_number(each.error_code),
            each.start_offset,
            each.leader_epoch,
            each.lag,
        )
        for topic in group.topics
        for each in topic.partitions
    }
    partitions = tuple(found.values())
    if query.partitions is not None:
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        partitions = tuple(found.get(each, ShareOffset(each, missing)) for each in query.partitions)
    why = why_of_number(group.error_code, group.error_message)
    return ShareGroupOffsets(code_of_number(group.error_code), query.group, partitions, why)


def _judge_describe(result: ShareGroupOffsets) -> ErrorCode:
    """One partition may have no leader just now."""
    codes = [result.error, *(each.error for each in result.partitions)]
    return next((code for code in codes if code in RETRIABLE), result.error)


DESCRIBE: Final = Translation[ShareOffsetsQuery, ShareGroupOffsets](
    key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    build=_build_describe,
    parse=_parse_describe,
    refuse=lambda query, code, message: ShareGroupOffsets(code, query.group, message=message),
    judge=_judge_describe,
)


def _parse_alter(
    request: AlterShareOffsets, response: alter_share_group_offsets.AlterShareGroupOffsetsResponse
) -> AlterShareOffsetsResult:
    code = code_of_number(response.error_code)
    if code is not ErrorCode.NONE:
        return AlterShareOffsetsResult(
            code, message=why_of_number(response.error_code, response.error_message)
        )
    numbers = codes_of([partition for partition, _ in request.offsets], response.topics)
    return AlterShareOffsetsResult(code, {each: code_of_number(number) for each, number in numbers.items()})


ALTER: Final = Translation[AlterShareOffsets, AlterShareOffsetsResult](
    key=ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    build=lambda request, version: alter_share_group_offsets.AlterShareGroupOffsetsRequest(
        request.group,
        tuple(
            alter_share_group_offsets.Topic(
                name,
                tuple(
                    alter_share_group_offsets.Partition(partition.partition, offset)
                    for partition, offset in some
                ),
            )
            for name, some in by_topic(request.offsets, lambda each: each[0]).items()
        ),
    ),
    parse=_parse_alter,
    refuse=lambda request, code, message: AlterShareOffsetsResult(code, message=message),
)


def _parse_delete(
    request: DeleteShareOffsets, response: delete_share_group_offsets.DeleteShareGroupOffsetsResponse
) -> DeleteShareOffsetsResult:
    code = code_of_number(response.error_code)
    if code is not ErrorCode.NONE:
        return DeleteShareOffsetsResult(
            code, message=why_of_number(response.error_code, response.error_message)
        )
    found = {each.name: code_of_number(each.error_code) for each in response.topics}
    return DeleteShareOffsetsResult(
        code, {name: found.get(name, ErrorCode.UNKNOWN_SERVER_ERROR) for name in request.topics}
    )


DELETE: Final = Translation[DeleteShareOffsets, DeleteShareOffsetsResult](
    key=ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    build=lambda request, version: delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
        request.group, tuple(map(delete_share_group_offsets.Topic, request.topics))
    ),
    parse=_parse_delete,
    refuse=lambda request, code, message: DeleteShareOffsetsResult(code, message=message),
)
