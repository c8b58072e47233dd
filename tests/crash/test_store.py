"""Power cuts at every point of a store's life: topics that come and go, and what is in them."""

from __future__ import annotations

import pytest

from logstore.testing import explore
from tests.crash.exploring import explore_many
from tests.crash.store import StoreScenario
from tests.rotation import rotating, seed_of_turn


@pytest.mark.parametrize("seed", range(2))
def test_single_cuts(seed):
    assert explore(StoreScenario(), seed=seed, max_states=200).state_count >= 50


@pytest.mark.slow
@pytest.mark.parametrize("length", rotating([6, 10, 14], 12))
def test_chains_of_cuts(length):
    """Other sessions with each commit; ``test_soak`` has many."""
    first_seed = 20_000 + 100 * seed_of_turn()
    explore_many("crash states of a store", StoreScenario(length=length), first_seed, 1_500)
