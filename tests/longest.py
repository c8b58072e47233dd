"""``longest.txt`` says which tests take long, and how long: functions of more than a tenth of a second, with
all their parameters together.

``make check`` leaves them out. Tests of 0.4 s and more take turns (see :mod:`tests.rotation`): each runs in
every second turn, those of 0.8 s and more in every fourth, of 1.5 s and more in every eighth, and of 4 s and
more in every sixteenth; and the turns take equally long. Tests that divide themselves into turns choose
theirs, and those marked ``every_turn`` always run.

If several processes share a run, they begin with the longest tests, those of more than a quarter of a second,
so that none has a long test left at the end. One process runs all tests of a folder or file in ``TOGETHER``,
and starts Spark, a broker or a compiler once for all of them.

``pytest --note-longest`` writes the times of its tests into the file. New tests, which are not in it, run.
"""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.rotation import turn

LONGEST = Path(__file__).with_suffix(".txt")
SECONDS = 0.1
ALONE_SECONDS = 0.25
"""A test that takes longer is handed out by itself, the others with their file."""
PERIODS = {0.4: 2, 0.8: 4, 1.5: 8, 4.0: 16}
"""A test that takes at least so many seconds runs once in so many turns."""

ROOT = LONGEST.parent.parent
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
    """Whether the test takes long, and other turns run it."""
    if number is None or item.get_closest_marker("every_turn") is not None:
        return False
    period, first = turns().get(function_of(item.nodeid), (1, 0))
    return number % period != first


@cache
def turns():
    """By test function: once in how many turns it runs, and in which of them. The longest are dealt out
    first, each to the turns that have least to do."""
    seconds = [0.0] * max(PERIODS.values())
    dealt = {}
    for name, took in sorted(longest().items(), key=lambda entry: (-entry[1], entry[0])):
        period = max((turns for least, turns in PERIODS.items() if took >= least), default=1)
        if period == 1 or name.rpartition("::")[2] in dividing(name.partition("::")[0]):
            continue
        first = min(range(period), key=lambda at: sum(seconds[at::period]))
        for at in range(first, len(seconds), period):
            seconds[at] += took
        dealt[name] = period, first
    return dealt


_DIVIDES = {"rotating", "part", "in_turn"}
"""What a test of which each turn runs a part has from :mod:`tests.rotation`."""


@cache
def dividing(file):
    """The tests of a file that divide themselves, with all else there that does: a test may get its part from
    a function, a constant or a fixture."""
    path = ROOT / file
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if "\nfrom tests.rotation import " not in text:
        return frozenset()
    found, before = set(_DIVIDES), set()
    uses = [(names, used) for node in ast.parse(text).body for names, used in _names_in(node)]
    while found != before:
        before = set(found)
        found.update(*(names for names, used in uses if used & found))
    return frozenset(found - _DIVIDES)


def _names_in(node):
    """What a statement defines, and the names that it uses for that; of a class, each method by itself."""
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            yield from _names_in(inner)
        return
    inside = list(ast.walk(node))
    used = {each.id for each in inside if isinstance(each, ast.Name)}
    if isinstance(node, ast.FunctionDef):
        yield {node.name}, used | {each.arg for each in inside if isinstance(each, ast.arg)}
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        yield (
            {each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)},
            used,
        )


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
    return nodeid if _is_alone(nodeid) else nodeid.partition("::")[0]


def place_of(nodeid):
    """Sorts tests: the folders first, then long tests, the longest first; the others stay in their order."""
    for number, folder in enumerate(TOGETHER):
        if nodeid.startswith(folder):
            return number, 0.0
    return len(TOGETHER), -longest()[function_of(nodeid)] if _is_alone(nodeid) else 0.0


def _is_alone(nodeid):
    return longest().get(function_of(nodeid), 0.0) > ALONE_SECONDS


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
        known = {name: seconds for name, seconds in longest().items() if name not in self._seconds}
        known.update((name, seconds) for name, seconds in self._seconds.items() if seconds > SECONDS)
        LONGEST.write_text("".join(f"{known[name]:.1f} {name}\n" for name in sorted(known)))
