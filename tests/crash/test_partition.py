"""Power cuts at every point of a partition's life: nothing promised is lost, nothing else appears."""

from __future__ import annotations

import pytest

from logstore.testing import explore
from tests.crash.exploring import explore_many
from tests.crash.partition import PartitionScenario


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
@pytest.mark.parametrize("first_seed", range(10_000, 18_000, 1_000))
def test_chains_of_cuts(first_seed):
    explore_many("crash states of a partition", PartitionScenario(length=10), first_seed, 10_000)
