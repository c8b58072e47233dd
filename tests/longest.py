"""``longest.txt`` says which tests take long, and how long: functions of more than half a second, with all
their parameters together.

``make check`` leaves them out. A test of ``ALTERNATING_SECONDS`` or more runs in every second turn (see
:mod:`tests.rotation`): half of these tests in one turn, the other half in the next. Tests whose file divides
itself into turns, and those marked ``every_turn``, do not alternate.

If several processes share a run, they begin with the longest tests, so that none has a long test left at the
end. One process runs all tests of a folder or file in ``TOGETHER``, and starts Spark, a broker or a compiler
once for all of them.

``pytest --note-longest`` writes the times of its tests into the file. New tests, which are not in it, run.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.rotation import turn

LONGEST = Path(__file__).with_suffix(".txt")
SECONDS = 0.5
ALTERNATING_SECONDS = 2.0
TOGETHER = ("tests/spark/", "tests/interop/", "tests/fuzz/test_sanitizers.py")


def pytest_addoption(parser):
    group = parser.getgroup("logstore")
    group.addoption("--quick", action="store_true", help=f"without the tests in {LONGEST.name}")
    group.addoption("--note-longest", action="store_true", help=f"write {LONGEST.name} anew")


def pytest_configure(config):
    # with several processes, the main process gets the reports of all tests
    config.pluginmanager.register(_Alternating())
    if config.getoption("--note-longest") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Seconds())


class _Alternating:
    """Before pytest looks at the marks."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        for item in items:
            if is_for_another_turn(item, turn()):
                item.add_marker(pytest.mark.soak)


def is_for_another_turn(item, number):
    """Whether the test takes long, and the next turn runs it, or the one before."""
    function = function_of(item.nodeid)
    if number is None or longest().get(function, 0) < ALTERNATING_SECONDS:
        return False
    if item.get_closest_marker("every_turn") is not None or _divides_itself(item.module):
        return False
    return (crc32(function.encode()) + number) % 2 == 1


@cache
def _divides_itself(module):
    return any(getattr(value, "__module__", None) == "tests.rotation" for value in vars(module).values())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if config.getoption("--quick"):
        left_out = [item for item in items if function_of(item.nodeid) in longest()]
        items[:] = [item for item in items if function_of(item.nodeid) not in longest()]
        config.hook.pytest_deselected(items=left_out)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.getoption("dist") == "load":
        config.option.loadscopereorder = False  # we set the order
        return _Shares(config, log)
    return None


class _Shares(LoadScopeScheduling):
    """Gives a process one unit at a time, in the order in which their first tests were collected."""

    def _split_scope(self, nodeid):
        return unit_of(nodeid)

    def _reschedule(self, node):
        if node in self.registered_collections:  # the replacement of a dead process is not ready at once
            super()._reschedule(node)


def unit_of(nodeid):
    """What one process runs in a row: a folder, a long test, or a file without its long tests."""
    for folder in TOGETHER:
        if nodeid.startswith(folder):
            return folder
    return nodeid if function_of(nodeid) in longest() else nodeid.partition("::")[0]


def place_of(nodeid):
    """Sorts tests: the folders first, then long tests, the longest first; the others stay in their order."""
    for number, folder in enumerate(TOGETHER):
        if nodeid.startswith(folder):
            return number, 0.0
    return len(TOGETHER), -longest().get(function_of(nodeid), 0.0)


@cache
def longest():
    """Seconds by test function."""
    lines = (line.split(" ", 1) for line in LONGEST.read_text().splitlines())
    return {name: float(seconds) for seconds, name in lines}


def function_of(nodeid):
    return nodeid.partition("[")[0]


class _Seconds:
    """How long each test function took."""

    def __init__(self):
        self._seconds = Counter()

    def pytest_runtest_logreport(self, report):
        self._seconds[function_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self):
        known = {**longest(), **self._seconds}
        LONGEST.write_text(
            "".join(f"{known[name]:.1f} {name}\n" for name in sorted(known) if known[name] > SECONDS)
        )
