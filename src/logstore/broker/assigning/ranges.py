"""Kafka's ranges: each topic by itself, divided among its subscribers."""

from __future__ import annotations

from collections.abc import Mapping

from logstore.broker.assigning.order import Subscriber, in_static_order
from logstore.model import TopicPartition


def assign_ranges(
    counts: Mapping[str, int], members: Mapping[str, Subscriber]
) -> dict[str, list[TopicPartition]]:
    """Ranges in the order of the members, static members first; the first ones have a partition more where
    the number does not divide. Topics with the same number of partitions and the same subscribers are divided
    alike.

    Args:
        counts: the number of partitions of each topic that has a subscriber.

    Cost: members times topics.
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
    ordered = in_static_order(members)
    for topic, count in counts.items():
        subscribers = [member for member in ordered if topic in members[member].topics]
        size, larger = divmod(count, len(subscribers))
        start = 0
        for place, member in enumerate(subscribers):
            stop = start + size + (place < larger)
            assigned[member] += [TopicPartition(topic, number) for number in range(start, stop)]
            start = stop
    return assigned
