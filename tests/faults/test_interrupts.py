"""MemoryError and Ctrl-C at any line of the storage modules: the log goes on or asks to be reopened, nothing
that was promised is lost, nothing else appears, and no lock stays held."""

from __future__ import annotations

import os
import sys
import time

import pytest

from tests.faults import partition, store
from tests.faults.interrupt import choose_lines
from tests.figures import report
from tests.rotation import part, seed_of_turn

pytestmark = [
    pytest.mark.skipif(
        sys.version_info[:2] != (3, 11),
        reason="knows the instructions of Python 3.11: where it may be interrupted",
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # a generator is dropped
    pytest.mark.damaged,  # the states of power cuts, in which indexes may lack their last entry
]
OCCURRENCES = int(os.environ.get("LOGSTORE_SOAK", "2"))
ERRORS = (MemoryError, KeyboardInterrupt)


RIGS = {"partition": partition, "store": store}


@pytest.fixture(scope="module")
def pasts():
    return {name: rig.make_past() for name, rig in RIGS.items()}


def every_line(pasts, rig, name, error, *, occurrences=1, first=0, step=1, max_states=1):
    """Raise at each line that the workload runs through; returns how often, and how many states were looked
    at."""
    module, past = RIGS[rig], pasts[rig]
    places = module.count_lines(past, module.WORKLOADS[name])
    count = states = 0
    started = time.monotonic()
    for at in choose_lines(places, occurrences)[first::step]:
        try:
            outcome = module.interrupt(past, module.WORKLOADS[name], error, at, max_states=max_states)
        except Exception as failure:
            path, line = places[at - 1]
            failure.add_note(f"{error.__name__} at {path}:{line}")
            failure.add_note(f"{rig}.interrupt(make_past(), WORKLOADS[{name!r}], {error.__name__}, {at})")
            raise
        count += outcome.failed
        states += outcome.state_count
    seconds = time.monotonic() - started
    report("exceptions at lines of the code", count=count, failures=0, seconds=seconds, detail=error.__name__)
    return count, states


@pytest.mark.parametrize("name", ["append", "roll"])
def test_some_lines(pasts, name):
    assert every_line(pasts, "partition", name, KeyboardInterrupt, step=10)[0] >= 5


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("rig", RIGS)
def test_lines_of_everything(pasts, rig, error):
    """Other workloads with each commit, and another part of the lines for each."""
    step = 25 if rig == "partition" else 100
    count = 0
    for number, name in enumerate(part(list(RIGS[rig].WORKLOADS), 4)):
        count += every_line(pasts, rig, name, error, first=(number + seed_of_turn()) % step, step=step)[0]
    assert count >= 10


@pytest.mark.soak
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("rig", "name"), [(rig, name) for rig in RIGS for name in RIGS[rig].WORKLOADS])
def test_soak(pasts, rig, name, error):
    assert every_line(pasts, rig, name, error, occurrences=OCCURRENCES, max_states=2)[0] >= 10
