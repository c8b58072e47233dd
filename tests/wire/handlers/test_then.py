"""A request that follows another one, while either of them waits."""

from __future__ import annotations

import itertools

import pytest

from logstore.broker.pending import Answered, Promise, wait_for
from logstore.wire.handlers.then import then_ask


class Throttled(Promise):
    def __init__(self, throttle_time_ms):
        super().__init__()
        self.throttle_time_ms = throttle_time_ms


@pytest.mark.parametrize(("first_waits", "second_waits"), list(itertools.product((False, True), repeat=2)))
def test_the_caller_is_woken_for_each(first_waits, second_waits):
    first, second = Promise(), Promise()
    asked = []

    def ask(found):
        asked.append(found)
        return second if second_waits else Answered(found + 1)

    pending = then_ask(first if first_waits else Answered(1), ask)
    wakes = []
    pending.on_wake(lambda: wakes.append("woken"))
    if first_waits:
        assert (pending.poll(), asked, wakes) == (None, [], [])
        first.complete(1)
    assert wakes == ["woken"]
    if second_waits:
        assert pending.poll() is None
        assert wakes == ["woken"]
        second.complete(2)
        assert wakes == ["woken", "woken"]
    assert pending.poll() == pending.poll() == 2
    assert asked == [1]
    assert wait_for(pending) == 2


def test_one_who_begins_to_wait_at_the_second():
    second = Promise()
    pending = then_ask(Answered(1), lambda _: second)
    assert pending.poll() is None
    wakes = []
    pending.on_wake(lambda: wakes.append("woken"))
    assert wakes == []
    second.complete(2)
    assert (wakes, pending.poll()) == (["woken"], 2)


def test_a_cancelled_one_wakes_nobody():
    for is_first in (True, False):
        waits = Promise()
        pending = then_ask(waits if is_first else Answered(1), lambda _, waits=waits: waits)
        assert pending.poll() is None
        wakes = []
        pending.on_wake(lambda wakes=wakes: wakes.append("woken"))
        pending.cancel()
        waits.complete(1)
        assert wakes == []


@pytest.mark.parametrize(("first", "second"), [(5, 3), (3, 5)])
def test_the_longer_throttle_counts(first, second):
    one, two = Throttled(first), Throttled(second)
    pending = then_ask(one, lambda _: two)
    one.complete(1)
    two.complete(2)
    assert (pending.poll(), pending.throttle_time_ms) == (2, 5)
