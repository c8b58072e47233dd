"""Power cuts at every point of producing, consuming and committing."""

from __future__ import annotations

import pytest

from logstore.broker.offsets.committed import CommittedOffsets
from logstore.testing import CrashError, explore
from tests.crash.clients import ClientsScenario, ClientsSession
from tests.crash.exploring import explore_many
from tests.crash.offsets import Durable
from tests.rotation import rotating, seed_of_turn


def test_single_cuts():
    assert explore(ClientsScenario(length=5), seed=1, max_states=100).state_count >= 50


def test_the_first_commit():
    """``__consumer_offsets`` is made."""
    actions = ("send", "consume", "send to all", "commit and flush")
    assert explore(ClientsScenario(actions=actions), seed=2, max_states=150).state_count >= 30


@pytest.mark.slow
def test_groups_that_are_deleted_amid_compactions():
    actions = (
        "send",
        "consume",
        "commit",
        "delete",
        "compact",
        "consume",
        "delete group",
        "compact",
        "wait",
        "compact",
    )
    assert explore(ClientsScenario(actions=actions), seed=3, max_states=300).state_count >= 50


@pytest.mark.slow
@pytest.mark.parametrize("length", rotating([5, 9], 8, first=6))
def test_chains_of_cuts(length):
    """Other sessions with each commit."""
    first_seed = 70_000 + 100 * seed_of_turn()
    explore_many("crash states of clients", ClientsScenario(length=length), first_seed, 200)


def test_an_offset_above_the_end_of_its_log_is_found(monkeypatch):
    monkeypatch.setattr(CommittedOffsets, "set_back", lambda self, end_of: None)
    with pytest.raises(CrashError, match="the logs end at"):
        explore(
            ClientsScenario(actions=("send", "consume", "consume", "commit and flush")),
            seed=0,
            max_states=200,
        )


def test_a_promise_that_is_not_kept_is_found(monkeypatch):
    monkeypatch.setattr(ClientsSession, "_say_durable", lambda self, flush: self.say(Durable()))
    with pytest.raises(CrashError, match="it may be one of"):
        explore(ClientsScenario(actions=("commit", "send", "commit", "commit")), max_states=200)
