"""Kafka's default: each topic by itself, in ranges."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from logstore.broker.assigning.order import known_counts
from logstore.broker.assigning.ranges import assign_ranges
from logstore.clients.assignors.assignor import RebalanceProtocol, Subscription
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
        return assign_ranges(known_counts(partition_counts, members), members)
