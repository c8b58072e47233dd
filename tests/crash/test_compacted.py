"""Power cuts at every point of a compacted partition's life: what is gone, compaction may have taken."""

from __future__ import annotations

import pytest

from logstore.testing import explore
from tests.crash.compacted import CompactedScenario
from tests.crash.exploring import explore_many


@pytest.mark.parametrize("seed", range(2))
def test_single_cuts(seed):
    assert explore(CompactedScenario(), seed=seed, max_states=200).state_count >= 50


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(30_000, 33_000, 1_000))
def test_chains_of_cuts(first_seed):
    explore_many("crash states of a compacted partition", CompactedScenario(length=10), first_seed, 3_000)
