"""The sticky assignment where all members subscribe the same topics: a matter of counting."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from operator import itemgetter

from logstore.broker.assigning.order import partitions_of
from logstore.model import TopicPartition

_BY_NUMBER = itemgetter(1, 0)  # as Kafka: what a member gives up are its last partitions of each topic


def assign_equally(
    counts: Mapping[str, int], members: Sequence[str], owners: Mapping[TopicPartition, str]
) -> dict[str, list[TopicPartition]]:
    """The assignment that is even, the loads differing by one at most, and then keeps the most.

    Args:
        counts: the number of partitions of each topic, sorted by topic.
        members: at least one, in the order in which they are served.
        owners: who has which partition.

    Cost: sorting what is owned, and a step for each partition: some 20 ms for 10,000.
    """
    owned: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for partition, owner in owners.items():
        owned[owner].append(partition)
    low, larger = divmod(sum(counts.values()), len(members))  # so many members have one more than low
    assigned: dict[str, list[TopicPartition]] = {}
    below: deque[str] = deque()
    at_low: list[str] = []
    for member in members:
        kept = sorted(owned[member], key=_BY_NUMBER)
        if len(kept) < low:
            below.append(member)
        elif len(kept) > low and larger:
            larger -= 1
            kept = kept[: low + 1]
        else:
            at_low.append(member)
            kept = kept[:low]
        assigned[member] = kept

    taken = {partition for kept in assigned.values() for partition in kept}
    free = iter([partition for partition in partitions_of(counts) if partition not in taken])
    while below:
        member = below.popleft()
        assigned[member].append(next(free))
        (below if len(assigned[member]) < low else at_low).append(member)
    for member, partition in zip(at_low, free, strict=False):  # as many are free as members to be larger
        assigned[member].append(partition)
    return assigned
