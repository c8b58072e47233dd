"""Cooperative: nobody stops, and no partition ever has two owners (KIP-429)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.clients.assignors import ASSIGNORS, Subscription
from logstore.model import TopicPartition
from tests.clients.assignors.test_assignors import check_owners, wanted
from tests.clients.assignors.world import World

_random = st.randoms(use_true_random=False)


@given(_random, st.booleans(), st.sampled_from([0.0, 0.3]), st.booleans())
def test_what_another_member_may_hold_is_assigned_when_it_has_given_it_up(
    rng, same_topics, missing, is_disputed
):
    world = World("cooperative-sticky", rng, same_topics=same_topics)
    world.live(missing=missing)
    if is_disputed:
        world.dispute()
    rounds = 0
    while True:
        group = world.group()
        assigned = world.assign(group)
        given_out = check_owners(group, assigned)
        for member, partitions in assigned.items():
            generation = group.members[member].generation
            for other, subscription in group.members.items():
                held = set(subscription.owned) & set(partitions) if other != member else set()
                if subscription.generation >= generation:  # an older claim may be out of date
                    assert not held
                assert held <= set(group.members[member].owned)
        rounds += 1
        if given_out == wanted(group):
            break
        world.apply(assigned)
    assert rounds <= 2 or (rounds <= 4 and not same_topics)


@given(_random)
def test_with_equal_subscriptions_the_second_round_gives_what_sticky_gives(rng):
    world = World("cooperative-sticky", rng, same_topics=True)
    group = world.live()
    eager = {
        member: replace(
            each,
            user_data=ASSIGNORS["sticky"].subscription_user_data(each.topics, each.owned, each.generation),
        )
        for member, each in group.members.items()
    }
    target = ASSIGNORS["sticky"].assign(group.counts, eager)
    world.apply(world.assign(group))
    settled = world.assign(world.group())
    for member, partitions in settled.items():
        assert len(partitions) == len(target[member])
        assert set(partitions) >= set(target[member]) & set(group.members[member].owned)


@pytest.mark.parametrize("user_data", [b"\0\0\0\5", None])
def test_the_generation_is_in_the_user_data_of_old_subscriptions(user_data):
    """Version 1 has owned partitions and no generation."""
    topics, owned = frozenset({"t"}), (TopicPartition("t", 0),)
    old = Subscription(topics=topics, owned=owned, user_data=user_data)
    members = {
        "old": Subscription.decode(old.encode(version=1)),
        "new": Subscription(topics=topics, owned=owned, generation=4),
    }
    assigned = ASSIGNORS["cooperative-sticky"].assign({"t": 1}, members)
    owner = "new" if user_data is None else "old"
    assert assigned == {"old": [], "new": [], owner: [("t", 0)]}


def test_a_partition_that_moves_rests_for_one_round():
    topics = frozenset({"t"})
    owned = tuple(TopicPartition("t", number) for number in range(4))
    before = {
        "one": Subscription(topics=topics, owned=owned, generation=1),
        "two": Subscription(topics=topics),
    }
    assign = ASSIGNORS["cooperative-sticky"].assign
    first = assign({"t": 4}, before)
    assert first == {"one": list(owned[:2]), "two": []}
    after = {name: replace(each, owned=tuple(first[name]), generation=2) for name, each in before.items()}
    assert assign({"t": 4}, after) == {"one": list(owned[:2]), "two": list(owned[2:])}
