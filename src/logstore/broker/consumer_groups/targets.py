"""Makes the target assignment of a group: Kafka's assignors ``uniform`` and ``range``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from logstore.broker.assigning.claims import Claim, Claims
from logstore.broker.assigning.evenly import assign_evenly
from logstore.broker.assigning.ranges import assign_ranges
from logstore.broker.consumer_groups.group import Group
from logstore.broker.consumer_groups.requests import TopicIdPartition
from logstore.broker.consumer_groups.topics import Topics
from logstore.model import TopicPartition


class _Subscriber(NamedTuple):
    topics: frozenset[str]
    instance_id: str | None


_Assign = Callable[[Mapping[str, int], Mapping[str, _Subscriber], Claims], Mapping[str, list[TopicPartition]]]


def _by_ranges(
    counts: Mapping[str, int], members: Mapping[str, _Subscriber], _: Claims
) -> Mapping[str, list[TopicPartition]]:
    return assign_ranges(counts, members)


ASSIGNORS: Final[Mapping[str, _Assign]] = {
    "uniform": assign_evenly,
    "range": _by_ranges,
}
"""By name; the first is the default. ``uniform``: even, and then as near to the last target as can be.
``range``: each topic in ranges, and topics that are partitioned alike are divided alike."""


def assign(group: Group, topics: Topics, now_ms: int) -> None:
    """Make the target assignment for the group's epoch. Cost: 0.1 s for 1,000 members and 10,000 partitions;
    see :func:`.assign_evenly`."""
    counts = {
        name: topics[name].partition_count for name in sorted(group.subscribed_topics()) if name in topics
    }
    members = {
        member_id: _Subscriber(group.topics_of(member).intersection(counts), member.instance_id)
        for member_id, member in group.members.items()
    }
    names = {topics[name].topic_id: name for name in counts}
    had = {
        member_id: Claim(
            [TopicPartition(names[topic_id], number) for topic_id, number in target if topic_id in names], 0
        )
        for member_id, target in group.targets.items()
    }
    chosen = ASSIGNORS[group.preferred_assignor(ASSIGNORS.keys())]
    assigned = chosen(counts, members, Claims(counts, had))
    for member_id in members:
        target = frozenset(
            TopicIdPartition(topics[name].topic_id, number) for name, number in assigned.get(member_id, ())
        )
        if target != group.target_of(member_id):
            group.targets[member_id] = target
    group.assignment_epoch = group.epoch
    group.assigned_at_ms = now_ms
