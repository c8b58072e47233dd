"""Kafka's own Java classes assign the same to the same groups, and write the same metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any, NamedTuple

import pytest

from logstore.clients.assignors import ASSIGNORS, Subscription
from logstore.format.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    by_topic,
    decode_sticky_user_data,
    encode_assignment,
    encode_sticky_user_data,
    ungrouped,
)
from logstore.model import TopicPartition
from tests.clients.assignors.java import Encoded, ask_java
from tests.clients.assignors.world import NAMES, Group, World

pytestmark = pytest.mark.interop

EXOTIC_NAMES = "aZ0-\u00e4\uff5e\U0001f600"
"""Where the order of Java's strings is not Python's."""
COUNT = 200
SETTLED_ROUNDS = 4

Assigned = Mapping[str, set[TopicPartition]]


class _Case(NamedTuple):
    group: Group
    previous: Assigned
    """What each member had, if no other has a newer claim."""


class _Answers(NamedTuple):
    subscriptions: list[Subscription]
    encoded: list[Encoded]
    cases: dict[str, list[tuple[_Case, Assigned | None]]]
    """By assignor, with Kafka's assignment."""


def _case(name: str, rng: Random) -> _Case:
    is_sticky = "sticky" in name
    same_topics = rng.random() < 0.5
    names = NAMES if is_sticky else EXOTIC_NAMES
    world = World(name, rng, same_topics=same_topics, names=names, max_members=rng.choice([3, 7, 12]))
    group = world.live(missing=rng.choice([0, 0.2]))
    if rng.random() < 0.2:
        world.dispute()
        group = world.group()
    claims: dict[TopicPartition, dict[int, set[str]]] = {}
    for member, each in world.members.items():
        for partition in each.partitions:
            claims.setdefault(partition, {}).setdefault(each.generation, set()).add(member)
    previous: dict[str, set[TopicPartition]] = {member: set() for member in world.members}
    for partition, generations in claims.items():
        newest = generations[max(generations)]
        if len(newest) == 1:
            previous[min(newest)].add(partition)
    if name == "cooperative-sticky" and not _is_equal(group):
        group = group._replace(rounds=SETTLED_ROUNDS)  # to compare what comes out in the end
    return _Case(group, previous)


def _some_subscription(rng: Random) -> Subscription:
    topics = rng.sample(["orders", "payments", "b\u00fccher", "x"], rng.randint(0, 4))
    owned = {
        TopicPartition(rng.choice(topics), rng.randint(0, 99)) for _ in range(rng.randint(0, 9)) if topics
    }
    return Subscription(
        topics=frozenset(topics),
        owned=tuple(sorted(owned)),
        generation=rng.randint(-1, 2**31 - 1),
        user_data=rng.choice([None, b"", rng.randbytes(5)]),
        rack=rng.choice([None, "rack-1"]),
    )


@pytest.fixture(scope="module")
def answers() -> _Answers:
    """All questions at once, for one start of Java."""
    rng = Random(20_110_612)
    subscriptions = [_some_subscription(rng) for _ in range(50)]
    cases = [_case(name, rng) for name in ASSIGNORS for _ in range(COUNT)]
    encoded, assigned = ask_java(subscriptions, [case.group for case in cases])
    by_name: dict[str, Any] = {name: [] for name in ASSIGNORS}
    for case, theirs in zip(cases, assigned, strict=True):
        by_name[case.group.assignor].append((case, theirs))
    return _Answers(subscriptions, encoded, by_name)


def _ours(group: Group) -> Assigned:
    members = group.members
    for generation in range(1000, 1000 + group.rounds):
        assigned = ASSIGNORS[group.assignor].assign(group.counts, members)
        members = {
            member: replace(each, owned=tuple(assigned[member]), generation=generation, user_data=None)
            for member, each in members.items()
        }
    return {member: set(partitions) for member, partitions in assigned.items()}


def _is_equal(group: Group) -> bool:
    return len({each.topics for each in group.members.values()}) == 1


def _unevenness(assigned: Assigned) -> int:
    """Kafka's balance score."""
    return sum(abs(len(one) - len(other)) for one, other in combinations(assigned.values(), 2))


def _kept(assigned: Assigned, previous: Assigned) -> int:
    return sum(len(partitions & previous[member]) for member, partitions in assigned.items())


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_range_and_round_robin_are_the_same(answers: _Answers, name: str) -> None:
    for case, theirs in answers.cases[name]:
        assert _ours(case.group) == theirs, case.group


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_sticky_is_the_same_where_subscriptions_are_equal(answers: _Answers, name: str) -> None:
    compared = [(case.group, theirs) for case, theirs in answers.cases[name] if _is_equal(case.group)]
    assert len(compared) > COUNT / 3
    for group, theirs in compared:
        assert _ours(group) == theirs, group


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_sticky_is_as_even_and_keeps_as_much_where_subscriptions_differ(answers: _Answers, name: str) -> None:
    """Or more of either. Kafka's assignor stops where no single partition can be moved to advantage.

    Where a member with an old generation has changed its subscription, Kafka's raises a NullPointerException
    or gives it a topic that it does not subscribe; those are left out.
    """
    compared = failed = 0
    for case, theirs in answers.cases[name]:
        group = case.group
        if _is_equal(group):
            continue
        if theirs is None or any(
            not {each.topic for each in partitions} <= group.members[member].topics
            for member, partitions in theirs.items()
        ):
            failed += 1
            continue
        compared += 1
        ours = _ours(group)
        assert set().union(*ours.values()) == set().union(*theirs.values()), group
        our_score = (_unevenness(ours), -_kept(ours, case.previous))
        assert our_score <= (_unevenness(theirs), -_kept(theirs, case.previous)), group
    assert compared > COUNT / 4
    assert failed < COUNT / 50


def test_metadata_is_the_same(answers: _Answers) -> None:
    for subscription, theirs in zip(answers.subscriptions, answers.encoded, strict=True):
        assigned = ConsumerProtocolAssignment(by_topic(subscription.owned), subscription.user_data)
        for version in range(4):
            assert subscription.encode(version) == theirs.subscriptions[version]
            assert encode_assignment(assigned, version) == theirs.assignments[version]


def test_user_data_is_the_same(answers: _Answers) -> None:
    for subscription, theirs in zip(answers.subscriptions, answers.encoded, strict=True):
        owned, generation = subscription.owned, subscription.generation
        sticky, cooperative = ASSIGNORS["sticky"], ASSIGNORS["cooperative-sticky"]
        before, after = theirs.user_data["cooperative-sticky"]
        assert cooperative.subscription_user_data((), (), -1) == before
        assert cooperative.subscription_user_data((), owned, generation) == after
        before, after = theirs.user_data["sticky"]
        assert sticky.subscription_user_data((), (), -1) == before
        decoded = decode_sticky_user_data(after)
        assert (set(ungrouped(decoded.previous_assignment)), decoded.generation) == (set(owned), generation)
        assert encode_sticky_user_data(ungrouped(decoded.previous_assignment), generation) == after
