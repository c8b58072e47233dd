"""The rules of replication, one by one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.broker.records.diverging import find_divergence
from logstore.broker.requests import DivergingEpoch
from logstore.format.header import NO_EPOCH
from logstore.replica.coordination.layout import decode_state, encode_state
from logstore.replica.coordination.tree import Stored
from logstore.replica.rules.actions import (
    BeginEpoch,
    Fetch,
    FetchAnswer,
    Propose,
    RaiseHighWatermark,
    StartAt,
    StepDown,
    Take,
    TruncateTo,
)
from logstore.replica.rules.electing import Choice, elect, prefer
from logstore.replica.rules.following import plan_cut
from logstore.replica.rules.leading import Leading, ReplicaConfig
from logstore.replica.rules.partition_state import Member, PartitionState, Registration
from logstore.replica.rules.reassigning import arrive, is_moving, origin, reassign, target
from logstore.replica.rules.replica import Replica
from logstore.replica.rules.states import TABLE, Event, ReplicaState, draw, next_state
from logstore.testing.simulator.model_log import Entry, ModelLog
from tests.pages import ROOT

A, B, C = Member(1, 1), Member(2, 2), Member(3, 3)
LED = PartitionState((1, 2, 3), A, 5, (A, B, C), version=7)


def living(*members, whole_since=0, durable_since=0, leaving=()):
    return {
        each.node_id: Registration(*each, whole_since, durable_since, each.node_id in leaving)
        for each in members
    }


def log_of(*epochs):
    """A log with a record of each of these epochs."""
    log = ModelLog()
    log.append_replicated([Entry(epoch, at) for at, epoch in enumerate(epochs)], max(epochs, default=0))
    return log


# Electing


def test_a_leader_that_lives_stays():
    assert elect(LED, living(A, B, C), min_isr=2).state == LED
    found = elect(LED, living(A, B), min_isr=2)
    assert found == (Choice.STAYS, LED._replace(isr=(A, B)))


def test_the_preferred_leader_leads_again_when_it_has_everything():
    led = LED._replace(leader=B)
    found = prefer(led, living(A, B, C), min_isr=2)
    assert found == led._replace(leader=A, leader_epoch=6)
    assert prefer(found, living(A, B, C), min_isr=2) is None  # it leads
    assert prefer(led, living(B, C), min_isr=2) is None  # it is not there
    assert prefer(led, living(A, B, C, leaving=[1]), min_isr=2) is None
    assert prefer(led._replace(isr=(B, C)), living(A, B, C), min_isr=2) is None  # it has not caught up
    lost = {**living(B, C), 1: Registration(1, 9, 9, 0)}
    assert prefer(led, lost, min_isr=2) is None  # it has lost what it had when it was in sync
    assert prefer(led, lost, min_isr=2, is_durable=True).leader == Member(1, 9)
    assert prefer(led._replace(leader=None), living(A, B, C), min_isr=2) is None  # that is an election
    without_c = prefer(led, living(A, B), min_isr=2)
    assert without_c.isr == (A, B)


def test_the_next_in_the_order_of_preference_leads():
    found = elect(LED._replace(replicas=(3, 1, 2)), living(B, C), min_isr=2)
    assert found.choice is Choice.CLEAN
    assert found.state == PartitionState((3, 1, 2), C, 6, (C, B), version=7)


def test_who_is_leaving_leads_only_if_there_is_no_other():
    assert elect(LED, living(A, B, C, leaving=[1]), min_isr=2).state.leader == B
    alone = elect(LED, living(A, leaving=[1]), min_isr=2)
    assert alone == (Choice.STAYS, LED._replace(isr=(A,), eligible=(B, C)))


def test_who_came_back_without_the_end_of_its_log_does_not_lead():
    """KIP-966."""
    back = Member(1, 9)
    found = elect(LED, {**living(B), 1: Registration(1, 9, 9, 0)}, min_isr=2)
    assert found.state.leader == B
    assert back not in found.state.isr
    whole = elect(LED, {1: Registration(1, 9, 0, 0)}, min_isr=2)
    assert whole.state.leader == back, "it was stopped cleanly"
    durable = elect(LED, {1: Registration(1, 9, 9, 0)}, min_isr=2, is_durable=True)
    assert durable.state.leader == back, "it has told of nothing that it had not flushed"


def test_who_left_a_small_isr_may_lead_still():
    """KIP-966: eligible leader replicas."""
    small = elect(LED, living(A), min_isr=2).state
    assert small == LED._replace(isr=(A,), eligible=(B, C))
    found = elect(small, living(C), min_isr=2)
    assert found.choice is Choice.CLEAN
    assert (found.state.leader, found.state.isr, found.state.eligible) == (C, (C,), (A, B))


def test_nobody_leads_until_one_comes_back():
    nobody = elect(LED, {}, min_isr=1)
    assert nobody.choice is Choice.NOBODY
    assert (nobody.state.leader, nobody.state.leader_epoch, nobody.state.isr) == (None, 6, (A, B, C))
    assert elect(nobody.state, {}, min_isr=1).state == nobody.state


def test_all_came_back_after_a_power_cut():
    alone = PartitionState((1,), A, 5, (A,))
    found = elect(alone, {1: Registration(1, 4, 4, 0)}, min_isr=1)
    assert found.choice is Choice.LAST
    assert found.state.leader == Member(1, 4)
    waits = elect(LED, {1: Registration(1, 4, 4, 0)}, min_isr=2)
    assert waits.choice is Choice.NOBODY, "the two others may have everything"


def test_a_damaged_disk_is_elected_only_where_nobody_can_have_more():
    """Whatever the topic's ``is_durable`` says: what it had flushed may be gone, too."""
    alone = PartitionState((1,), A, 5, (A,))
    damaged = {1: Registration(1, 4, 4, 4)}
    assert elect(alone, damaged, min_isr=1).state.leader == Member(1, 4)
    for is_durable in (True, False):
        waits = elect(LED, damaged, min_isr=2, is_durable=is_durable)
        assert waits.choice is Choice.NOBODY
        found = elect(LED, {**damaged, **living(B)}, min_isr=2, is_durable=is_durable)
        assert (found.choice, found.state.leader) == (Choice.CLEAN, B)
    left_alone = LED._replace(isr=(A,))
    assert elect(left_alone, {**damaged, **living(B)}, min_isr=1).choice is Choice.NOBODY
    crashed = {node_id: Registration(node_id, 4, 4, 0) for node_id in (2, 3)}
    found = elect(LED, {**damaged, **crashed}, min_isr=2)
    assert (found.choice, found.state.leader) == (Choice.LAST, Member(2, 4))


def test_another_disk_is_never_elected_for_what_was_on_the_first():
    alone = PartitionState((1,), A, 5, (A,))
    empty = {1: Registration(1, 4, 4, 4, disk_since=4)}
    assert elect(alone, empty, min_isr=1).choice is Choice.NOBODY
    asked = elect(alone, empty, min_isr=1, allows_unclean=True)
    assert (asked.choice, asked.state.leader) == (Choice.UNCLEAN, Member(1, 4))


_members = st.lists(st.sampled_from([A, B, C]), unique=True)
_life = st.integers(0, 9)
_registrations = st.builds(
    lambda node_id, life, whole_since, durable_since, disk_since, is_leaving: Registration(
        node_id,
        life,
        min(life, whole_since),
        min(life, durable_since),
        is_leaving,
        disk_since=min(life, disk_since),
    ),
    st.sampled_from([1, 2, 3]),
    _life,
    _life,
    _life,
    _life,
    st.booleans(),
)


@given(_members, _members, st.lists(_registrations), st.integers(1, 3))
def test_electing_settles(isr, eligible, registrations, min_isr):
    """What was decided once is not decided otherwise while nobody comes or goes."""
    state = PartitionState((1, 2, 3), isr[0] if isr else None, 5, tuple(isr), tuple(eligible))
    nodes = {each.node_id: each for each in registrations}
    found = elect(state, nodes, min_isr=min_isr, allows_unclean=True)
    assert found.state.leader_epoch in (5, 6)
    if found.state.leader is not None:
        assert found.state.leader in found.state.isr or found.choice is Choice.STAYS
    assert elect(found.state, nodes, min_isr=min_isr, allows_unclean=True).state == found.state


# Moving


D = Member(4, 4)
ALL = living(A, B, C, D)


def test_a_partition_moves_step_by_step():
    moving = reassign(LED, (4, 2, 1), ALL, min_isr=2)
    assert (moving.replicas, moving.adding, moving.removing) == ((4, 2, 1, 3), (4,), (3,))
    assert (origin(moving), target(moving)) == ((2, 1, 3), (4, 2, 1))
    assert (moving.leader, moving.leader_epoch, set(moving.isr)) == (A, 5, {A, B, C})
    assert arrive(moving, ALL, min_isr=2) is None, "the new one has not caught up"
    joined = moving.with_isr([A, B, C, D], 2)
    arrived = arrive(joined, ALL, min_isr=2)
    assert (arrived.replicas, arrived.adding, arrived.removing) == ((4, 2, 1), (), ())
    assert (arrived.leader, arrived.leader_epoch, arrived.isr) == (A, 6, (D, B, A)), "in another epoch"
    assert arrive(arrived, ALL, min_isr=2) is None, "it has arrived"
    assert prefer(arrived, ALL, min_isr=2).leader == D


def test_what_is_stored_of_a_partition_that_moves():
    moving = reassign(LED, (4, 2, 1), ALL, min_isr=2)._replace(eligible=(D,), version=3)
    assert decode_state("/s", Stored(encode_state(moving, 1), 3)) == moving
    earlier = json.loads(encode_state(LED, 1))
    del earlier["logstore"]["adding"], earlier["logstore"]["removing"]
    assert decode_state("/s", Stored(json.dumps(earlier), 7)) == LED


def test_a_leader_that_is_to_go_hands_over_to_one_that_has_everything():
    moving = reassign(LED, (4, 2), ALL, min_isr=1).with_isr([A, B, D], 1)
    arrived = arrive(moving, ALL, min_isr=1)
    assert (arrived.leader, arrived.leader_epoch, arrived.isr) == (D, 6, (D, B))
    others = arrive(moving, living(A, B, D, leaving=[4]), min_isr=1)
    assert others.leader == B
    assert arrive(moving, living(A, B), min_isr=1) is None


def test_fewer_replicas_are_enough_of_those_that_are_in_sync():
    moving = reassign(LED._replace(isr=(A,), eligible=(B,)), (1, 2), ALL, min_isr=2)
    assert moving.eligible == (B,)
    assert arrive(moving, ALL, min_isr=2) is None, "one of two would be too few"
    one = reassign(LED, (1,), ALL, min_isr=2)
    assert arrive(one, ALL, min_isr=2).isr == (A,)


def test_more_replicas_do_not_stop_what_went_on():
    alone = PartitionState((1,), A, 5, (A,))
    moving = reassign(alone, (1, 2, 3), ALL, min_isr=2)
    assert moving.least(2) == 1, "one replica was enough before"
    assert arrive(moving.with_isr([A, B], 2), ALL, min_isr=2) is None
    arrived = arrive(moving.with_isr([A, B, C], 2), ALL, min_isr=2)
    assert (arrived.least(2), arrived.leader_epoch) == (2, 5)


def test_a_move_is_called_off():
    moving = reassign(LED, (4,), ALL, min_isr=2).with_isr([A, B, C, D], 2)
    back = reassign(moving, origin(moving), ALL, min_isr=2)
    assert back == LED._replace(leader_epoch=6, isr=(A, B, C))
    led_by_new = moving._replace(leader=D)
    assert reassign(led_by_new, origin(led_by_new), ALL, min_isr=2).leader == A
    only_new = led_by_new._replace(isr=(D,))
    assert reassign(only_new, origin(only_new), ALL, min_isr=2) is None, "nobody else has everything"


def test_who_is_no_replica_any_more_is_not_eligible():
    """It deletes its log, and may be a replica again later."""
    moving = reassign(LED, (4, 1), ALL, min_isr=3)._replace(isr=(D, A), eligible=(B, C))
    back = reassign(moving, origin(moving), ALL, min_isr=3)
    assert (back.isr, back.eligible) == ((A,), (B, C))


def test_a_partition_on_its_way_is_sent_elsewhere():
    moving = reassign(LED, (4,), ALL, min_isr=2)
    assert reassign(moving, (2, 3, 4), ALL, min_isr=2).adding == (4,)
    other = reassign(moving, (2, 1, 3), ALL, min_isr=2)
    assert (other.replicas, other.adding, other.removing, other.leader_epoch) == ((2, 1, 3), (), (), 6)


def full_of(state, nodes, min_isr):
    """All replicas are in sync."""
    return state.with_isr([nodes[each] for each in state.replicas], min_isr)


_nodes = st.lists(st.sampled_from([1, 2, 3, 4]), unique=True, min_size=1).map(tuple)


@given(_nodes, _nodes, st.data(), st.integers(1, 3))
def test_a_move_ends_and_is_settled(replicas, wanted, data, min_isr):
    """Whoever is in sync meanwhile: a partition that all can join arrives where it was sent."""
    nodes = {each.node_id: each for each in (A, B, C, D)}
    isr = data.draw(st.lists(st.sampled_from(replicas), unique=True, min_size=1))
    members = [nodes[each] for each in isr]
    state = PartitionState(replicas, members[0], 5, ()).with_isr(members, min_isr)
    moving = reassign(state, wanted, ALL, min_isr=min_isr)
    assert set(moving.isr) == set(members)
    assert elect(moving, ALL, min_isr=min_isr).state == moving
    early = arrive(moving, ALL, min_isr=min_isr)
    assert early is None or set(moving.adding) <= {each.node_id for each in moving.isr}
    full = full_of(moving, nodes, min_isr)
    arrived = arrive(full, ALL, min_isr=min_isr) or full
    assert arrived.replicas == wanted
    assert not is_moving(arrived)
    assert arrived.leader in arrived.isr
    lost = set(replicas) - set(wanted)
    assert arrived.leader_epoch == 5 + bool(lost)
    assert elect(arrived, ALL, min_isr=min_isr).state == arrived


# Following


_terms = st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(0, 3), st.integers(0, 4)), max_size=8)


def common_end(one, other):
    """Up to where two logs are the same."""
    pairs = zip(one.entries, other.entries, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one.entries), len(other.entries)))


@given(_terms, st.sampled_from([0, 1]))
def test_two_logs_meet(terms, last):
    """However the epochs lie: after some cuts the follower's log is a beginning of the leader's, and no more
    than what differs was cut."""
    logs = [ModelLog(), ModelLog()]
    for epoch, (leader, appended, copied) in enumerate(terms):
        logs[leader].begin_epoch(epoch)
        for number in range(appended):
            logs[leader].append(100 * epoch + number)
        if copied:  # some of it; without, the other node was away
            other, end = logs[1 - leader], common_end(*logs)
            other.truncate_to(end)
            other.append_replicated(logs[leader].entries[end : end + copied], epoch)
    leader, own = logs[last], logs[1 - last]
    leader.begin_epoch(len(terms))
    common = common_end(leader, own)
    while own.entries and (found := find_divergence(leader, own.log_end_offset, own.last_epoch())):
        action = plan_cut(own, found, 0)
        assert action.offset < own.log_end_offset or own.last_epoch() > found.epoch
        own.truncate_to(action.offset)
    assert own.entries == leader.entries[: len(own.entries)]
    assert len(own.entries) == common


def test_what_a_leader_says_of_epochs():
    log = log_of(1, 1, 3, 3, 3)
    assert find_divergence(log, 5, 3) is None
    assert find_divergence(log, 6, 3) == DivergingEpoch(3, 5)
    assert find_divergence(log, 4, 2) == DivergingEpoch(1, 2)
    assert find_divergence(log, 1, 0) == DivergingEpoch(0, 0)
    assert find_divergence(ModelLog(), 1, 0) == DivergingEpoch(-1, -1)
    assert plan_cut(log_of(0), DivergingEpoch(-1, -1), 40) == StartAt(40)


# A replica


def replica_of(log=None, **settings):
    return Replica(A, ModelLog() if log is None else log, ReplicaConfig(1_000, **settings))


def test_a_leader_counts_its_followers():
    log = log_of(4, 4)
    replica = replica_of(log, min_insync_replicas=2)
    assert replica.on_state(LED, 0) == [BeginEpoch(5)]
    assert replica.on_growth(0) == []
    assert replica.on_fetch(B, 2, 4, 0).actions == []
    assert replica.on_fetch(C, 1, 4, 0).actions == [RaiseHighWatermark(1)]
    assert replica.on_fetch(C, 2, 4, 0).actions == [RaiseHighWatermark(2)]


def test_a_late_follower_leaves_and_comes_back():
    log = log_of(4, 4)
    replica = replica_of(log, min_insync_replicas=2)
    replica.on_state(LED, 0)
    replica.on_fetch(B, 2, 4, 1_100)
    (shrink,) = replica.on_tick(1_200)
    assert shrink == Propose(LED._replace(isr=(A, B)))
    assert log.high_watermark == 0, "C is in the ISR until it has left it"
    smaller = shrink.state._replace(version=8)
    assert replica.on_state(smaller, 1_300) == [RaiseHighWatermark(2)]
    log.raise_high_watermark(2)
    assert replica.on_fetch(C, 1, 4, 1_400).actions == []
    (join,) = replica.on_fetch(C, 2, 4, 1_450).actions
    assert join == Propose(LED._replace(version=8))


def grown_at_b_alone(state):
    """A leader whose last record is at ``B``, and not at ``C``, which has just asked."""
    log = log_of(4, 4)
    replica = replica_of(log, min_insync_replicas=2)
    replica.on_state(state, 0)
    for follower in (B, C):
        replica.on_fetch(follower, 2, 4, 0)
    log.raise_high_watermark(2)
    log.append_replicated([Entry(5, 2)], 5)
    assert replica.on_fetch(B, 3, 5, 10).actions == []
    return replica


def test_nobody_waits_for_a_follower_that_the_controller_has_taken_out():
    """Not even for as long as it would count as caught up."""
    replica = grown_at_b_alone(LED)
    assert replica.on_state(LED._replace(isr=(A, B), version=8), 20) == [RaiseHighWatermark(3)]


def test_nobody_waits_for_a_node_that_is_gone_and_was_about_to_join():
    replica = grown_at_b_alone(LED._replace(isr=(A, B)))
    assert replica.on_state(LED._replace(isr=(A, B), version=8), 20) == []  # its proposal came too late
    assert replica.on_gone([3], 30) == [RaiseHighWatermark(3)]
    assert replica.on_gone([2], 40) == [], "B is in the ISR until it is taken out"


def test_below_min_insync_replicas_the_high_watermark_stands_still_until_the_isr_is_stored():
    """Who is about to join does not count here: the eligible ones lead if it is never stored."""
    log = log_of(4, 4)
    replica = replica_of(log, min_insync_replicas=2)
    small = LED._replace(isr=(A,), eligible=(B,))
    replica.on_state(small, 0)
    assert not replica.leading.has_enough
    (join,) = replica.on_fetch(C, 2, 4, 0).actions
    assert join == Propose(LED._replace(isr=(A, C), eligible=()))
    assert replica.on_growth(0) == []
    assert replica.on_state(join.state._replace(version=8), 0) == [RaiseHighWatermark(2)]


def test_a_proposal_of_which_nothing_is_heard_is_made_again():
    replica = replica_of(log_of(4), min_insync_replicas=2)
    replica.on_state(LED, 0)
    (first,) = replica.on_tick(1_200)
    assert replica.on_tick(1_300) == []
    assert replica.on_tick(1_900) == [first]
    newer = LED._replace(isr=(A,), eligible=(B, C), version=8)  # the controller was faster
    assert replica.on_state(newer, 2_000) == []
    assert replica.on_tick(2_500) == [], "the proposal is settled"


def test_what_is_durable_grows_by_itself():
    replica = replica_of(log_of(4, 4), is_durable=True)
    replica.on_state(LED, 0)
    assert replica.leading.goes_by_growth
    replica = replica_of(log_of(4, 4))
    replica.on_state(LED, 0)
    assert not replica.leading.goes_by_growth
    replica.on_state(LED._replace(isr=(A,), version=8), 0)
    assert replica.leading.goes_by_growth


class Slow(Leading):
    """Which weighs each fetch anew, also one that says the same as before."""

    def on_same_fetch(self, *_):
        return False


def lives(leading_class, events, min_isr):
    """A leader's answers to all that happens."""
    log = log_of(4)
    replica = replica_of(log, min_insync_replicas=min_isr)
    replica.on_state(LED, 0)
    leading = replica.leading = leading_class(A.node_id, LED, log, replica.config, 0)
    now_ms, version, offsets, heard = 0, LED.version, {2: 0, 3: 0}, []

    def store(state):
        nonlocal version
        version += 1
        return replica.on_state(state._replace(version=version), now_ms)

    for event, follower, is_heard in events:
        now_ms += 300
        actions = []
        if event in ("asks again", "has all"):
            if event == "has all":
                offsets[follower.node_id] = log.log_end_offset
            offset = offsets[follower.node_id]
            epoch = log.entries[offset - 1].epoch if offset else NO_EPOCH
            actions = replica.on_fetch(follower, offset, epoch, now_ms).actions
        elif event == "grows":
            before = replica.on_growth(now_ms)
            log.append_replicated([Entry(5, 0)], 5)
            actions = replica.on_growth(now_ms)
            assert replica.leading.goes_by_growth or actions == before, "a node looks at growth only then"
        elif event == "tick":
            actions = replica.on_tick(now_ms)
        elif event == "gone":
            actions = replica.on_gone([follower.node_id], now_ms)
        elif event == "shrunk":
            actions = store(LED._replace(isr=(A, follower) if is_heard else (A,)))
        heard.append(actions)
        for action in actions if is_heard else ():  # or it is lost on its way, for now
            if isinstance(action, RaiseHighWatermark):
                log.raise_high_watermark(action.offset)
            elif isinstance(action, Propose):
                heard.append(store(action.state))
    return heard, leading


EVENTS = st.tuples(
    st.sampled_from(["asks again", "has all", "asks again", "has all", "grows", "tick", "gone", "shrunk"]),
    st.sampled_from([B, C, C, B._replace(life=8)]),
    st.sampled_from([True, True, False]),
)


@settings(max_examples=500)
@given(st.lists(EVENTS, min_size=10, max_size=60), st.integers(1, 3))
def test_a_fetch_that_says_the_same_again_has_the_same_answer(events, min_isr):
    """The short way of the many partitions that rest leaves out nothing. Costs a second."""
    assert lives(Leading, events, min_isr)[0] == lives(Slow, events, min_isr)[0]


def test_a_partition_that_rests_goes_the_short_way():
    resting = [("has all", B, True), ("has all", C, True)] * 2
    _, leading = lives(Leading, resting, 2)
    assert leading.on_same_fetch(B, 1, 4, 900)
    assert not leading.on_same_fetch(B, 0, NO_EPOCH, 900), "it has lost something"
    assert not leading.on_same_fetch(B._replace(life=8), 1, 4, 900), "in another life"
    leading.on_gone([3], 1_000)
    assert not leading.on_same_fetch(C, 1, 4, 1_100), "its node was gone"


def test_a_node_does_not_lead_by_what_it_was_elected_for_in_an_earlier_life():
    replica = Replica(Member(1, 9), ModelLog(), ReplicaConfig())
    assert replica.on_state(LED, 0) == []
    assert replica.state is ReplicaState.IDLE


def test_a_lease_that_ended():
    replica = replica_of()
    replica.on_state(LED, 0)
    assert replica.on_lease_ended() == [StepDown()]
    assert not replica.leads
    assert replica.on_state(LED._replace(version=6), 0) == [], "an old word"
    assert replica.on_state(LED, 0) == [BeginEpoch(5)], "it is told again, and leads still"
    assert replica.on_state(LED._replace(leader=B, leader_epoch=6, version=8), 0) == [StepDown()]
    assert replica.on_lease_ended() == []


def test_a_follower_asks_and_cuts_and_appends():
    log = log_of(2, 2, 4)
    replica = replica_of(log)
    replica.on_state(LED._replace(leader=B), 0)
    (fetch,) = replica.on_tick(0)
    assert fetch == Fetch(2, 3, 4, 5)
    assert replica.on_tick(0) == [], "one at a time"
    assert replica.on_answer(fetch, FetchAnswer(5, 2, 0, DivergingEpoch(3, 3))) == [TruncateTo(2)]
    assert replica.state is ReplicaState.COMPARING
    log.truncate_to(2)
    (fetch,) = replica.on_tick(0)
    assert fetch == Fetch(2, 2, 2, 5)
    answer = FetchAnswer(5, 2, 0, has_batches=True)
    assert replica.on_answer(fetch, answer) == [Take(5), RaiseHighWatermark(2)]
    assert replica.state is ReplicaState.FOLLOWING
    assert replica.on_answer(fetch, answer) == [], "it was answered before"


def test_answers_that_come_too_late():
    replica = replica_of(log_of(2))
    replica.on_state(LED._replace(leader=B), 0)
    (fetch,) = replica.on_tick(0)
    replica.on_state(LED._replace(leader=C, leader_epoch=6, version=8), 0)
    assert replica.on_answer(fetch, FetchAnswer(5, 1, 0, has_batches=True)) == []
    (fetch,) = replica.on_tick(0)
    assert fetch.leader_id == 3
    assert replica.on_answer(fetch, FetchAnswer(5, 1, 0, has_batches=True)) == []


def test_durable_replicas_flush_before_they_tell():
    log = log_of(2)
    replica = replica_of(log, is_durable=True)
    replica.on_state(LED._replace(leader=B), 0)
    with pytest.raises(RuntimeError, match="durable up to 0, and ends at 1"):
        replica.on_tick(0)
    log.flush()
    assert replica.on_tick(0)


# The table


def test_every_state_can_be_reached_and_left():
    reached = {after for row in TABLE.values() for after in row.values()}
    assert reached == set(ReplicaState) == set(TABLE)
    assert all(set(row.values()) - {state} for state, row in TABLE.items())
    assert {event for row in TABLE.values() for event in row} == set(Event)
    assert draw().count("-->") > len(TABLE)


@pytest.mark.parametrize("state", ReplicaState)
@pytest.mark.parametrize("event", Event)
def test_what_is_not_in_the_table_cannot_happen(state, event):
    if event in TABLE[state]:
        assert next_state(state, event) is TABLE[state][event]
    else:
        with pytest.raises(RuntimeError, match=f"in state {state.value} meets {event.name}"):
            next_state(state, event)


def test_the_page_shows_the_table():
    assert f"<!-- states.draw() -->\n```mermaid\n{draw()}```\n" in (ROOT / "docs/replication.md").read_text()
