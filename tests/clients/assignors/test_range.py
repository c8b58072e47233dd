"""Range: the algorithm of Kafka's paper, co-partitioning, and static members."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logstore.clients.assignors import RangeAssignor, Subscription
from logstore.model import TopicPartition
from tests.clients.assignors.world import World

RANGE = RangeAssignor()


def _paper(
    consumer: str, counts: dict[str, int], subscribed: dict[str, frozenset[str]]
) -> set[TopicPartition]:
    """Algorithm 1 of "Kafka: a Distributed Messaging System for Log Processing" (2011), which each consumer
    runs for itself. What does not divide goes to the first consumers, as in Kafka."""
    owned = set()
    for topic in subscribed[consumer]:
        partitions = sorted(TopicPartition(topic, number) for number in range(counts.get(topic, 0)))
        consumers = sorted(each for each, topics in subscribed.items() if topic in topics)
        j = consumers.index(consumer)
        n, extra = len(partitions) // len(consumers), len(partitions) % len(consumers)
        start = j * n + min(j, extra)
        stop = (j + 1) * n + min(j + 1, extra)
        owned |= set(partitions[start:stop])
    return owned


@given(st.randoms(use_true_random=False), st.booleans())
def test_it_is_the_algorithm_of_the_paper(rng, same_topics):
    world = World("range", rng, same_topics=same_topics)
    for member in world.members.values():
        member.instance_id = None
    group = world.group()
    subscribed = {member: each.topics for member, each in group.members.items()}
    for member, partitions in RANGE.assign(group.counts, group.members).items():
        assert set(partitions) == _paper(member, world.counts, subscribed)
        assert len(partitions) == len(set(partitions))


@given(st.integers(1, 9), st.integers(0, 20), st.randoms(use_true_random=False))
def test_topics_that_are_partitioned_alike_are_divided_alike(member_count, partition_count, rng):
    names = [f"m{rng.randint(0, 10**6)}-{n}" for n in range(member_count)]
    both = Subscription(topics=frozenset({"clicks", "users"}))
    counts = {"clicks": partition_count, "users": partition_count}
    for partitions in RANGE.assign(counts, dict.fromkeys(names, both)).values():
        clicks, users = ([n for t, n in partitions if t == topic] for topic in counts)
        assert clicks == users


@given(st.integers(1, 7), st.randoms(use_true_random=False), st.sampled_from(["range", "roundrobin"]))
def test_a_restart_of_static_members_changes_nothing(member_count, rng, name):
    """Their member ids are new, their instance ids are not (KIP-345)."""

    def assign() -> dict[str | None, list[TopicPartition]]:
        ids = [f"{rng.randint(0, 10**6)}-{n}" for n in range(member_count)]
        members = {
            member: Subscription(topics=frozenset({"a", "b"}), instance_id=f"i{n}")
            for n, member in enumerate(ids)
        }
        assigned = World(name, rng, same_topics=True).assignor.assign({"a": 10, "b": 3}, members)
        return {members[member].instance_id: list(partitions) for member, partitions in assigned.items()}

    assert assign() == assign()


def test_static_members_come_first_and_ids_are_in_javas_order():
    topics = frozenset({"t"})
    members = {
        "\uff5e": Subscription(topics=topics),
        "\U0001f600": Subscription(topics=topics),  # of two surrogates in UTF-16, which come before U+FF5E
        "z": Subscription(topics=topics, instance_id="b"),
        "a": Subscription(topics=topics, instance_id="c"),
        "A": Subscription(topics=topics),
    }
    assigned = RANGE.assign({"t": 5}, members)
    assert [member for _, member in sorted((each, member) for member, (each,) in assigned.items())] == [
        "z",
        "a",
        "A",
        "\U0001f600",
        "\uff5e",
    ]
