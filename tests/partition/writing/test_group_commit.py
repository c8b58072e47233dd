"""One fsync for everybody who waits."""

import signal
import threading
import time
from contextlib import contextmanager

import pytest

from logstore.errors import StorageError
from logstore.partition.writing.group_commit import GroupCommit
from tests.partition.helpers_rules import WatchedFiles, offsets_of, open_log


class Appended:
    """A pretended log: what is appended, what is durable, and how often it was flushed."""

    def __init__(self, **options):
        self.end = 0
        self.durable_offset = 0
        self.flush_count = 0
        self.fault = None
        self.is_flushing = threading.Event()
        self.may_finish = threading.Event()
        self.may_finish.set()
        self.commit = GroupCommit(self.flush, self, **options)

    def flush(self):
        self.flush_count += 1
        target = self.end
        self.is_flushing.set()
        self.may_finish.wait(10)
        if self.fault is not None:
            raise self.fault
        self.durable_offset = target

    def begin_flush(self):
        """The thread of a waiter whose flush of one record is under way, and finishes when it may."""
        self.end = 1
        self.may_finish.clear()
        threads = in_threads(lambda: self.commit.wait_until_durable(1))
        self.is_flushing.wait(10)
        return threads

    def finish_flush(self, threads):
        self.may_finish.set()
        join(threads)


def in_threads(*actions):
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    return threads


def join(threads):
    for thread in threads:
        thread.join(30)


class Interrupt(BaseException):
    pass


def interrupt():
    raise Interrupt


@contextmanager
def interrupted(by=interrupt):
    """The calling thread is interrupted in a moment."""
    before = signal.signal(signal.SIGALRM, lambda *_: by())
    try:
        with pytest.raises(Interrupt), _in_a_moment():
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _in_a_moment():
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    yield


def test_what_is_durable_is_not_flushed_again():
    log = Appended()
    log.durable_offset = 5
    log.commit.wait_until_durable(5)
    assert log.flush_count == 0


def test_a_single_waiter_flushes_itself():
    log = Appended()
    log.end = 3
    log.commit.wait_until_durable(3)
    assert (log.durable_offset, log.flush_count) == (3, 1)


def test_all_who_come_during_a_flush_share_the_next():
    log = Appended()
    threads = log.begin_flush()
    log.end = 20
    threads += in_threads(*[lambda n=n: log.commit.wait_until_durable(n) for n in range(2, 21)])
    time.sleep(0.05)
    log.finish_flush(threads)
    assert (log.durable_offset, log.flush_count) == (20, 2)


def test_a_waiter_that_is_covered_by_the_flush_under_way_flushes_nothing():
    log = Appended()
    log.end = 5
    log.may_finish.clear()
    threads = in_threads(lambda: log.commit.wait_until_durable(5))
    log.is_flushing.wait(10)
    threads += in_threads(lambda: log.commit.wait_until_durable(4))
    log.finish_flush(threads)
    assert log.flush_count == 1


def test_each_waiter_learns_of_a_failing_flush_from_its_own():
    log = Appended()
    log.end = 5
    log.fault = StorageError(5, "broken")
    failures = []

    def wait():
        try:
            log.commit.wait_until_durable(5)
        except StorageError as error:
            failures.append(error)

    join(in_threads(*[wait] * 4))
    assert len(failures) == log.flush_count == 4
    log.fault = None
    log.commit.wait_until_durable(5)


def test_a_flush_that_does_not_reach_the_offset_returns():
    log = Appended()
    log.end = 2  # the rest was truncated
    log.commit.wait_until_durable(10)
    assert log.flush_count == 1


def test_what_was_durable_once_counts_no_more_after_a_truncation():
    log = Appended()
    log.end = 10
    log.commit.wait_until_durable(10)
    log.end = log.durable_offset = 4
    log.end = 8
    log.commit.wait_until_durable(8)
    assert log.durable_offset == 8


def test_a_waiter_that_is_interrupted_leaves_the_line():
    log = Appended()
    threads = log.begin_flush()
    log.end = 3
    with interrupted():
        log.commit.wait_until_durable(2)
    threads += in_threads(lambda: log.commit.wait_until_durable(3))
    log.finish_flush(threads)
    assert (log.durable_offset, log.flush_count) == (3, 2)


def test_a_waiter_that_is_interrupted_when_it_is_served_wakes_the_next():
    log = Appended()
    (leader,) = log.begin_flush()
    following = []

    def be_served_and_interrupted():
        following.extend(in_threads(*[lambda: log.commit.wait_until_durable(1)] * 3))
        while len(log.commit._waiting) < 4:
            time.sleep(0.001)
        log.may_finish.set()
        leader.join(10)
        raise Interrupt

    with interrupted(by=be_served_and_interrupted):
        log.commit.wait_until_durable(1)
    join(following)
    assert [thread.is_alive() for thread in following] == [False] * 3
    assert log.flush_count == 1


class InterruptedOnce(Appended):
    def flush(self):
        super().flush()
        if self.flush_count == 1:
            self.durable_offset = 0
            raise Interrupt


def test_a_leader_that_is_interrupted_hands_over():
    log = InterruptedOnce()
    log.end = 1
    log.may_finish.clear()
    raised = []

    def lead():
        try:
            log.commit.wait_until_durable(1)
        except Interrupt as error:
            raised.append(error)

    threads = in_threads(lead)
    log.is_flushing.wait(10)
    log.end = 2
    threads += in_threads(lambda: log.commit.wait_until_durable(2))
    while not log.commit._waiting:
        time.sleep(0.001)
    log.finish_flush(threads)
    assert (len(raised), log.durable_offset, log.flush_count) == (1, 2, 2)


# Waiting for company


class Timed(Appended):
    """Flushes take some time."""

    def __init__(self, seconds, **options):
        super().__init__(**options)
        self.seconds = seconds

    def flush(self):
        target = self.end
        time.sleep(self.seconds)
        self.flush_count += 1
        self.durable_offset = target

    def append(self):
        self.end += 1
        self.commit.wait_until_durable(self.end)


def test_threads_that_flush_again_and_again_do_it_together():
    log = Timed(0.02, patience_seconds=1)

    def append_ten():
        for _ in range(10):
            log.append()

    join(in_threads(*[append_ten] * 4))
    assert log.durable_offset == log.end == 40
    assert log.flush_count < 16  # in two halves that take turns: 20


def test_nobody_waits_longer_for_company_than_a_flush_takes():
    log = Timed(0.05, patience_seconds=60)
    started = time.perf_counter()
    threads = in_threads(*[log.append] * 3)  # two of them line up, and the first does not come back
    join(threads)
    assert log.durable_offset == 3
    assert time.perf_counter() - started < 30


def test_who_flushes_alone_waits_for_nobody():
    log = Timed(0.01, patience_seconds=60)
    for _ in range(3):
        log.append()
    assert log.commit._missing_count == 0
    assert log.flush_count == 3


def test_a_leader_that_is_interrupted_while_it_waits_for_company_hands_over():
    log = Timed(5, patience_seconds=60)
    log.commit._present_count, log.commit._flush_seconds = 3, 60
    log.end = 1
    with interrupted():
        log.commit.wait_until_durable(1)
    assert log.flush_count == 0
    log.seconds = 0
    join(in_threads(*[log.append] * 4))
    assert log.durable_offset == 5


class SlowFiles(WatchedFiles):
    def on(self, operation, path):
        if operation == "flush":
            time.sleep(0.003)
        super().on(operation, path)


@pytest.mark.parametrize("settings", [{}, {"flush_messages": 1}])
def test_threads_that_append_with_flush_share_fsyncs(tmp_path, settings):
    files = SlowFiles()
    log = open_log(tmp_path / "t-0", files=files, **settings)
    files.operations.clear()

    def append_ten():
        for _ in range(10):
            offset = log.append(b"a", flush=not settings)
            assert log.durable_offset > offset

    join(in_threads(*[append_ten] * 8))
    assert offsets_of(log) == list(range(80))
    assert files.count("flush", ".log") < 60
