"""Where the time of a run goes: ``pytest --note-durations FILE`` writes tables by folder and by test,
in seconds of all processes together. ``make test`` writes them to ``.cache/durations.md``, and
``make test DURATIONS=docs/testing.md`` into that page, in place of those that are there.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.figures import origin

LONGEST_COUNT = 40
START = "<!-- durations: from here on written by `make test DURATIONS=docs/testing.md` -->"
END = "<!-- durations: end of what is written by `make test DURATIONS=docs/testing.md` -->"


def pytest_addoption(parser):
    group = parser.getgroup("logstore")
    group.addoption("--note-durations", metavar="FILE", help="write how long each folder of tests took")


def pytest_configure(config):
    path = config.getoption("--note-durations")
    # with several processes, the main process gets the reports of all tests
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(Path(path)))


class Durations:
    """How long everything took: setting up, running and tearing down."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = time.monotonic()
        self._seconds: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        function = report.nodeid.partition("[")[0]
        self._seconds[function] += report.duration
        if report.when == "call":
            self._tests[function] += 1

    def pytest_sessionfinish(self) -> None:
        table = self.table(time.monotonic() - self._began)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        page = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        self._path.write_text(in_page(page, table) if START in page else table, encoding="utf-8")

    def table(self, elapsed_seconds: float) -> str:
        """The two tables, in Markdown."""
        by_room: Counter[str] = Counter()
        tests_of: Counter[str] = Counter()
        for function, seconds in self._seconds.items():
            by_room[_room_of(function)] += seconds
            tests_of[_room_of(function)] += self._tests[function]
        total = sum(by_room.values())
        lines = [
            f"{sum(tests_of.values())} tests in {elapsed_seconds / 60:.1f} minutes; {total / 60:.1f} minutes "
            f"of all processes together, on {os.cpu_count()} cores; {origin()}.",
            "",
            "| Folder | Tests | Seconds | Share |",
            "| --- | --- | --- | --- |",
            *(
                f"| {room} | {tests_of[room]} | {seconds:.0f} | {seconds / total:.1%} |"
                for room, seconds in by_room.most_common()
            ),
            "",
            "| Test | Cases | Seconds |",
            "| --- | --- | --- |",
            *(
                f"| {function} | {self._tests[function]} | {seconds:.1f} |"
                for function, seconds in self._seconds.most_common(LONGEST_COUNT)
            ),
        ]
        return "\n".join(lines) + "\n"


def in_page(page: str, table: str) -> str:
    """The page with its table replaced by this one."""
    region = re.compile(f"{re.escape(START)}.*{re.escape(END)}", re.DOTALL)
    return region.sub(lambda _: f"{START}\n\n{table}\n{END}", page)


def _room_of(function: str) -> str:
    """The folder of a test; its file, if it is beside the folders."""
    parts = function.partition("::")[0].split("/")
    return "/".join(parts[:2])
