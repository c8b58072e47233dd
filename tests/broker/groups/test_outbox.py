"""Calls to the outside: in order, without the lock, by one thread at a time."""

from __future__ import annotations

import logging
import threading

import pytest

from logstore.broker.groups.outbox import Outbox


@pytest.fixture
def outbox():
    return Outbox(threading.Lock())


def test_calls_are_made_after_the_change_without_the_lock(outbox):
    seen = []

    def change():
        outbox.add(lambda: seen.append(outbox._lock.locked()))
        seen.append("changed")

    outbox.turn(change)
    assert seen == ["changed", False]


def test_a_call_may_lead_to_another_change_whose_calls_come_later(outbox):
    seen = []

    def first():
        outbox.turn(lambda: outbox.add(lambda: seen.append("third")))
        seen.append("first")

    def change():
        outbox.add(first)
        outbox.add(lambda: seen.append("second"))

    outbox.turn(change)
    assert seen == ["first", "second", "third"]


def test_a_call_that_fails_keeps_no_other_from_being_made(outbox, caplog):
    seen = []

    def fail():
        raise ValueError("wrong")

    def change():
        outbox.add(fail)
        outbox.add(lambda: seen.append(1))

    with caplog.at_level(logging.WARNING, "logstore"):
        outbox.turn(change)
    assert seen == [1]
    assert "could not be given: ValueError: wrong" in caplog.text


def test_an_interrupted_call_leaves_the_others_to_the_next_one_who_sends(outbox):
    seen = []

    def interrupt():
        raise KeyboardInterrupt

    def change():
        outbox.add(interrupt)
        outbox.add(lambda: seen.append(1))

    with pytest.raises(KeyboardInterrupt):
        outbox.turn(change)
    assert seen == []
    outbox.send()
    assert seen == [1]


def test_a_change_that_fails_is_raised_and_what_it_added_is_sent(outbox):
    seen = []

    def change():
        outbox.add(lambda: seen.append(1))
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        outbox.turn(change)
    assert seen == [1]


def test_while_a_thread_is_in_a_call_another_one_leaves_its_calls_to_it(outbox):
    seen, is_in, may_go = [], threading.Event(), threading.Event()

    def slow():
        is_in.set()
        assert may_go.wait(10)
        seen.append("slow")

    thread = threading.Thread(target=outbox.turn, args=(lambda: outbox.add(slow),))
    thread.start()
    assert is_in.wait(10)
    outbox.turn(lambda: outbox.add(lambda: seen.append(threading.current_thread())))
    assert seen == []
    may_go.set()
    thread.join()
    assert seen == ["slow", thread]
