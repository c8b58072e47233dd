"""A reader elsewhere took sound logs for damaged ones.

It listed the segments first and read the checkpoints later: where the writer had rolled and stored its
recovery point in between, durable data was missing. It looked again, five times within 10 ms, which a writer
that rolls with every append outruns; and where it was patient, its patience was 2 s of time, which may pass
without a look while a process is stopped.

Now it reads the checkpoints first, new segments behind the last do not disturb a look, and it believes in
damage when two whole looks agree, however long they took.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time

import pytest
from tests.logdir.helpers import Child, QuickFiles, open_store, values

import logstore
from logstore.config import TopicConfig
from logstore.partition.watching import read_only

ROLLING = TopicConfig(segment_bytes=300, flush_ms=1, retention_ms=-1)


class AfterListing(QuickFiles):
    """Something happens behind the listing of a partition."""

    def __init__(self):
        self.action = None

    def list_directory(self, path):
        found = super().list_directory(path)
        if self.action is not None and path.endswith("/t-0"):
            self.action()
        return found


@pytest.fixture
def log(tmp_path):
    with open_store(tmp_path / "store") as store:
        yield store.create_topic("t", config=ROLLING)[0]


def append(log, count=1):
    for _ in range(count):
        log.extend([b"%d" % log.log_end_offset * 60])


def test_a_writer_that_rolls_and_stores_its_recovery_point_during_every_look(log, tmp_path):
    append(log, 3)
    files = AfterListing()
    with logstore.open(tmp_path / "store", read_only=True, files=files) as reader:
        seen = reader["t"][0]
        listings = itertools.count()

        def roll():
            if next(listings) % 2:  # behind the second listing of a look, which found the same as the first
                append(log)
                log.checkpoint()

        for _ in range(10):
            append(log)
            files.action = roll
            end = log.log_end_offset
            assert seen.log_end_offset >= end
            files.action = None
            assert seen.log_end_offset == log.log_end_offset
        assert log.log_end_offset > 3 + 10 + 5
        assert values(seen) == values(log)


def test_a_process_that_was_stopped_between_two_looks_looks_again(log, tmp_path, monkeypatch):
    """The writer is in the middle of a change at the first look, and the reader is stopped behind it."""
    append(log, 3)
    files = AfterListing()
    with logstore.open(tmp_path / "store", read_only=True, files=files) as reader:
        seen, now = reader["t"][0], time.monotonic
        stopped = [0.0]
        monkeypatch.setattr(read_only.time, "monotonic", lambda: now() + stopped[0])
        disturbances = [1, 1, 1]
        last = sorted((tmp_path / "store" / "t-0").glob("*.log"))[0]

        def disturb():
            if disturbances:
                disturbances.pop()
                stopped[0] += 2.3
                hidden = last.with_suffix(".log.deleted")
                os.rename(last, hidden) if last.exists() else os.rename(hidden, last)

        files.action = disturb
        disturbances.append(1)
        assert seen.log_end_offset == 3
        files.action = None
        assert values(seen) == values(log)


WRITER = """
import os, sys, time
import logstore
import logstore.files
logstore.files._flush_descriptor = os.fsync = lambda descriptor: None  # what is written counts, and how often
with logstore.open(sys.argv[1]) as store:
    config = logstore.TopicConfig(segment_bytes=300, flush_ms=1, retention_ms=-1)
    log = store.require_topic("t", config=config)[0]
    print("ready")
    seconds = float(sys.stdin.readline())
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        log.extend([(b"%d" % log.log_end_offset).ljust(180)])
        if log.log_end_offset % 3 == 0:
            log.checkpoint()
    print(log.log_end_offset)
"""

FOLLOWER = """
import sys
import logstore
with logstore.open(sys.argv[1], read_only=True) as store:
    log = store["t"][0]
    print("ready")
    expected = 0
    for record in log.follow(0, timeout=float(sys.argv[2])):
        assert (record.offset, record.value) == (expected, (b"%d" % expected).ljust(180)), record
        expected += 1
        if expected % 50 == 0:
            with logstore.open(sys.argv[1], read_only=True) as again:  # a new reader, too
                assert again["t"][0].log_end_offset >= expected
    print(expected)
"""


def run_beside(path, seconds, stop, timeout=1.0):
    """A writer and a follower; ``stop`` is given both. How far each of them got."""
    with Child(WRITER, path) as writer:
        assert writer.hear() == "ready"
        with Child(FOLLOWER, path, timeout) as follower:
            assert follower.hear() == "ready"
            writer.say(str(seconds))
            stopping = threading.Thread(target=stop, args=(writer, follower))
            stopping.start()
            written = writer.hear()
            stopping.join()
            return int(written), int(follower.hear() or -1)


def test_a_follower_goes_on_beside_a_writer_that_rolls_with_every_append(tmp_path):
    written, followed = run_beside(tmp_path / "store", 0.5, lambda *_: None)
    assert written == followed > 2


@pytest.mark.slow
def test_a_follower_goes_on_though_either_side_is_stopped(tmp_path):
    chance = random.Random(time.time_ns())

    def stop(*both):
        for seconds in (0.1, 2.3, 0.2, 2.3, 0.1):
            time.sleep(chance.uniform(0.05, 0.4))
            stopped = chance.choice(both).pid
            os.kill(stopped, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(stopped, signal.SIGCONT)

    written, followed = run_beside(tmp_path / "store", 8, stop, timeout=4.0)
    assert written == followed > 100
