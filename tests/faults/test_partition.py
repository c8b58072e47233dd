"""Each operation on the disk fails once, while everything is done to a partition: what was promised is kept,
what failed is said, and the log goes on or asks to be reopened."""

from __future__ import annotations

import itertools
import os
import time

import pytest

from logstore.testing import FAULTS
from tests.faults.partition import WORKLOADS, make_past, run
from tests.figures import report
from tests.rotation import part, rotating, seed_of_turn

pytestmark = pytest.mark.damaged  # the states of power cuts, in which indexes may lack their last entry
TIMES = {"once": 1, "twice": 2, "from there on": None}
QUICK = ("roll", "truncate sealed", "recover torn")
SEEDS = int(os.environ.get("LOGSTORE_SOAK", "20"))


@pytest.fixture(scope="module")
def past():
    return make_past()


def every_operation(past, name, fault, *, times=1, first=1, step=1, seed=0, max_states=2):
    """Let operation ``first``, and each ``step`` further on, fail until the workload passes untouched.
    Returns how many failed, and how many power cuts were looked at."""
    states = 0
    started = time.monotonic()
    for count, at in enumerate(itertools.count(first, step)):
        try:
            outcome = run(
                past, WORKLOADS[name], FAULTS[fault], at, times=times, seed=seed, max_states=max_states
            )
        except Exception as error:
            error.add_note(
                f"run(make_past(), WORKLOADS[{name!r}], FAULTS[{fault!r}], {at}, {times=}, {seed=})"
            )
            raise
        states += outcome.state_count
        if not outcome.failed:
            seconds = time.monotonic() - started
            report(
                "failing file operations of a partition",
                count=count,
                failures=0,
                seconds=seconds,
                detail=fault,
            )
            return count, states
    raise AssertionError("unreachable")


@pytest.mark.parametrize("name", QUICK)
def test_some_operations_fail(past, name):
    count, states = every_operation(past, name, "EIO", step=4)
    assert count >= 3
    assert states >= 3


MOST_FAULTS = ("EIO", "ENOSPC", "EINTR", "EMFILE", "short write", "failed flush", "late EIO")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fault"), rotating(itertools.product(WORKLOADS, MOST_FAULTS), 14))
def test_each_operation_fails(past, name, fault):
    count, _ = every_operation(past, name, fault, seed=seed_of_turn())
    if fault == "EIO":
        assert count >= 1


@pytest.mark.slow
@pytest.mark.parametrize("times", ["twice", "from there on"])
def test_more_than_one_operation_fails(past, times):
    count = 0
    for number, (name, fault) in enumerate(part(list(itertools.product(WORKLOADS, FAULTS)), 4)):
        step = 5 if times == "twice" else 7
        first = 1 + (number + seed_of_turn()) % step
        count += every_operation(past, name, fault, times=TIMES[times], first=first, step=step, max_states=1)[
            0
        ]
    assert count >= 75


@pytest.mark.soak
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("fault", FAULTS)
def test_soak(past, fault, times):
    count = 0
    for seed, name in itertools.product(range(SEEDS), WORKLOADS):
        count += every_operation(past, name, fault, times=TIMES[times], seed=seed, max_states=6)[0]
    assert count >= SEEDS
