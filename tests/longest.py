"""Which tests take long. ``make check`` leaves out those in ``longest.txt`` and takes less than a minute, on
two cores; ``make test`` runs them all.

``pytest --note-longest`` writes the file anew: the test functions that take more than half a second, with all
their parameters together. A test that is not in it, because it is new, runs.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

LONGEST = Path(__file__).with_suffix(".txt")
SECONDS = 0.5


def pytest_addoption(parser):
    group = parser.getgroup("logstore")
    group.addoption("--quick", action="store_true", help=f"without the tests in {LONGEST.name}")
    group.addoption("--note-longest", action="store_true", help=f"write {LONGEST.name} anew")


def pytest_configure(config):
    # with several processes the one that began the run hears of all tests
    if config.getoption("--note-longest") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Seconds())


def pytest_collection_modifyitems(config, items):
    if config.getoption("--quick"):
        longest = set(LONGEST.read_text().split("\n"))
        left_out = [item for item in items if _function_of(item.nodeid) in longest]
        items[:] = [item for item in items if _function_of(item.nodeid) not in longest]
        config.hook.pytest_deselected(items=left_out)


def _function_of(nodeid: str) -> str:
    return nodeid.partition("[")[0]


class _Seconds:
    """How long each test function took."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_function_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        longest = sorted(name for name, seconds in self._seconds.items() if seconds > SECONDS)
        LONGEST.write_text("".join(f"{name}\n" for name in longest))
