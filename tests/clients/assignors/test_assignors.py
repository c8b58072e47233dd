"""What all assignors promise, in groups of any history."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.clients.assignors import ASSIGNORS, Subscription
from logstore.model import TopicPartition
from tests.clients.assignors.world import Group, World

EAGER = ["range", "roundrobin", "sticky"]
_random = st.randoms(use_true_random=False)


def wanted(group: Group) -> set[TopicPartition]:
    """All partitions of subscribed topics."""
    topics = frozenset[str]().union(*(each.topics for each in group.members.values()))
    return {TopicPartition(t, n) for t in topics for n in range(group.counts.get(t, 0))}


def check_owners(group: Group, assigned: dict[str, list[TopicPartition]]) -> set[TopicPartition]:
    """Each member is there, no partition has two owners, and all owners subscribe the topic. Returns what is
    assigned."""
    assert assigned.keys() == group.members.keys()
    owners = Counter(each for partitions in assigned.values() for each in partitions)
    assert not owners or max(owners.values()) == 1
    for member, partitions in assigned.items():
        assert {each.topic for each in partitions} <= group.members[member].topics
    return set(owners)


@pytest.mark.parametrize("name", EAGER)
@given(_random, st.booleans(), st.booleans())
def test_each_partition_of_a_subscribed_topic_has_one_owner(name, rng, same_topics, is_disputed):
    world = World(name, rng, same_topics=same_topics)
    group = world.live(missing=0.3)
    if is_disputed:
        world.dispute()
        group = world.group()
    assert check_owners(group, world.assign(group)) == wanted(group)


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(_random, st.booleans())
def test_the_order_of_members_and_topics_has_no_influence(name, rng, same_topics):
    world = World(name, rng, same_topics=same_topics)
    world.live(missing=0.3)
    world.dispute()
    group = world.group()
    other = world.group()._replace(counts=dict(reversed(world.counts.items())))
    assert world.assign(group) == world.assign(other)


@pytest.mark.parametrize("name", ["roundrobin", "sticky"])
@given(_random)
def test_with_equal_subscriptions_loads_differ_by_one_at_most(name, rng):
    world = World(name, rng, same_topics=True)
    group = world.live(missing=0.3)
    loads = [len(partitions) for partitions in world.assign(group).values()]
    assert max(loads) - min(loads) <= 1


@pytest.mark.parametrize("name", list(ASSIGNORS))
def test_a_group_with_nothing_to_divide(name):
    assign = ASSIGNORS[name].assign
    nothing = Subscription(topics=frozenset())
    gone = Subscription(topics=frozenset({"gone"}))
    assert assign({"t": 3}, {}) == {}
    assert assign({"t": 3}, {"a": nothing}) == {"a": []}
    assert assign({"t": 3, "empty": 0}, {"a": nothing, "b": gone}) == {"a": [], "b": []}
    some = Subscription(topics=frozenset({"t", "empty", "gone"}))
    assert assign({"t": 1, "empty": 0}, {"a": nothing, "b": some}) == {"a": [], "b": [("t", 0)]}
