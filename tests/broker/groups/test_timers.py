"""Deadlines: cheap to move, and never heard of again after they were stopped."""

from __future__ import annotations

import threading

import pytest

from logstore.broker.timers import Countdown, ScheduledTimers
from logstore.clock import SystemClock
from logstore.errors import RetriableError
from logstore.schedule import Scheduler
from tests.broker.groups.stage import Stage


@pytest.fixture
def stage():
    return Stage()


@pytest.fixture
def ended():
    return []


@pytest.fixture
def countdown(stage, ended):
    return Countdown(stage.timers, lambda change: change(), lambda: ended.append(stage.timers.monotonic_ms()))


def test_it_ends_when_its_time_is_over(stage, countdown, ended):
    countdown.start(100)
    stage.wait(99)
    assert ended == []
    stage.wait(1000)
    assert ended == [100]


def test_a_later_deadline_costs_no_timer(stage, countdown, ended):
    for _ in range(1000):
        countdown.start(10_000)
        stage.wait(9)
    assert stage.timers.made_count == 1
    stage.wait(1000)
    assert stage.timers.made_count == 2
    assert ended == []
    stage.wait(20_000)
    assert ended == [999 * 9 + 10_000]


def test_an_earlier_deadline_is_kept(stage, countdown, ended):
    countdown.start(10_000)
    countdown.start(100)
    assert len(stage.timers.armed) == 1
    stage.wait(20_000)
    assert ended == [100]


def test_it_can_be_stopped_and_started_again(stage, countdown, ended):
    countdown.start(100)
    countdown.stop()
    assert not stage.timers.armed
    stage.wait(1000)
    countdown.start(100)
    stage.wait(1000)
    assert ended == [1100]


def test_a_timer_that_was_cancelled_too_late_does_not_count(stage, ended):
    late = []
    countdown = Countdown(stage.timers, late.append, lambda: ended.append(1))
    countdown.start(100)
    stage.wait(100)  # it waits for the lock
    countdown.stop()
    late.pop()()
    countdown.start(100)
    assert ended == []
    stage.wait(100)
    late.pop()()
    assert ended == [1]


def test_with_the_system_clock_a_thread_of_the_scheduler_runs_it():
    clock = SystemClock()
    scheduler = Scheduler(clock)
    try:
        ran = threading.Event()
        timers = ScheduledTimers(scheduler, clock)
        timers.after(60_000, ran.set).cancel()
        timers.after(1, ran.set)
        assert ran.wait(10)
    finally:
        scheduler.stop()


def test_without_a_thread_it_fails_at_once(monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    clock = SystemClock()
    with pytest.raises(RetriableError, match="no thread can be started"):
        ScheduledTimers(Scheduler(clock), clock)
