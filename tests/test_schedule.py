"""Background work: order, repetition, failures, and the thread."""

import logging
import sys
import threading
import time
import weakref

import pytest

import logstore
from logstore import schedule
from logstore.clock import SystemClock
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import RetriableError
from logstore.files import OsFile
from logstore.schedule import Scheduler
from logstore.testing import ManualClock
from logstore.turns import FLUSHED_AT_A_TIME
from logstore.warning import is_due


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def scheduler(clock):
    return Scheduler(clock)


@pytest.fixture
def ran():
    return []


def test_an_action_runs_once_after_its_delay(scheduler, clock, ran):
    scheduler.after(10, "once", lambda: ran.append("once"))
    clock.advance(9)
    assert scheduler.run_due() == 0
    clock.advance(1)
    assert scheduler.run_due() == 1
    clock.advance(100)
    assert scheduler.run_due() == 0
    assert ran == ["once"]


def test_actions_run_in_the_order_of_their_times(scheduler, clock, ran):
    for delay in (30, 10, 20):
        scheduler.after(delay, "task", lambda delay=delay: ran.append(delay))
    clock.advance(30)
    scheduler.run_due()
    assert ran == [10, 20, 30]


def test_actions_of_the_same_time_run_in_the_order_in_which_they_came(scheduler, clock, ran):
    for number in range(5):
        scheduler.after(10, "task", lambda number=number: ran.append(number))
    clock.advance(10)
    scheduler.run_due()
    assert ran == [0, 1, 2, 3, 4]


def test_a_repeated_action_runs_each_interval_first_after_one(scheduler, clock, ran):
    scheduler.every(10, "again", lambda: ran.append(clock.monotonic_ms()))
    for _ in range(35):
        clock.advance(1)
        scheduler.run_due()
    assert ran == [10, 20, 30]


def test_what_was_missed_is_not_made_up_for(scheduler, clock, ran):
    scheduler.every(10, "again", lambda: ran.append(1))
    clock.advance(100)
    assert scheduler.run_due() == 1


def test_a_cancelled_action_does_not_run(scheduler, clock, ran):
    scheduler.after(10, "once", lambda: ran.append(1)).cancel()
    clock.advance(10)
    assert scheduler.run_due() == 0
    assert ran == []


def test_a_repeated_action_may_cancel_itself(scheduler, clock, ran):
    task = scheduler.every(10, "again", lambda: (ran.append(1), task.cancel()))
    for _ in range(3):
        clock.advance(10)
        scheduler.run_due()
    assert ran == [1]


def test_an_action_may_schedule_another(scheduler, clock, ran):
    scheduler.after(10, "first", lambda: scheduler.after(0, "second", lambda: ran.append(1)))
    clock.advance(10)
    assert scheduler.run_due() == 2
    assert ran == [1]


def test_an_error_is_logged_and_kept_and_the_action_tried_again(scheduler, clock, ran, caplog):
    def fail_once():
        ran.append(1)
        if len(ran) == 1:
            raise OSError("disk on fire")

    task = scheduler.every(10, "flush orders-0", fail_once)
    other = scheduler.after(10, "other", lambda: ran.append("other"))
    clock.advance(10)
    with caplog.at_level(logging.WARNING, "logstore"):
        scheduler.run_due()
    assert "flush orders-0 failed: disk on fire" in caplog.text
    assert isinstance(task.last_error, OSError)
    assert other.last_error is None
    clock.advance(10)
    scheduler.run_due()
    assert task.last_error is None
    assert ran == [1, "other", 1]


def test_what_fails_again_and_again_is_logged_once_a_minute(scheduler, clock, caplog, monkeypatch):
    seconds, wrong = [1000.0], ["no room"]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])

    def fail():
        if wrong:
            raise OSError(wrong[0])

    def run():
        caplog.clear()
        clock.advance(10)
        assert scheduler.run_due() == 1
        return [record.message.partition("failed: ")[2] for record in caplog.records]

    scheduler.every(10, "task", fail)
    with caplog.at_level(logging.WARNING, "logstore"):
        assert [run(), run()] == [["no room"], []]
        wrong[:] = ["no disk"]
        assert [run(), run()] == [["no disk"], []]
        seconds[0] += 60
        assert [run(), run()] == [["no disk"], []]
        assert [wrong.clear(), run(), wrong.append("no disk"), run()] == [None, [], None, ["no disk"]]


def test_what_was_told_long_ago_is_forgotten(monkeypatch):
    seconds, told_at = [1000.0], {}
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    for number in range(1000):
        assert is_due(told_at, f"error {number}")
        seconds[0] += 1
    assert len(told_at) <= 100
    assert not is_due(told_at, "error 999")


def test_the_wall_clock_may_jump(scheduler, clock, ran):
    scheduler.after(10, "once", lambda: ran.append(1))
    clock.jump(-10_000)
    clock.advance(10)
    scheduler.run_due()
    assert ran == [1]


def test_after_stop_nothing_starts(scheduler, clock, ran):
    scheduler.after(10, "before", lambda: ran.append(1))
    scheduler.stop()
    scheduler.after(10, "after", lambda: ran.append(2))
    scheduler.stop()
    clock.advance(10)
    assert scheduler.run_due() == 0
    assert ran == []


# Several at a time


@pytest.fixture
def together(clock, monkeypatch):
    """Four actions that wait for the disk may run together, however short they are."""
    monkeypatch.setattr(schedule, "WORTH_THREADS_SECONDS", -1)
    return Scheduler(clock, at_a_time=4)


def test_what_waits_for_the_disk_runs_together(together, ran):
    barrier = threading.Barrier(4, timeout=5)
    for number in range(8):
        together.after(0, "waits", lambda n=number: (barrier.wait(), ran.append(n)), is_waiting=True)
    assert together.run_due() == 8
    assert sorted(ran) == list(range(8))


def test_nothing_else_runs_beside_it(together, ran):
    for name, is_waiting in [("a", False), ("b", True), ("c", False), ("d", True)]:
        together.after(0, name, lambda name=name: ran.append(name), is_waiting=is_waiting)
    assert together.run_due() == 4
    assert ran[0] == "a"
    assert sorted(ran[1:3]) == ["b", "d"]
    assert ran[3] == "c"


def test_one_at_a_time_they_run_in_the_order_of_their_times(scheduler, ran):
    for name, is_waiting in [("a", True), ("b", False), ("c", True), ("d", False)]:
        scheduler.after(0, name, lambda name=name: ran.append(name), is_waiting=is_waiting)
    scheduler.run_due()
    assert ran == ["a", "b", "c", "d"]


def test_what_may_run_earlier_runs_with_others_that_wait(together, clock, ran):
    """Not by itself, and not earlier than it may."""
    for name, delay_ms in (("soon", 105), ("late", 120)):
        together.after(delay_ms, name, lambda name=name: ran.append(name), is_waiting=True, early_ms=10)
    together.after(100, "due", lambda: ran.append("due"), is_waiting=True)
    together.after(106, "at its time", lambda: ran.append("at its time"), is_waiting=True)
    clock.advance(99)
    assert together.run_due() == 0
    clock.advance(1)
    assert together.run_due() == 2
    assert sorted(ran) == ["due", "soon"]
    clock.advance(6)
    together.run_due()
    assert ran[2:] == ["at its time"]
    clock.advance(14)
    together.run_due()
    assert ran[3:] == ["late"]


def test_one_that_was_cancelled_is_left_out(together, clock, ran):
    together.after(1, "cancelled", lambda: ran.append("cancelled"), is_waiting=True).cancel()
    for is_waiting in (False, True):
        together.after(2, "runs", lambda: ran.append("runs"), is_waiting=is_waiting)
    clock.advance(2)
    assert together.run_due() == 2
    assert ran == ["runs", "runs"]


def test_short_ones_take_turns_in_one_thread(clock, ran, monkeypatch):
    monkeypatch.setattr(schedule, "WORTH_THREADS_SECONDS", 60)
    scheduler = Scheduler(clock, at_a_time=4)
    for _ in range(8):
        scheduler.after(0, "waits", lambda: ran.append(threading.current_thread()), is_waiting=True)
    scheduler.run_due()
    assert set(ran) == {threading.current_thread()}


def test_one_that_fails_keeps_no_other_from_running(together, ran):
    def fail():
        raise ValueError("wrong")

    tasks = [together.after(0, "waits", action, is_waiting=True) for action in (fail, lambda: ran.append(1))]
    together.run_due()
    assert ran == [1]
    assert [str(task.last_error) for task in tasks] == ["wrong", "None"]


def test_a_stop_begins_none_of_those_that_were_taken(clock, ran):
    scheduler = Scheduler(clock)
    scheduler.after(0, "waits", scheduler.stop, is_waiting=True)
    scheduler.after(0, "waits", lambda: ran.append(1), is_waiting=True)
    scheduler.run_due()
    assert ran == []


def test_flushes_of_many_partitions_run_together(tmp_path, monkeypatch):
    lock, running, most = threading.Lock(), [0], [0]

    def slow(file):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1

    config = StoreConfig(topic=TopicConfig(flush_ms=1))
    with logstore.open(tmp_path / "store", config=config) as store:
        topic = store.create_topic("t", partitions=16)
        with monkeypatch.context() as patch:
            patch.setattr(OsFile, "flush", slow)
            for turn in range(3):
                for log in topic:
                    log.append(b"%d" % turn)
                deadline = time.monotonic() + 10
                while any(log.durable_offset <= turn for log in topic):
                    assert time.monotonic() < deadline
                    time.sleep(0.005)
    assert 2 <= most[0] <= FLUSHED_AT_A_TIME


# The thread


@pytest.fixture
def threaded():
    scheduler = Scheduler(SystemClock())
    yield scheduler
    scheduler.stop()


def background_threads():
    return [thread for thread in threading.enumerate() if thread.name == "logstore-background"]


def test_without_work_there_is_no_thread(threaded):
    before = len(background_threads())
    assert threaded.run_due() == 0
    assert len(background_threads()) == before


def test_with_the_system_clock_a_thread_runs_what_is_due(threaded):
    done = threading.Event()
    threaded.after(60_000, "later", lambda: None)
    threaded.after(1, "soon", done.set)
    assert done.wait(5)


def test_tasks_that_are_cancelled_hold_nothing_and_do_not_pile_up(threaded):
    """As those of fetches that were answered: a client may have been ready to wait for weeks."""
    left = []
    for _ in range(5_000):
        held = _Held()
        task = schedule.Task("wait", held.note, None)
        threaded.promptly(2**31, task)
        task.cancel()
        left.append(weakref.ref(held))
    del held
    assert not any(each() for each in left)
    assert len(threaded._prompt._queue) < 1_000
    done = threading.Event()
    threaded.promptly(1, schedule.Task("soon", done.set, None))
    assert done.wait(5)


def test_at_the_end_of_the_program_threads_may_come_and_go(monkeypatch):
    """As those of producers that rest. The exit function failed, and ended no thread."""
    monkeypatch.setattr(schedule, "_with_threads", weakref.WeakKeyDictionary())
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            _rest_while_others_leave()
    finally:
        sys.setswitchinterval(before)


def _rest_while_others_leave():
    owners, rested, begins = [_Held() for _ in range(2_000)], set(), threading.Event()
    for owner in owners:
        schedule.rest_at_exit(owner, rested.add)

    def leave():
        begins.wait()
        for owner in owners[500:]:
            schedule.rest_no_more(owner)

    leaving = threading.Thread(target=leave)
    leaving.start()
    begins.set()
    schedule._rest_all()
    leaving.join()
    assert rested >= {*owners[:500]}


class _Held:
    def note(self):
        pass


def test_a_repeated_action_is_repeated_by_the_thread(threaded):
    enough, count = threading.Event(), []
    threaded.every(1, "again", lambda: (count.append(1), len(count) >= 3 and enough.set()))
    assert enough.wait(5)


def test_an_error_does_not_end_the_thread(threaded):
    done = threading.Event()

    def fail():
        raise ValueError("wrong")

    threaded.after(0, "fails", fail)
    threaded.after(5, "works", done.set)
    assert done.wait(5)


@pytest.mark.parametrize("delay_ms", [2**63 - 1, 2**63 // 1_000_000, 10**12])
def test_what_is_due_in_centuries_does_not_end_the_thread(threaded, delay_ms):
    done = threading.Event()
    threaded.every(delay_ms, "never", lambda: None)
    time.sleep(0.02)
    threaded.after(5, "works", done.set)
    assert done.wait(5)


class _LoggingThatFails(logging.Filter):
    def filter(self, record):
        raise OSError("no log today")


@pytest.mark.parametrize("error", [ValueError("wrong"), SystemExit(1)])
def test_no_error_ends_the_thread_or_what_is_repeated(threaded, error):
    enough, count = threading.Event(), []

    def fail():
        count.append(1)
        if len(count) >= 3:
            enough.set()
        raise error

    logger, failing = logging.getLogger("logstore"), _LoggingThatFails()
    logger.addFilter(failing)
    try:
        threaded.every(1, "fails", fail)
        assert enough.wait(5)
    finally:
        logger.removeFilter(failing)


def test_without_a_thread_an_action_is_refused_and_the_next_tries_again(threaded, monkeypatch):
    done = threading.Event()

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RetriableError, match="no thread"):
            threaded.after(0, "refused", lambda: None)
        other = Scheduler(SystemClock())
        with pytest.raises(RetriableError):
            other.every(1, "refused", lambda: None)
        other.stop()  # does not wait for what never began
    threaded.after(0, "works", done.set)
    assert done.wait(5)


def test_stop_waits_for_the_action_under_way(threaded):
    began, may_end, ended = threading.Event(), threading.Event(), []
    threaded.after(0, "long", lambda: (began.set(), may_end.wait(5), ended.append(1)))
    assert began.wait(5)
    threading.Timer(0.02, may_end.set).start()
    threaded.stop()
    assert ended == [1]


def test_the_action_itself_may_stop_the_scheduler(threaded):
    done = threading.Event()
    threaded.after(0, "stops", lambda: (threaded.stop(), done.set()))
    assert done.wait(5)


def test_the_thread_does_not_keep_the_process_alive(threaded):
    threaded.after(60_000, "later", lambda: None)
    assert all(thread.daemon for thread in background_threads())
