"""``open(timeout=...)``: waiting for a directory that somebody has open for writing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter

import pytest

import logstore
from logstore import lock
from logstore.errors import LockedError, UsageError
from logstore.partition.log import Log
from logstore.testing import ManualClock, MemoryFiles
from tests.logdir.helpers import Child, values

LONG = 60
"""Seconds. Nobody waits for so long but by a fault."""

HOLDER = """
    import sys, logstore
    store = logstore.open(sys.argv[1])
    store.require_topic("t")[0].extend([b"holder"])
    print("open")
    sys.stdin.readline()
    store.close()
    print("closed")
    sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store")


class Opener(threading.Thread):
    """Opens in a thread, and notes the tries and the end."""

    def __init__(self, open_it, monkeypatch):
        super().__init__(daemon=True)
        self.open_it, self.opened, self.error = open_it, None, None
        self.tries = threading.Semaphore(0)
        plain = lock.tries

        def counted(timeout_ms):
            for is_last in plain(timeout_ms):
                yield is_last
                self.tries.release()

        for module in ("logstore.lock", "logstore.testing.memory"):
            monkeypatch.setattr(f"{module}.tries", counted)
        self.start()
        for _ in range(5):
            assert self.tries.acquire(timeout=30)

    def run(self):
        try:
            self.opened = self.open_it()
        except Exception as error:
            self.error = error

    def result(self):
        self.join(30)
        assert not self.is_alive()
        assert self.error is None
        return self.opened


def test_it_waits_for_another_process_that_closes(path, monkeypatch):
    with Child(HOLDER, path) as holder:
        assert holder.hear() == "open"
        opener = Opener(lambda: logstore.open(path, timeout=LONG), monkeypatch)
        assert holder.ask() == "closed"
        with opener.result() as store:
            assert store.was_clean
            assert values(store["t"][0]) == [b"holder"]


def test_it_waits_for_another_process_that_is_killed(path, monkeypatch):
    with Child(HOLDER, path) as holder:
        assert holder.hear() == "open"
        opener = Opener(lambda: logstore.open(path, timeout=LONG), monkeypatch)
        holder.kill()
        with opener.result() as store:
            assert not store.was_clean
            assert values(store["t"][0]) == [b"holder"]


@pytest.mark.parametrize("files", [None, MemoryFiles()], ids=["disk", "memory"])
def test_it_waits_for_a_thread_of_the_same_process(path, files, monkeypatch):
    holder = logstore.open(path, files=files)
    opener = Opener(lambda: logstore.open(path, files=files, timeout=LONG), monkeypatch)
    holder.require_topic("t")[0].extend([b"holder"])
    holder.close()
    with opener.result() as store:
        assert values(store["t"][0]) == [b"holder"]


def test_a_partition_alone_waits_as_well(tmp_path, monkeypatch):
    path = tmp_path / "t-0"
    holder = Log.open(path)
    with pytest.raises(LockedError, match="waited 20 ms"):
        Log.open(path, timeout=0.02)
    opener = Opener(lambda: Log.open(path, timeout=LONG), monkeypatch)
    holder.extend([b"holder"])
    holder.close()
    with opener.result() as log:
        assert values(log) == [b"holder"]


# The end of the patience


def test_after_the_timeout_the_error_says_who_has_it_and_what_to_do(path):
    with Child(HOLDER, path) as holder:
        assert holder.hear() == "open"
        before = time.monotonic()
        with pytest.raises(LockedError) as caught:
            logstore.open(path, timeout=0.2)
        assert time.monotonic() - before >= 0.2
        for part in (
            f"process {holder.pid}:",
            "read_only=True",
            "stop that process",
            "wait longer",
            "200 ms",
        ):
            assert part in str(caught.value)
        with pytest.raises(LockedError, match=r"timeout=30"):
            logstore.open(path)
        with logstore.open(path, read_only=True, timeout=LONG) as reader:
            assert values(reader["t"][0]) == [b"holder"]
        assert holder.ask() == "closed"


@pytest.mark.parametrize("timeout", [None, 0, 0.0])
def test_by_default_it_does_not_wait(path, timeout, monkeypatch):
    with logstore.open(path), monkeypatch.context() as patched:
        patched.setattr(lock, "time", Clock())
        with pytest.raises(LockedError, match="this process"):
            logstore.open(path, timeout=timeout)
        assert lock.time.sleeps == []


def test_a_clock_that_stands_still_does_not_hold_it_up(path):
    clock = ManualClock()
    with logstore.open(path, clock=clock), pytest.raises(LockedError, match="waited 50 ms"):
        logstore.open(path, clock=clock, timeout=0.05)
    logstore.open(path, clock=clock, timeout=0.05).close()


@pytest.mark.parametrize("timeout", [-1, "1", True, float("nan"), [1]], ids=str)
@pytest.mark.parametrize("open_it", [logstore.open, Log.open])
def test_what_is_no_timeout_is_refused_before_anything_is_made(tmp_path, open_it, timeout):
    with pytest.raises(UsageError, match="timeout"):
        open_it(tmp_path / "new-0", timeout=timeout)
    assert not (tmp_path / "new-0").exists()


@pytest.mark.parametrize("timeout", [float("inf"), 1e308, 10**400], ids=["inf", "1e308", "10^400"])
def test_whoever_waits_for_centuries_waits(path, timeout, monkeypatch):
    holder = logstore.open(path)
    opener = Opener(lambda: logstore.open(path, timeout=timeout), monkeypatch)
    holder.close()
    opener.result().close()


def test_an_interrupt_ends_the_wait(path):
    class StruckError(Exception):
        pass

    def strike(*_):
        raise StruckError

    old = signal.signal(signal.SIGUSR1, strike)
    try:
        with logstore.open(path) as holder:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(StruckError):
                logstore.open(path, timeout=LONG)
            holder.require_topic("t")[0].extend([b"holder"])
        logstore.open(path).close()
    finally:
        signal.signal(signal.SIGUSR1, old)


# What waiting costs, and who is next


class Clock:
    """Passes only where somebody sleeps."""

    def __init__(self):
        self.now, self.sleeps = 0.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.sleeps.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("timeout_ms", [0, 1, 7, 100, 60_000])
def test_the_tries(timeout_ms, monkeypatch):
    monkeypatch.setattr(lock, "time", Clock())
    found = list(lock.tries(timeout_ms))
    assert found == [False] * (len(found) - 1) + [True]
    assert lock.time.now * 1000 == pytest.approx(timeout_ms)
    assert max(lock.time.sleeps, default=0) <= 0.05
    assert len(found) <= 10 + timeout_ms / 25


def test_only_the_last_try_looks_for_the_holder(path, monkeypatch):
    calls = Counter()

    def holder_of(descriptor):
        calls["holder"] += 1
        return "somebody"

    with Child(HOLDER, path) as holder:
        assert holder.hear() == "open"
        monkeypatch.setattr(lock, "_holder_of", holder_of)
        with pytest.raises(LockedError, match="somebody"):
            logstore.open(path, timeout=0.1)
    assert calls["holder"] == 1


WORKER = """
    import sys, logstore
    for turn in range(8):
        with logstore.open(sys.argv[1], timeout=60) as store:
            store.require_topic("t")[0].extend([f"{sys.argv[2]}-{turn}".encode()])
"""


def test_processes_that_all_want_it_all_get_it(path):
    code = textwrap.dedent(WORKER)
    workers = [subprocess.Popen([sys.executable, "-c", code, path, str(who)]) for who in range(4)]
    assert [worker.wait(120) for worker in workers] == [0] * 4
    with logstore.open(path) as store:
        found = values(store["t"][0])
    for who in range(4):
        assert [each for each in found if each.startswith(b"%d-" % who)] == [
            b"%d-%d" % (who, turn) for turn in range(8)
        ]
    assert len(found) == 32
