"""Power cuts at every point of commits, and of compactions of ``__consumer_offsets``."""

from __future__ import annotations

import pytest

from logstore.testing import CrashError, explore
from tests.crash.exploring import explore_many
from tests.crash.offsets import Durable, OffsetsScenario, OffsetsSession
from tests.rotation import rotating, seed_of_turn


@pytest.mark.parametrize("seed", range(2))
def test_single_cuts(seed):
    assert explore(OffsetsScenario(), seed=seed, max_states=200).state_count >= 50


def test_compaction_of_what_was_committed():
    actions = ("commit", "commit", "commit", "delete", "commit", "compact", "wait", "compact")
    assert explore(OffsetsScenario(actions=actions), seed=3, max_states=300).state_count >= 50


@pytest.mark.slow
@pytest.mark.parametrize("length", rotating([6, 10], 8, first=4))
def test_chains_of_cuts(length):
    """Other sessions with each commit."""
    first_seed = 50_000 + 100 * seed_of_turn()
    explore_many("crash states of committed offsets", OffsetsScenario(length=length), first_seed, 500)


def test_a_promise_that_is_not_kept_is_found(monkeypatch):
    monkeypatch.setattr(OffsetsSession, "_say_durable", lambda self, flush: self.say(Durable()))
    with pytest.raises(CrashError, match="it may be one of"):
        explore(OffsetsScenario(actions=("commit", "commit", "commit")), max_states=200)


def test_half_a_commit_is_found(monkeypatch):
    commit = OffsetsSession.commit

    def commit_one_by_one(self, *, flush=False):
        whole = self.committed.commit

        def in_pieces(group, offsets, *, flush):
            for partition, offset in offsets.items():
                whole(group, {partition: offset}, flush=flush)

        monkeypatch.setattr(self.committed, "commit", in_pieces)
        commit(self, flush=flush)

    monkeypatch.setattr(OffsetsSession, "commit", commit_one_by_one)
    with pytest.raises(CrashError, match="it may be one of"):
        explore(OffsetsScenario(actions=("commit and flush",) * 3), max_states=300)
