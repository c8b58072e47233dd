"""Power cuts at every point of a compacted partition's life: what is gone, compaction may have taken."""

from __future__ import annotations

import pytest

from logstore.testing import explore
from tests.crash.compacted import CompactedScenario
from tests.crash.exploring import explore_many
from tests.rotation import rotating, seed_of_turn


@pytest.mark.parametrize("seed", range(2))
def test_single_cuts(seed):
    assert explore(CompactedScenario(), seed=seed, max_states=200).state_count >= 50


@pytest.mark.slow
@pytest.mark.parametrize("length", rotating([6, 10, 14], 12, first=6))
def test_chains_of_cuts(length):
    """Other sessions with each commit; ``test_soak`` has many."""
    first_seed = 30_000 + 100 * seed_of_turn()
    explore_many("crash states of a compacted partition", CompactedScenario(length=length), first_seed, 1_500)
