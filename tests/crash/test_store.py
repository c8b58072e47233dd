"""Power cuts at every point of a store's life: topics that come and go, and what is in them."""

from __future__ import annotations

import pytest

from logstore.testing import explore
from tests.crash.store import StoreScenario


@pytest.mark.parametrize("seed", range(2))
def test_single_cuts(seed):
    assert explore(StoreScenario(), seed=seed, max_states=200).state_count >= 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 208))
def test_chains_of_cuts(seed):
    explored = explore(StoreScenario(length=10), seed=seed, max_states=1_500, depth=3)
    assert explored.deepest >= 2
