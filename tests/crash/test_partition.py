"""Power cuts at every point of a partition's life: nothing promised is lost, nothing else appears."""

from __future__ import annotations

import pytest

from logstore.testing import explore
from tests.crash.exploring import explore_many
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


@pytest.mark.slow
@pytest.mark.parametrize("length", rotating([6, 10, 14], 3))
def test_chains_of_cuts(length):
    """Other sessions with each commit; ``test_soak`` has many."""
    first_seed = 10_000 + 100 * seed_of_turn()
    explore_many("crash states of a partition", PartitionScenario(length=length), first_seed, 3_000)
