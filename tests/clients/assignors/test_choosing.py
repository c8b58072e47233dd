"""Which assignors a consumer offers, and the rebalance protocol that follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.clients.assignors import (
    ASSIGNORS,
    RebalanceProtocol,
    StickyAssignor,
    Subscription,
    choose_assignors,
    common_protocol,
)
from logstore.errors import CorruptionError, InvalidConfigError
from logstore.model import TopicPartition


class FirstTakesAll:
    """An assignor that somebody wrote."""

    name = "first-takes-all"
    protocols = (RebalanceProtocol.COOPERATIVE,)

    def subscription_user_data(self, topics, owned, generation):
        return None

    def assign(self, partition_counts, members):
        everything = [TopicPartition(t, n) for t, count in partition_counts.items() for n in range(count)]
        return {member: everything if member == min(members) else [] for member in members}


def test_names_are_kafkas():
    assert {name: each.name for name, each in ASSIGNORS.items()} == {
        name: name for name in ("range", "roundrobin", "sticky", "cooperative-sticky")
    }


def test_assignors_are_chosen_by_name_or_brought_along():
    own = FirstTakesAll()
    assert choose_assignors(["cooperative-sticky", own]) == (ASSIGNORS["cooperative-sticky"], own)
    assert choose_assignors([own])[0].assign({"t": 1}, {"b": None, "a": None}) == {"a": [("t", 0)], "b": []}


@pytest.mark.parametrize(
    ("choice", "refusal"),
    [
        (["rangy"], "there is no assignor 'rangy'; there are range, roundrobin, sticky, cooperative-sticky"),
        (["sticky", StickyAssignor()], "two assignors with the name 'sticky'"),
        ([], "needs at least one assignor"),
        (["range", FirstTakesAll()], "range, first-takes-all have no rebalance protocol in common"),
    ],
)
def test_a_choice_that_cannot_work_is_refused(choice, refusal):
    with pytest.raises(InvalidConfigError, match=refusal):
        choose_assignors(choice)


def test_the_newest_protocol_that_all_support():
    cooperative, eager = ASSIGNORS["cooperative-sticky"], ASSIGNORS["range"]
    assert common_protocol([cooperative]) is RebalanceProtocol.COOPERATIVE
    assert common_protocol([cooperative, eager]) is RebalanceProtocol.EAGER  # while a group changes over


_topics = st.sampled_from(["a", "b", "c"])


@given(
    st.builds(
        Subscription,
        topics=st.frozensets(_topics),
        owned=st.sets(st.builds(TopicPartition, _topics, st.integers(0, 9))).map(lambda s: tuple(sorted(s))),
        generation=st.integers(-1, 2**31 - 1),
        user_data=st.none() | st.binary(max_size=9),
        instance_id=st.none() | st.text("ab", min_size=1),
        rack=st.none() | st.text("ab", min_size=1),
    )
)
def test_a_subscription_comes_back(subscription):
    assert Subscription.decode(subscription.encode(), instance_id=subscription.instance_id) == subscription


def test_an_empty_rack_is_none_and_a_negative_generation_is_none():
    sent = Subscription(topics=frozenset({"t"}), generation=-7, rack="")
    assert Subscription.decode(sent.encode()) == Subscription(topics=frozenset({"t"}))
    with pytest.raises(CorruptionError, match="ConsumerProtocolSubscription"):
        Subscription.decode(sent.encode()[:-3])
