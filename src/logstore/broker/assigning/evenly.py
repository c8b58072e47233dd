"""Even first, and then near to what members had."""

from __future__ import annotations

from collections.abc import Mapping

from logstore.broker.assigning.claims import Claims
from logstore.broker.assigning.equal import assign_equally
from logstore.broker.assigning.order import Subscriber, in_java_order
from logstore.broker.assigning.unequal import assign_unequally
from logstore.model import TopicPartition


def assign_evenly(
    counts: Mapping[str, int], members: Mapping[str, Subscriber], claims: Claims
) -> dict[str, list[TopicPartition]]:
    """The most even assignment that there is: with equal subscriptions the loads differ by one at most. No
    other that is as even keeps more of what is claimed.

    Args:
        counts: the number of partitions of each topic that has a subscriber.

    Cost for 1,000 members and 10,000 partitions: 0.1 s with equal subscriptions; with different ones 1 s, and
    some seconds if all of them change at once.
    """
    if not members:
        return {}
    ordered = in_java_order(members)
    topics = {member: members[member].topics for member in ordered}
    if len(set(topics.values())) == 1:
        return assign_equally(counts, ordered, claims.owners)
    return assign_unequally(counts, ordered, topics, claims)
