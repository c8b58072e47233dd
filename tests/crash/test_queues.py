"""Power cuts at every point of what workers of a queue do."""

from __future__ import annotations

import pytest

from logstore.broker import local
from logstore.broker.codes import ErrorCode
from logstore.broker.share import held
from logstore.broker.share.held import HeldPartition
from logstore.broker.share.states import RecordState
from logstore.broker.share.stored import ShareChange
from logstore.broker.storing import share_groups
from logstore.broker.storing.shares import ShareStorage
from logstore.testing import CrashError, explore
from logstore.topic import Topic
from tests.crash.exploring import explore_many
from tests.crash.queues import QueuesScenario
from tests.rotation import rotating, seed_of_turn


@pytest.mark.parametrize("seed", range(2))
def test_single_cuts(seed):
    assert explore(QueuesScenario(length=6), seed=seed, max_states=100).state_count >= 50


@pytest.mark.parametrize(
    "actions",
    [
        ("append and flush", "take", "accept", "checkpoint", "take", "put off", "checkpoint", "reject"),
        ("append and flush", "take", "accept", "checkpoint", "delete queue", "take", "accept"),
        ("append and flush", "take", "accept", "make topic again", "append", "take", "accept"),
        ("append and flush", "take", "run out", "take", "run out", "take", "release", "run out", "take"),
    ],
    ids=["ends of jobs", "a queue is deleted", "a topic is made again", "delivered too often"],
)
def test_what_is_done(actions):
    assert explore(QueuesScenario(actions=actions), seed=1, max_states=60).state_count >= 50


@pytest.mark.slow
@pytest.mark.parametrize("length", rotating([6, 12], 8, first=2))
def test_chains_of_cuts(length):
    """Other sessions with each commit. 20 s each."""
    first_seed = 110_000 + 100 * seed_of_turn()
    explore_many("crash states of queues", QueuesScenario(length=length), first_seed, 200)


def archived_before_the_dead_letter_is_durable(patch):
    extend = Topic.extend
    patch.setattr(Topic, "extend", lambda self, records, *, flush: extend(self, records))


def a_delivery_is_counted_when_it_is_over(patch):
    stored = held._is_stored
    patch.setattr(held, "_is_stored", lambda span: span.state is not RecordState.ACQUIRED and stored(span))


def states_above_the_end_of_their_log_are_left(patch):
    patch.setattr(local, "set_share_groups_back", lambda directory, ends: None)


def the_start_offset_is_stored_past_what_workers_have(patch):
    change = HeldPartition._change_locked

    def store_the_end(self, plan):
        change(self, plan)
        self._storage.write([(self.key, ShareChange(self._records.end_offset))])

    patch.setattr(HeldPartition, "_change_locked", store_the_end)


def rejected_jobs_are_stored_as_archived_at_once(patch):
    stored_as = {**held._STORED_AS, RecordState.FAILED: RecordState.ARCHIVED}
    patch.setattr(held, "_STORED_AS", stored_as)
    stored = held._is_stored
    patch.setattr(held, "_is_stored", lambda span: span.state is RecordState.FAILED or stored(span))


def a_queue_that_is_deleted_may_come_back(patch):
    write = ShareStorage.write
    patch.setattr(ShareStorage, "write", lambda self, changes, *, flush=False: write(self, changes))


def an_acceptance_is_not_waited_for(patch):
    patch.setattr(share_groups, "_when_durable", lambda directory, numbers, done: done(ErrorCode.NONE))


def a_delay_is_not_stored(patch):
    stored = held._is_stored
    patch.setattr(held, "_is_stored", lambda span: span.state is not RecordState.AVAILABLE and stored(span))


@pytest.mark.parametrize(
    ("plant", "actions", "message"),
    [
        (
            archived_before_the_dead_letter_is_durable,
            ("append and flush", "take", "reject", "flush states"),
            "LOST",
        ),
        (
            a_delivery_is_counted_when_it_is_over,
            ("append and flush", "take", "checkpoint"),
            "NOT COUNTED",
        ),
        (
            states_above_the_end_of_their_log_are_left,
            ("append", "take", "accept", "flush states"),
            "LOST",
        ),
        (
            the_start_offset_is_stored_past_what_workers_have,
            ("append and flush", "take", "take", "flush states"),
            "LOST",
        ),
        (
            rejected_jobs_are_stored_as_archived_at_once,
            ("append and flush", "take", "reject", "take", "reject"),
            "LOST",
        ),
        (
            a_queue_that_is_deleted_may_come_back,
            ("append and flush", "take", "accept", "checkpoint", "delete queue", "take"),
            "LOST",
        ),
        (an_acceptance_is_not_waited_for, ("append and flush", "accept durably"), "DONE, and given again"),
        (a_delay_is_not_stored, ("append and flush", "take", "put off", "checkpoint"), "TOO EARLY"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_planted_bugs_are_found(monkeypatch, plant, actions, message):
    plant(monkeypatch)
    with pytest.raises(CrashError, match=message):
        explore(QueuesScenario(actions=actions), seed=0, max_states=400)
