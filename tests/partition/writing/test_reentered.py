"""Calls from within a change of the same log, in the thread that changes it: of signal handlers."""

from __future__ import annotations

import contextlib
import itertools
import signal
import time

import pytest

from logstore.errors import LogstoreError, ReopenRequiredError, UsageError
from tests.partition.helpers_rules import WatchedFiles, crash, open_log, values_of

CALLS = {
    "append": lambda log: log.append(b"x"),
    "append and flush": lambda log: log.append(b"x", flush=True),
    "extend": lambda log: log.extend([b"x"]),
    "flush": lambda log: log.flush(),
    "checkpoint": lambda log: log.checkpoint(),
    "roll": lambda log: log.roll(),
    "truncate": lambda log: log.truncate_to(0),
    "close": lambda log: log.close(),
}


@pytest.fixture
def files():
    return WatchedFiles()


@pytest.fixture
def log(tmp_path, files):
    with open_log(tmp_path / "t-0", files=files) as log:
        log.extend([b"a"])
        yield log


def calling(files, log, call, when, said):
    """Make the call in the middle of what happens to a file."""

    def before(operation, path):
        if operation == when and path.endswith(".log"):
            files.before = lambda operation, path: None
            try:
                said.append(call(log))
            except LogstoreError as error:
                said.append(type(error))

    files.before = before


@pytest.mark.parametrize("outer", ["append", "extend"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_within_a_write_it_is_refused(log, files, call, outer):
    said = []
    calling(files, log, call, "write", said)
    assert log.append(b"b") == 1 if outer == "append" else log.extend([b"b"]) == range(1, 2)
    log.flush()
    assert said == [UsageError]
    log.append(b"c", flush=True)
    assert values_of(log) == [b"a", b"b", b"c"]
    assert log.verify()


def test_within_a_flush_another_is_refused_and_does_not_wait_for_itself(log, files):
    said = []
    calling(files, log, lambda log: log.append(b"c", flush=True), "flush", said)
    log.append(b"b", flush=True)
    assert (said, log.durable_offset) == ([UsageError], 2)
    log.flush()
    assert values_of(log) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "error", [UsageError("of the handler"), KeyboardInterrupt(), OSError(5, "of another")]
)
def test_whatever_a_handler_raises_half_way_the_log_is_opened_again(log, files, error, monkeypatch):
    """Behind the write, in front of what readers see: neither written twice nor half."""
    core = log.writer.core

    def raise_it():
        monkeypatch.undo()
        raise error

    monkeypatch.setattr(core, "publish", raise_it)
    with pytest.raises(type(error)):
        log.extend([b"b"])
    with pytest.raises(ReopenRequiredError):
        log.extend([b"c"])
    crash(log)
    with open_log(log.directory) as again:
        assert values_of(again) == [b"a", b"b"]


def test_a_signal_handler_that_appends(log):
    """It is refused, or it has appended; never half."""
    told, numbers = {}, itertools.count()

    def append():
        value = b"%d" % next(numbers)
        told[value] = log.append(value)

    def handle(*_):
        with contextlib.suppress(UsageError):
            append()

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        ends_at = time.monotonic() + 0.7
        while time.monotonic() < ends_at:
            append()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    found = values_of(log)
    assert len(found) == 1 + len(told)
    assert all(found[offset] == value for value, offset in told.items())
