"""All partitions of all topics in one row, dealt out in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from logstore.broker.assigning.order import in_static_order, known_counts, partitions_of
from logstore.clients.assignors.assignor import RebalanceProtocol, Subscription
from logstore.model import TopicPartition


class RoundRobinAssignor:
    """Deals the partitions out to the members in turn, static members first; a member that does not subscribe
    the topic is passed over. With equal subscriptions the members differ by one partition at most."""

    name: Final = "roundrobin"
    protocols: Final = (RebalanceProtocol.EAGER,)

    def subscription_user_data(
        self, topics: Collection[str], owned: Sequence[TopicPartition], generation: int
    ) -> None:
        """None: it needs no more than the subscriptions."""

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See :meth:`Assignor.assign`. Cost: a step for each partition and each member passed over."""
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        turns = deque(in_static_order(members))
        for partition in partitions_of(known_counts(partition_counts, members)):
            while partition.topic not in members[turns[0]].topics:
                turns.rotate(-1)
            assigned[turns[0]].append(partition)
            turns.rotate(-1)
        return assigned
