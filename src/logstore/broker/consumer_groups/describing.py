"""ConsumerGroupDescribe: a group as an administrator sees it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.group import Group
from logstore.broker.consumer_groups.requests import (
    AssignedPartition,
    DescribedConsumer,
    DescribedConsumerGroup,
    TopicIdPartition,
)
from logstore.broker.consumer_groups.targets import ASSIGNORS
from logstore.broker.consumer_groups.topics import Topics


def describe(group: Group, topics: Topics) -> DescribedConsumerGroup:
    """All that is known of a group. Partitions of topics that are deleted are left out, as in Kafka."""
    names = {topic.topic_id: name for name, topic in topics.items()}
    members = tuple(
        DescribedConsumer(
            member.member_id,
            member.instance_id,
            member.rack_id,
            member.epoch,
            member.client_id,
            member.client_host,
            tuple(sorted(member.topics)),
            member.pattern,
            _named(member.held, names),
            _named(group.target_of(member.member_id), names),
            member.classic is not None,
        )
        for member in sorted(group.members.values(), key=lambda member: member.member_id)
    )
    return DescribedConsumerGroup(
        ErrorCode.NONE,
        group.group_id,
        group.state.value,
        group.epoch,
        group.assignment_epoch,
        group.preferred_assignor(ASSIGNORS.keys()),
        members,
    )


def _named(
    partitions: Iterable[TopicIdPartition], names: Mapping[uuid.UUID, str]
) -> tuple[AssignedPartition, ...]:
    found = [
        AssignedPartition(topic_id, names[topic_id], number)
        for topic_id, number in partitions
        if topic_id in names
    ]
    return tuple(sorted(found, key=lambda each: (each.topic, each.partition)))
