"""Faults that are put into the rules of replication on purpose. The simulator has to find each."""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

from logstore.replica.rules import electing, following, leading, partition_state, reassigning, replica
from logstore.replica.rules.actions import RaiseHighWatermark, StepDown, TruncateTo
from logstore.testing.simulator import coordinator, node


def _patch(target, name, replacement):
    return mock.patch.object(target, name, replacement)


def acknowledges_before_the_isr_has_it():
    def advance(self, now_ms):
        offset = self.end_offset
        return [RaiseHighWatermark(offset)] if offset > self._log.high_watermark else []

    return [_patch(leading.Leading, "_advance", advance)]


def truncates_to_the_high_watermark():
    """KIP-101: what a follower did before there were leader epochs."""
    begin = replica.Replica._begin_term

    def begin_term(self, state, now_ms):
        actions = begin(self, state, now_ms)
        follows = self.state is replica.ReplicaState.COMPARING
        return [*actions, TruncateTo(self._log.high_watermark)] if follows else actions

    return [
        _patch(replica.Replica, "_begin_term", begin_term),
        _patch(replica, "find_divergence", lambda log, offset, epoch: None),
    ]


def elects_one_that_lost_its_tail():
    """KIP-966."""
    return [_patch(partition_state.Registration, "has_kept", lambda self, member, is_durable: True)]


def writes_after_its_lease():
    return [_patch(node.Node, "_check_lease", lambda self: None)]


def changes_the_isr_without_a_fence():
    return [_patch(coordinator.Coordinator, "is_newest", lambda self, state: True)]


def keeps_a_divergent_tail():
    return [_patch(replica, "find_divergence", lambda log, offset, epoch: None)]


def cuts_where_its_own_epoch_ends():
    """KIP-279: it does not look at what the leader has of that epoch."""

    def plan_cut(log, diverging, leader_start_offset):
        return TruncateTo(log.end_offset_for_epoch(diverging.epoch)[1])

    return [_patch(following, "plan_cut", plan_cut)]


def shrinks_the_isr_before_it_is_stored():
    def maximal(self):
        return {each.node_id for each in (self._proposed or self.state).isr}

    return [_patch(leading.Leading, "_maximal_isr", maximal)]


def moves_the_high_watermark_with_too_few():
    return [_patch(leading.Leading, "has_enough", property(lambda self: True))]


def counts_those_that_are_about_to_join():
    def has_enough(self):
        isr = (self._proposed or self.state).isr
        return len(isr) >= self.state.least(self.config.min_insync_replicas)

    return [_patch(leading.Leading, "has_enough", property(has_enough))]


def leads_in_a_later_life():
    """KIP-903, at the leader: a node takes its earlier life's election for its own."""
    begin = replica.Replica._begin_term

    def begin_term(self, state, now_ms):
        if state.leader is not None and state.leader.node_id == self.member.node_id:
            state = state._replace(leader=self.member)
        return begin(self, state, now_ms)

    return [_patch(replica.Replica, "_begin_term", begin_term)]


def takes_an_early_life_for_the_present_one():
    """KIP-903, in the ISR."""

    def has_kept(self, member, *, is_durable):
        return (
            member.life >= (self.durable_since if is_durable else self.whole_since) or member.life < self.life
        )

    return [_patch(partition_state.Registration, "has_kept", has_kept)]


def arrives_before_those_that_are_new_have_caught_up():
    def arrive(state, living, *, min_isr, is_durable=False):
        there = reassigning.target(state)
        if not reassigning.is_moving(state) or state.leader is None:
            return None
        isr = [living[each].member for each in there if each in living]
        moved = state._replace(isr=tuple({*state.isr, *isr}))
        return electing.give_to(moved, there, living, min_isr=min_isr, is_durable=is_durable)

    return [_patch(node, "arrive", arrive)]


def moves_within_an_epoch():
    """A node that is a replica, none, and one again deletes what it has told of meanwhile."""
    give_to = electing.give_to

    def give(state, replicas, living, **rules):
        given = give_to(state, replicas, living, **rules)
        stays = given is not None and given.leader == state.leader
        return given._replace(leader_epoch=state.leader_epoch) if stays else given

    return [_patch(reassigning, "give_to", give)]


def goes_on_with_what_waits_after_another_has_led():
    """It takes any term of its own for the next one."""
    begin = replica.Replica._begin_term

    def begin_term(self, state, now_ms):
        actions = begin(self, state, now_ms)
        return [each for each in actions if not isinstance(each, StepDown)]

    return [_patch(replica.Replica, "_begin_term", begin_term)]


PLANTED = {
    each.__name__: each
    for each in (
        acknowledges_before_the_isr_has_it,
        truncates_to_the_high_watermark,
        elects_one_that_lost_its_tail,
        writes_after_its_lease,
        changes_the_isr_without_a_fence,
        keeps_a_divergent_tail,
        cuts_where_its_own_epoch_ends,
        shrinks_the_isr_before_it_is_stored,
        moves_the_high_watermark_with_too_few,
        counts_those_that_are_about_to_join,
        leads_in_a_later_life,
        takes_an_early_life_for_the_present_one,
        arrives_before_those_that_are_new_have_caught_up,
        moves_within_an_epoch,
        goes_on_with_what_waits_after_another_has_led,
    )
}


@contextmanager
def planted(name):
    patches = PLANTED[name]()
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
