"""For every run of the tests: reports which code ran the hot loops, and checks that every log that a test
leaves open, or has closed cleanly, is sound. A test that damages files on purpose is marked ``damaged``. No
example of Hypothesis has a deadline: how long one takes says how busy the machine is."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from typing import Any, NamedTuple

import hypothesis
import pytest

from logstore import build_info
from logstore.clock import SystemClock
from logstore.errors import ClosedError, LogstoreError
from logstore.partition.checking.facts_of_files import facts_of_files
from logstore.partition.checking.files import StoredCheckpoints
from logstore.partition.checking.findings import FindingKind, VerifyReport
from logstore.partition.checking.verify import verify_log
from logstore.partition.log import Log
from logstore.partition.state.home import CLEAN_MARKER_NAME
from logstore.partition.writing.writer import LogWriter
from tests.figures import report as report_figure

hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")

pytest_plugins = [
    "tests.rotation",
    "tests.places",
    "tests.durations",
    "tests.longest",
    "tests.partition.fixtures",
]


def pytest_terminal_summary(terminalreporter):
    info = build_info()
    code = "compiled" if info.is_compiled else "plain Python"
    terminalreporter.write_line(f"hot loops: {code} ({info.reason}); checksums: {info.crc32c}")
    if _verified.count:  # with several processes each has its own
        terminalreporter.write_line(f"logs verified at the end of tests: {_verified.count}")
    if hasattr(terminalreporter.config, "workerinput"):
        return  # the main process of the run reports it for all
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = sorted({str(test.longrepr[2]).removeprefix("Skipped: ") for test in skipped})
    report_figure("skipped tests", count=len(skipped), failures=0, seconds=0, detail="; ".join(reasons))


class _Opened(NamedTuple):
    """A log that the running test has opened; does not keep the log alive."""

    log: weakref.ref[LogWriter]
    files: Any
    home: str
    partition: Any
    config: Any


class _Verified:
    count = 0


_verified = _Verified()
_opened: dict[str, _Opened] = {}
_plain_init = LogWriter.__init__


def _init_and_note(self, context, directory, partition, config, loaded):
    _plain_init(self, context, directory, partition, config, loaded)
    _opened[directory] = _Opened(weakref.ref(self), context.files, context.home.path, partition, config)


LogWriter.__init__ = _init_and_note  # the product has no list of its logs, and needs none


def pytest_collection_finish(session):
    """What collecting has made stays. A garbage collection that goes through it takes 0.2 s; tests ask for
    hundreds."""
    gc.collect()
    gc.freeze()


_OURS = {FindingKind.SPARSE_INDEX, FindingKind.WIDE_INDEX_ENTRY}
"""Kinds of notes that logstore's own files never cause."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    _opened.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Runs before the test's fixtures are torn down, which may drop its logs."""
    result = yield
    opened = list(_opened.items())
    _opened.clear()
    if item.get_closest_marker("damaged") is None:
        for directory, noted in opened:
            report = _verify(directory, noted)
            if report is not None:
                _verified.count += 1
                assert report, f"the test leaves a log that is not sound: {report}"
                if item.get_closest_marker("interop") is None:  # a broker's indexes are sparser
                    assert not [note for note in report.notes if note.kind in _OURS], report
    return result


def _verify(directory: str, noted: _Opened) -> VerifyReport | None:
    """None if nothing can be said about the log: after a failure, or after a crash."""
    log = noted.log()
    if log is not None and not log.guard.is_closed:
        if log.guard.failure is not None or log.context.fork_flag.is_forked:
            return None
        with suppress(ClosedError):  # a node removes a replica that it is to have no more
            return Log(log).verify()
        return None
    files = noted.files
    try:
        if not files.is_file(f"{noted.home}/{CLEAN_MARKER_NAME}") or not files.is_directory(directory):
            return None
    except LogstoreError:
        return None
    checkpoints = StoredCheckpoints(files, noted.home)
    return verify_log(
        lambda: facts_of_files(files, directory, noted.partition, checkpoints, noted.config, is_clean=True),
        SystemClock(),
    )
