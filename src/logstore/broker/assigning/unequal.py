"""The sticky assignment where members subscribe different topics.

First each member keeps what it owns, and what is free goes to the member with the least. Then the loads are
made even, with partitions that members did not own as far as possible. Kafka's own assignor moves partitions
from one member to another only, and never along a path of several; so some of its assignments are less even,
and some keep less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logstore.broker.assigning.claims import Claims
from logstore.broker.assigning.loads import Loads
from logstore.model import TopicPartition

_ByTopic = dict[str, list[TopicPartition]]


def assign_unequally(
    counts: Mapping[str, int],
    members: Sequence[str],
    topics: Mapping[str, frozenset[str]],
    claims: Claims,
) -> dict[str, list[TopicPartition]]:
    """The assignment that is the most even, and of those one that keeps the most.

    Args:
        counts: the number of partitions of each topic that has a subscriber.
        members: in the order in which they are served.
        topics: what each member subscribes.
        claims: who has which partition.

    Cost: a step for each partition and subscriber of its topic, and then one for each subscriber of each
    topic for each partition that moves.
    """
    subscribers = {topic: [m for m in members if topic in topics[m]] for topic in counts}
    first: dict[str, _ByTopic] = {member: {} for member in members}
    free = []
    for topic in sorted(counts, key=lambda topic: (len(subscribers[topic]), topic)):
        for partition in (TopicPartition(topic, number) for number in range(counts[topic])):
            owner = claims.owners.get(partition)
            if owner is not None and topic in topics[owner]:
                first[owner].setdefault(topic, []).append(partition)
            else:
                free.append(partition)
    owned = {
        member: {topic: len(held) for topic, held in by_topic.items()} for member, by_topic in first.items()
    }
    loads = Loads(subscribers, owned)
    for partition in free:
        member = loads.least(partition.topic)
        loads.add(member, partition.topic)
        first[member].setdefault(partition.topic, []).append(partition)
    loads.even_out()
    loads.keep_more()
    return _name_partitions(subscribers, first, loads.counts, claims)


def _name_partitions(
    subscribers: Mapping[str, Sequence[str]],
    first: Mapping[str, _ByTopic],
    counts: Mapping[str, Mapping[str, int]],
    claims: Claims,
) -> dict[str, list[TopicPartition]]:
    """Which partitions each member gets, when it is known how many of each topic: those that it had at first,
    and from what others have too many of, if it can be, those that it had in an older generation."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in first}
    for topic, takers in subscribers.items():
        spare: list[TopicPartition] = []
        for member in takers:
            count = counts[member].get(topic, 0)
            partitions = first[member].get(topic, [])
            assigned[member] += partitions[:count]
            spare += partitions[count:]
        for member in takers:
            lacking = counts[member].get(topic, 0) - len(first[member].get(topic, ()))
            if lacking > 0:
                claimed = [each for each in spare if claims.is_claimed_by(each, member)]
                others = [each for each in spare if not claims.is_claimed_by(each, member)]
                spare = claimed + others
                assigned[member] += spare[:lacking]
                del spare[:lacking]
    return assigned
