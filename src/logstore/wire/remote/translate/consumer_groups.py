"""Requests of the newer protocol of consumer groups (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.requests import (
    AssignedPartition,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribedConsumer,
    DescribedConsumerGroup,
    TopicIdPartition,
)
from logstore.wire.apis import ApiKey
from logstore.wire.messages.groups import consumer_group_describe, consumer_group_heartbeat
from logstore.wire.messages.parts import Assignment
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.translate.translation import Translation


def _build_heartbeat(
    request: ConsumerGroupHeartbeat, version: int
) -> consumer_group_heartbeat.ConsumerGroupHeartbeatRequest:
    owned = None
    if request.owned is not None:
        by_topic: dict[object, list[TopicIdPartition]] = {}
        for each in sorted(request.owned):
            by_topic.setdefault(each.topic_id, []).append(each)
        owned = tuple(
            consumer_group_heartbeat.TopicPartitions(
                parts[0].topic_id, tuple(each.partition for each in parts)
            )
            for parts in by_topic.values()
        )
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        request.topics,
        request.pattern,
        request.assignor,
        owned,
    )


def _parse_heartbeat(
    request: ConsumerGroupHeartbeat, response: consumer_group_heartbeat.ConsumerGroupHeartbeatResponse
) -> ConsumerGroupHeartbeatResult:
    assignment = None
    if response.assignment is not None:
        assignment = tuple(
            TopicIdPartition(topic.topic_id, number)
            for topic in response.assignment.topic_partitions
            for number in topic.partitions
        )
    return ConsumerGroupHeartbeatResult(
        code_of_number(response.error_code),
        response.member_id,
        response.member_epoch,
        response.heartbeat_interval_ms,
        assignment,
        why_of_number(response.error_code, response.error_message),
    )


HEARTBEAT: Final = Translation[ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResult](
    key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
    build=_build_heartbeat,
    parse=_parse_heartbeat,
    refuse=lambda request, code, message: ConsumerGroupHeartbeatResult(code, message=message),
)


def _described(group: consumer_group_describe.Group) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        code_of_number(group.error_code),
        group.group_id,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        tuple(
            DescribedConsumer(
                each.member_id,
                each.instance_id,
                each.rack_id,
                each.member_epoch,
                each.client_id,
                each.client_host,
                tuple(each.subscribed_topic_names),
                each.subscribed_topic_regex or None,
                tuple(_partitions(each.assignment)),
                tuple(_partitions(each.target_assignment)),
                each.member_type == consumer_group_describe.OF_CLASSIC_PROTOCOL,
            )
            for each in group.members
        ),
        why_of_number(group.error_code, group.error_message),
    )


def _partitions(assignment: Assignment) -> Iterable[AssignedPartition]:
    return (
        AssignedPartition(topic.topic_id, topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


DESCRIBE: Final = Translation[tuple[str, ...], dict[str, DescribedConsumerGroup]](
    key=ApiKey.CONSUMER_GROUP_DESCRIBE,
    build=lambda names, version: consumer_group_describe.ConsumerGroupDescribeRequest(names),
    parse=lambda names, response: {each.group_id: _described(each) for each in response.groups},
    refuse=lambda names, code, message: {
        name: DescribedConsumerGroup(code, name, message=message) for name in names
    },
    judge=lambda found: next((each.error for each in found.values() if each.error), ErrorCode.NONE),
)
