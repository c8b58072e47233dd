"""The server's assignors against a plain model of their rules: all is assigned once, to those who subscribe.
``uniform`` is even within one and keeps what it can; ``range`` gives neighbours, and divides alike topics
alike."""

from __future__ import annotations

import uuid
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from logstore.broker.consumer_groups.group import Group
from logstore.broker.consumer_groups.member import Member
from logstore.broker.consumer_groups.requests import TopicIdPartition
from logstore.broker.consumer_groups.targets import assign
from tests.broker.consumer_groups.stage import Topic

NAMES = ["a", "b", "c", "d"]
counts = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 7), min_size=1)
subscriptions = st.frozensets(st.sampled_from(NAMES), min_size=1)
member_ids = st.sampled_from([f"m{number}" for number in range(6)])


def topics_of(counts):
    return {name: Topic(uuid.UUID(int=NAMES.index(name) + 1), count) for name, count in counts.items()}


def group_of(members, assignor, instances=()):
    group = Group("g")
    for member_id, topics in members.items():
        instance_id = f"i{member_id}" if member_id in instances else None
        group.put(Member(member_id, instance_id, topics=topics, assignor=assignor))
    return group


def partitions(topics, names):
    return {
        TopicIdPartition(topics[name].topic_id, number)
        for name in names
        if name in topics
        for number in range(topics[name].partition_count)
    }


def check_all_are_assigned(group, topics):
    given_out = Counter(each for target in group.targets.values() for each in target)
    wanted = partitions(topics, group.subscribed_topics())
    assert given_out == Counter(wanted)
    for member in group.members.values():
        assert group.target_of(member.member_id) <= partitions(topics, member.topics)


@given(counts, st.dictionaries(member_ids, subscriptions, min_size=1), st.sampled_from(["uniform", "range"]))
def test_each_partition_has_one_owner_that_wants_it(counts, members, assignor):
    group, topics = group_of(members, assignor), topics_of(counts)
    assign(group, topics, 7)
    check_all_are_assigned(group, topics)
    assert (group.assignment_epoch, group.assigned_at_ms) == (group.epoch, 7)


@given(
    counts,
    counts,
    subscriptions,
    st.frozensets(member_ids, min_size=1),
    st.frozensets(member_ids, min_size=1),
)
def test_uniform_is_even_and_keeps_what_it_can(counts, later, topics, members, members_later):
    """Where all subscribe to the same: each keeps all that it had and may have, up to its share."""
    group = group_of(dict.fromkeys(members, topics), "uniform")
    assign(group, topics_of(counts), 0)
    before = dict(group.targets)
    for gone in members - members_later:
        group.remove(gone)
    for new in members_later - members:
        group.put(Member(new, topics=topics, assignor="uniform"))
    assign(group, topics_of(later), 0)
    check_all_are_assigned(group, topics_of(later))
    sizes = [len(group.target_of(each)) for each in group.members]
    assert max(sizes) - min(sizes) <= 1
    there = partitions(topics_of(later), topics)
    for member_id in members & members_later:
        could_keep = before.get(member_id, frozenset()) & there
        kept = could_keep & group.target_of(member_id)
        assert len(kept) >= min(len(could_keep), min(sizes))
    kept_count = sum(len(before.get(each, frozenset()) & group.target_of(each)) for each in group.members)
    assert kept_count == most_kept(before, group, there)


def most_kept(before, group, there):
    """How many can stay: each member its share, and so many members one more as there are over."""
    low, larger = divmod(len(there), len(group.members))
    had = sorted((len(before.get(each, frozenset()) & there) for each in group.members), reverse=True)
    return sum(min(count, low + (place < larger)) for place, count in enumerate(had))


@given(counts, st.dictionaries(member_ids, subscriptions, min_size=1), st.frozensets(member_ids))
def test_range_gives_neighbours(counts, members, instances):
    group, topics = group_of(members, "range", instances), topics_of(counts)
    assign(group, topics, 0)
    ordered = sorted(members, key=lambda each: (each not in instances, each))
    for name in set(counts) & group.subscribed_topics():
        takers = [each for each in ordered if name in members[each]]
        parts = [
            sorted(p.partition for p in group.target_of(each) if p.topic_id == topics[name].topic_id)
            for each in takers
        ]
        assert [number for part in parts for number in part] == list(range(counts[name]))
        sizes = list(map(len, parts))
        assert sizes == sorted(sizes, reverse=True)
        assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 9), st.frozensets(member_ids, min_size=1))
def test_range_divides_alike_topics_alike(count, members):
    """So that records of one key can be joined."""
    group = group_of(dict.fromkeys(members, frozenset(NAMES)), "range")
    assign(group, topics_of(dict.fromkeys(NAMES, count)), 0)
    for target in group.targets.values():
        by_topic = {}
        for topic_id, number in target:
            by_topic.setdefault(topic_id, set()).add(number)
        assert len({frozenset(numbers) for numbers in by_topic.values()}) <= 1
