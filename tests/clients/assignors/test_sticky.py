"""Sticky: the most even assignment, and of those one that keeps the most; checked against all there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.clients.assignors import ASSIGNORS, StickyAssignor, Subscription
from logstore.model import TopicPartition
from tests.clients.assignors.test_assignors import check_owners, wanted
from tests.clients.assignors.world import Group, World

_random = st.randoms(use_true_random=False)


def _previous(world: World) -> dict[str, set[TopicPartition]]:
    """What each member could keep."""
    return {
        name: {each for each in member.partitions if each.partition < world.counts.get(each.topic, 0)}
        & {TopicPartition(t, n) for t in member.topics for n in range(world.counts.get(t, 0))}
        for name, member in world.members.items()
    }


def _kept(
    assigned: Mapping[str, Sequence[TopicPartition]], previous: Mapping[str, set[TopicPartition]]
) -> int:
    return sum(len(previous[member] & set(partitions)) for member, partitions in assigned.items())


def _shares(count: int, takers: int) -> Iterator[tuple[int, ...]]:
    """All ways to give a number of partitions to some members."""
    if takers == 1:
        yield (count,)
        return
    for first in range(count + 1):
        for rest in _shares(count - first, takers - 1):
            yield (first, *rest)


def _best(group: Group, previous: Mapping[str, set[TopicPartition]]) -> tuple[int, int]:
    """The lowest sum of squares of loads of all assignments, and the most that is kept with it."""
    members = sorted(group.members)
    most_kept = {(0,) * len(members): 0}  # by the loads
    for topic, count in group.counts.items():
        takers = [place for place, member in enumerate(members) if topic in group.members[member].topics]
        if not takers:
            continue
        owned = [sum(each.topic == topic for each in previous[members[place]]) for place in takers]
        reached: dict[tuple[int, ...], int] = {}
        for shares in _shares(count, len(takers)):
            keeps = sum(min(share, own) for share, own in zip(shares, owned, strict=True))
            for loads, kept in most_kept.items():
                sums = list(loads)
                for place, share in zip(takers, shares, strict=True):
                    sums[place] += share
                reached[tuple(sums)] = max(reached.get(tuple(sums), 0), kept + keeps)
        most_kept = reached
    squares, kept = min((sum(load**2 for load in loads), -kept) for loads, kept in most_kept.items())
    return squares, -kept


@given(_random)
def test_of_all_assignments_it_is_the_most_even_and_then_keeps_the_most(rng):
    world = World("sticky", rng, same_topics=False, max_members=4, max_topics=3, max_partitions=4)
    group = world.live()
    previous = _previous(world)
    assigned = world.assign(group)
    assert check_owners(group, assigned) == wanted(group)
    squares = sum(len(partitions) ** 2 for partitions in assigned.values())
    assert (squares, _kept(assigned, previous)) == _best(group, previous)


@given(_random)
def test_with_equal_subscriptions_members_keep_what_they_can(rng):
    """As many members as there are partitions over may keep one more than the others."""
    world = World("sticky", rng, same_topics=True, max_members=9)
    group = world.live()
    previous = _previous(world)
    low, larger = divmod(len(wanted(group)), len(group.members))
    could_keep_more = sum(len(owned) > low for owned in previous.values())
    most = sum(min(len(owned), low) for owned in previous.values()) + min(larger, could_keep_more)
    assert _kept(world.assign(group), previous) == most


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@given(_random, st.booleans())
def test_where_nothing_changes_nothing_moves(name, rng, same_topics):
    world = World(name, rng, same_topics=same_topics)
    world.live()
    for _ in range(4):
        assigned = world.assign(world.group())
        world.apply(assigned)
    again = world.assign(world.group())
    assert {member: set(each) for member, each in again.items()} == {
        member: set(each) for member, each in assigned.items()
    }


def _subscription(topics: str, *owned: tuple[str, int]) -> Subscription:
    previous = [TopicPartition(topic, number) for topic, number in owned]
    user_data = StickyAssignor().subscription_user_data(topics, previous, 1)
    return Subscription(topics=frozenset(topics), user_data=user_data)


def test_the_member_that_has_one_more_keeps_it():
    members = {"one": _subscription("t", ("t", 0)), "two": _subscription("t", ("t", 1), ("t", 2))}
    assert StickyAssignor().assign({"t": 3}, members) == {"one": [("t", 0)], "two": [("t", 1), ("t", 2)]}


def test_members_exchange_what_they_do_not_own():
    """Moves that only make the loads even would keep three partitions here."""
    members = {
        "one": _subscription("ab", ("a", 0), ("b", 0)),
        "three": _subscription("abc", ("a", 1), ("b", 1)),
        "two": _subscription("b", ("b", 2)),
    }
    group = Group("sticky", {"a": 2, "b": 3, "c": 2}, members)
    previous = {
        "one": {TopicPartition("a", 0), TopicPartition("b", 0)},
        "three": {TopicPartition("a", 1), TopicPartition("b", 1)},
        "two": {TopicPartition("b", 2)},
    }
    assigned = StickyAssignor().assign(group.counts, members)
    assert sorted(len(partitions) for partitions in assigned.values()) == [2, 2, 3]
    assert _kept(assigned, previous) == _best(group, previous)[1] == 4


def _claiming(*partitions: int, generation: int) -> Subscription:
    owned = [TopicPartition("t", number) for number in partitions]
    return Subscription(
        topics=frozenset({"t"}),
        user_data=StickyAssignor().subscription_user_data({"t"}, owned, generation),
    )


def test_the_newest_claim_is_right():
    """A member that missed a round names what others have got since (KIP-341)."""
    members = {
        "late": _claiming(0, 1, 2, generation=4),
        "one": _claiming(0, 1, generation=5),
        "two": _claiming(2, 3, generation=5),
    }
    assigned = StickyAssignor().assign({"t": 6}, members)
    assert {member: {number for _, number in each} for member, each in assigned.items()} == {
        "late": {4, 5},
        "one": {0, 1},
        "two": {2, 3},
    }


def test_partitions_that_are_gone_are_not_kept():
    """The topic was deleted, and created with fewer partitions."""
    members = {"one": _claiming(0, 1, 2, 3, 7, generation=1), "two": _claiming(-1, 4, 5, 6, generation=1)}
    assigned = StickyAssignor().assign({"t": 4}, members)
    assert assigned == {"one": [("t", 0), ("t", 1)], "two": [("t", 2), ("t", 3)]}


def test_user_data_of_version_0_has_no_generation_and_counts_less():
    old = _claiming(0, 1, generation=0)
    assert old.user_data is not None
    members = {
        "old": Subscription(topics=old.topics, user_data=old.user_data[:-4]),
        "new": _claiming(0, 1, generation=1),
    }
    assigned = ASSIGNORS["sticky"].assign({"t": 4}, members)
    assert assigned["new"] == [("t", 0), ("t", 1)]


def test_before_the_first_assignment_there_is_no_user_data():
    assert StickyAssignor().subscription_user_data({"t"}, [], -1) is None
    assert StickyAssignor().subscription_user_data({"t"}, [], 3) == bytes(4) + b"\0\0\0\3"
