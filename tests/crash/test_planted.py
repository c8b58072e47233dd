"""The explorer finds bugs: each that is planted into the shipped code, within a number of states."""

from __future__ import annotations

from time import perf_counter

import pytest

from logstore.testing import CrashError, explore, reproduce
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
    assert is_sound_without(bug, error), f"it is found without the bug, too: {error}"


def is_sound_without(bug, error):
    """Whether the state is fine where the code is, or is not reached."""
    try:
        reproduce(bug.scenario, error.rule)
    except CrashError as other:
        return str(other.reason) != str(error.reason)
    except ValueError:  # no rule of it
        pass
    return True


def test_each_can_be_planted():
    """Where the code changes, the bugs change with it."""
    for bug in BUGS:
        with planted(bug):
            pass


@pytest.mark.slow
@pytest.mark.parametrize("bug", rotating(BUGS, 6), ids=lambda bug: bug.name)
def test_without_the_bug_its_scenario_finds_nothing(bug):
    assert explore_with(bug, 0, 500).state_count > 20


def test_there_are_enough_bugs():
    assert len(BUGS) >= 16
