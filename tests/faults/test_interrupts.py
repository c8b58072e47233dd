"""MemoryError and Ctrl-C at any line of the storage modules: the log goes on or asks to be reopened, nothing
that was promised is lost, nothing else appears, and no lock stays held."""

from __future__ import annotations

import os
import sys
import time

import pytest

from tests.faults.interrupt import choose_lines
from tests.faults.partition import WORKLOADS, count_lines, interrupt, make_past
from tests.figures import report

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11),
    reason="knows the instructions of Python 3.11: where it may be interrupted",
)
OCCURRENCES = int(os.environ.get("LOGSTORE_SOAK", "2"))
ERRORS = (MemoryError, KeyboardInterrupt)


@pytest.fixture(scope="module")
def past():
    return make_past()


def every_line(past, name, error, *, occurrences=1, first=0, step=1, max_states=1):
    """Raise at each line that the workload runs through; returns how often, and how many power cuts were
    looked at."""
    places = count_lines(past, WORKLOADS[name])
    count = states = 0
    for at in choose_lines(places, occurrences)[first::step]:
        try:
            outcome = interrupt(past, WORKLOADS[name], error, at, max_states=max_states)
        except Exception as failure:
            path, line = places[at - 1]
            failure.add_note(f"{error.__name__} at {path}:{line}")
            failure.add_note(f"interrupt(make_past(), WORKLOADS[{name!r}], {error.__name__}, {at})")
            raise
        count += outcome.failed
        states += outcome.state_count
    return count, states


@pytest.mark.parametrize("name", ["append", "roll"])
def test_some_lines(past, name):
    assert every_line(past, name, KeyboardInterrupt, step=10)[0] >= 5


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS)
def test_lines_of_everything(past, error):
    """Another part of the lines for each workload."""
    count = 0
    for number, name in enumerate(WORKLOADS):
        count += every_line(past, name, error, first=number % 20, step=20)[0]
    assert count >= 400


@pytest.mark.soak
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_soak(past, name, error):
    started = time.monotonic()
    count, states = every_line(past, name, error, occurrences=OCCURRENCES, max_states=2)
    report(
        f"{error.__name__} at every line: {name}",
        count=count,
        failures=0,
        seconds=time.monotonic() - started,
        detail=f"each line the first {OCCURRENCES} times and the last; {states} power cuts looked at",
    )
    assert count >= 10
