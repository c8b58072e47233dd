"""Power cuts at every point of a partition's life: nothing promised is lost, nothing else appears."""

from __future__ import annotations

import pytest

from logstore.testing import explore
from tests.crash.partition import PartitionScenario

SEEDS = 16


@pytest.mark.parametrize("seed", range(4))
def test_single_cuts(seed):
    assert explore(PartitionScenario(), seed=seed, max_states=500).state_count >= 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
def test_chains_of_cuts(seed):
    explored = explore(PartitionScenario(length=10), seed=seed, max_states=3_000, depth=3)
    assert explored.deepest == 3
