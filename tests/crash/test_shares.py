"""Power cuts at every point of writes to ``__share_group_state``, and of deletions of what is redundant."""

from __future__ import annotations

import pytest

from logstore.broker.storing import shares as share_storage
from logstore.broker.storing.share_table import ShareTable
from logstore.broker.storing.shares import StatePartition
from logstore.testing import CrashError, explore
from tests.crash.exploring import explore_many
from tests.crash.shares import Durable, SharesScenario, SharesSession
from tests.rotation import rotating, seed_of_turn

WRITES = ("write", "write and flush", "write", "write and flush", "write", "write")


@pytest.fixture(autouse=True)
def _tidy_often(monkeypatch):
    monkeypatch.setattr(share_storage, "_TIDY_EVERY", 4)
    monkeypatch.setattr(share_storage, "_TIDY_EVERY_STATES", 2)


@pytest.fixture
def deleted(monkeypatch):
    """The offsets below which something was deleted."""
    found = []
    delete = StatePartition._delete_soon

    def note(self, log, below):
        found.append(below)
        delete(self, log, below)

    monkeypatch.setattr(StatePartition, "_delete_soon", note)
    return found


@pytest.mark.parametrize("seed", range(2))
def test_single_cuts(seed, deleted):
    assert explore(SharesScenario(actions=WRITES), seed=seed, max_states=150).state_count >= 50
    assert deleted


@pytest.mark.slow
@pytest.mark.parametrize("length", rotating([6, 10], 8))
def test_chains_of_cuts(length):
    """Other sessions with each commit. Takes 10 s."""
    first_seed = 90_000 + 100 * seed_of_turn()
    explore_many("crash states of share groups", SharesScenario(length=length), first_seed, 200)


def a_promise_is_not_kept(patch):
    patch.setattr(SharesSession, "_say_durable", lambda self, flush: self.say(Durable()))


def a_write_is_several_batches(patch):
    write = StatePartition.write

    def one_by_one(self, changes):
        for change in changes:
            log = write(self, [change])
        return log

    patch.setattr(StatePartition, "write", one_by_one)


def what_is_redundant_is_deleted_before_its_successor_is_durable(patch):
    tidy = StatePartition._tidy_locked

    def at_once(self, log, now_ms):
        below = tidy(self, log, now_ms)
        if self._redundant is not None:
            below, self._redundant = self._redundant[0], None
        return below

    patch.setattr(StatePartition, "_tidy_locked", at_once)


def the_last_snapshot_is_deleted_too(patch):
    lowest = ShareTable.lowest_snapshot_offset
    patch.setattr(ShareTable, "lowest_snapshot_offset", lambda self: (lowest(self) or 0) + 1)


@pytest.mark.parametrize(
    "plant",
    [
        a_promise_is_not_kept,
        a_write_is_several_batches,
        what_is_redundant_is_deleted_before_its_successor_is_durable,
        the_last_snapshot_is_deleted_too,
    ],
)
def test_planted_bugs_are_found(monkeypatch, plant):
    plant(monkeypatch)
    with pytest.raises(CrashError):
        explore_some()


def explore_some():
    for seed in range(6):
        explore(SharesScenario(actions=WRITES), seed=seed, max_states=200)
