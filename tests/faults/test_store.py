"""Each operation on the disk fails once, twice, or for good, while everything is done to a store."""

from __future__ import annotations

import itertools
import os
import time

import pytest

from logstore.testing import FAULTS
from tests.faults.store import WORKLOADS, make_past, run
from tests.figures import report
from tests.rotation import part, seed_of_turn

pytestmark = pytest.mark.damaged  # the states of power cuts, in which indexes may lack their last entry
TIMES = {"once": 1, "twice": 2, "from there on": None}
SEEDS = int(os.environ.get("LOGSTORE_SOAK", "5"))


@pytest.fixture(scope="module")
def past():
    return make_past()


def every_operation(past, name, fault, *, times=1, first=1, step=1, seed=0, max_states=1):
    """As in :mod:`tests.faults.test_partition`."""
    states = 0
    started = time.monotonic()
    for count, at in enumerate(itertools.count(first, step)):
        try:
            outcome = run(
                past, WORKLOADS[name], FAULTS[fault], at, times=times, seed=seed, max_states=max_states
            )
        except Exception as error:
            arguments = f"WORKLOADS[{name!r}], FAULTS[{fault!r}], {at}, {times=}, {seed=}"
            error.add_note(f"run(make_past(), {arguments})")
            raise
        states += outcome.state_count
        if not outcome.failed:
            seconds = time.monotonic() - started
            report(
                "failing file operations of a store", count=count, failures=0, seconds=seconds, detail=fault
            )
            return count, states
    raise AssertionError("unreachable")


def test_some_operations_fail(past):
    assert every_operation(past, "recover", "EIO", step=25)[0] >= 4


@pytest.mark.slow
@pytest.mark.parametrize("times", TIMES)
def test_operations_of_everything_fail(past, times):
    count = 0
    cases = part(list(itertools.product(WORKLOADS, ["EIO", "ENOSPC", "failed flush"])), 3)
    for number, (name, fault) in enumerate(cases):
        step = 5 if fault == "failed flush" else 40
        first = 1 + (number + seed_of_turn()) % step
        count += every_operation(past, name, fault, times=TIMES[times], first=first, step=step)[0]
    assert count >= 10


@pytest.mark.soak
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("fault", FAULTS)
def test_soak(past, fault, times):
    count = 0
    for seed, name in itertools.product(range(SEEDS), WORKLOADS):
        count += every_operation(past, name, fault, times=TIMES[times], seed=seed, max_states=4)[0]
    assert count >= SEEDS
