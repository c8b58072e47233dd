"""Power cuts at every point of a partition's life: nothing promised is lost, nothing else appears."""

from __future__ import annotations

import pytest

from logstore.partition.writing.core import LogCore
from logstore.partition.writing.durability import Durability
from logstore.testing import CrashError, explore
from tests.crash.exploring import explore_many
from tests.crash.follower import LEADER_THAT_FOLLOWS, FollowerScenario
from tests.crash.partition import PartitionScenario
from tests.rotation import rotating, seed_of_turn


@pytest.mark.parametrize("seed", range(4))
def test_single_cuts(seed):
    assert explore(PartitionScenario(), seed=seed, max_states=500).state_count >= 50


ERASING = (
    ("append and flush", "append", "roll", "append as producer", "erase"),
    ("append as producer", "append", "erase", "truncate", "append", "erase"),
)


@pytest.mark.parametrize("actions", ERASING)
@pytest.mark.parametrize("seed", range(2))
def test_single_cuts_around_an_erasure(seed, actions):
    """Before the call returns a record is there or gone, behind it nothing on the disk tells of it."""
    assert explore(PartitionScenario(actions=actions), seed=seed, max_states=200).state_count >= 30


@pytest.mark.parametrize("seed", range(2))
def test_single_cuts_of_a_leader_that_follows(seed):
    """The end of a segment that its leader sealed is there, or nothing behind it is."""
    assert explore(FollowerScenario(actions=LEADER_THAT_FOLLOWS), seed=seed, max_states=200).state_count >= 30


@pytest.mark.parametrize("seed", range(3))
def test_single_cuts_of_a_follower(seed):
    """Its leader's gaps are no loss, and a loss is no gap."""
    assert explore(FollowerScenario(length=12), seed=seed, max_states=200).state_count >= 30


@pytest.mark.parametrize("rule", ["flushed roll", "checkpoint of a former follower"])
def test_the_follower_without_its_rules_loses_something(monkeypatch, rule):
    """The check can fail: a roll that leaves the old segment to the background, a role that goes first."""
    if rule == "flushed roll":
        monkeypatch.setattr(LogCore, "_prepare_roll", lambda core, *_: None)
        scenario = FollowerScenario(actions=("replicate", "replicate", "roll", "replicate", "flush"))
    else:
        monkeypatch.setattr(Durability, "checkpoint_locked", lambda durability: None)
        scenario = FollowerScenario(
            actions=("replicate", "roll", "replicate", "replicate", "flush", "become leader")
        )
    with pytest.raises(CrashError, match=r"LOST|HOLE"):
        [explore(scenario, seed=seed, max_states=400) for seed in range(8)]


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", [20_000])
def test_chains_of_cuts_of_a_follower(first_seed):
    explore_many("crash states of a follower", FollowerScenario(length=14), first_seed, 3_000)


@pytest.mark.slow
@pytest.mark.parametrize("length", rotating([6, 10, 14], 12, first=3))
def test_chains_of_cuts(length):
    """Other sessions with each commit; ``test_soak`` has many."""
    first_seed = 10_000 + 100 * seed_of_turn()
    explore_many("crash states of a partition", PartitionScenario(length=length), first_seed, 3_000)
