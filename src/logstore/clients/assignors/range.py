"""Kafka's default: each topic by itself, in ranges."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from logstore.clients.assignors.assignor import (
    RebalanceProtocol,
    Subscription,
    in_static_order,
    known_counts,
)
from logstore.model import TopicPartition


class RangeAssignor:
    """Gives each subscriber of a topic a range of its partitions.

    The ranges are in the order of the members, static members first; the first ones have a partition more
    where the number does not divide. Topics with the same number of partitions and the same subscribers are
    divided alike, so that one member gets the same partitions of each: records that were partitioned by the
    same key can be joined.
    """

    name: Final = "range"
    protocols: Final = (RebalanceProtocol.EAGER,)

    def subscription_user_data(
        self, topics: Collection[str], owned: Sequence[TopicPartition], generation: int
    ) -> None:
        """None: it needs no more than the subscriptions."""

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See :meth:`Assignor.assign`. Cost: members times topics."""
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        ordered = in_static_order(members)
        for topic, count in known_counts(partition_counts, members).items():
            subscribers = [member for member in ordered if topic in members[member].topics]
            size, larger = divmod(count, len(subscribers))
            start = 0
            for place, member in enumerate(subscribers):
                stop = start + size + (place < larger)
                assigned[member] += [TopicPartition(topic, number) for number in range(start, stop)]
                start = stop
        return assigned
