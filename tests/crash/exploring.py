"""Explorations of many seeds, one after another."""

from __future__ import annotations

from time import perf_counter

from logstore.testing import Explored, Scenario, explore
from tests.figures import report

_STATES_PER_SEED = 1_500
_MOST_SEEDS = 100


def explore_many(figure: str, scenario: Scenario, first_seed: int, state_count: int) -> None:
    """Explore chains of up to three cuts, seed by seed, until ``state_count`` states were checked, some
    of them behind three cuts. The first failure ends it; its rule makes the state again."""
    started = perf_counter()
    explored = Explored()
    seed = first_seed
    while explored.state_count < state_count or (explored.deepest < 3 and seed < first_seed + _MOST_SEEDS):
        explored.add(explore(scenario, seed=seed, max_states=_STATES_PER_SEED, depth=3, states_per_point=32))
        seed += 1
    assert explored.deepest == 3
    report(
        figure,
        count=explored.state_count,
        failures=0,
        seconds=perf_counter() - started,
        detail=f"seeds {first_seed} to {seed - 1}",
    )
