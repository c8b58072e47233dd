"""Power cuts at every point of a store's life: topics that come and go, and what is in them."""

from __future__ import annotations

import pytest

from logstore.testing import explore
from tests.crash.exploring import explore_many
from tests.crash.store import StoreScenario


@pytest.mark.parametrize("seed", range(2))
def test_single_cuts(seed):
    assert explore(StoreScenario(), seed=seed, max_states=200).state_count >= 50


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(20_000, 24_000, 1_000))
def test_chains_of_cuts(first_seed):
    explore_many("crash states of a store", StoreScenario(length=10), first_seed, 5_000)
