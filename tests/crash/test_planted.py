"""The explorer finds bugs: each that is planted into the shipped code, within a number of states."""

from __future__ import annotations

from time import perf_counter

import pytest

from logstore.testing import CrashError, explore
from tests.crash.planted import BUGS, planted
from tests.figures import report
from tests.rotation import rotating

pytestmark = pytest.mark.damaged  # by the bugs

SEEDS = 12
STATES = 3_000


def explore_with(bug, seed, max_states):
    return explore(
        bug.scenario, seed=seed, max_states=max_states, depth=bug.depth, chained_share=bug.chained_share
    )


def find(bug):
    """What the explorer says of the first state that the bug spoils, or None, and how many were fine."""
    state_count = 0
    for seed in range(SEEDS):
        try:
            state_count += explore_with(bug, seed, STATES).state_count
        except CrashError as error:
            return error, state_count
    return None, state_count


@pytest.mark.slow
@pytest.mark.parametrize("bug", rotating(BUGS, 6), ids=lambda bug: bug.name)
def test_planted(bug):
    started = perf_counter()
    with planted(bug):
        error, state_count = find(bug)
    seconds = perf_counter() - started
    report("planted bugs", count=1, failures=int(error is None), seconds=seconds, detail=bug.name)
    assert error is not None, f"not found in {state_count} states"


@pytest.mark.slow
@pytest.mark.parametrize("bug", rotating(BUGS, 6), ids=lambda bug: bug.name)
def test_without_the_bug_its_scenario_finds_nothing(bug):
    assert explore_with(bug, 0, 500).state_count > 20


def test_there_are_enough_bugs():
    assert len(BUGS) >= 16
