"""The two clocks."""

import time

from logstore.clock import SystemClock
from logstore.testing import ManualClock


def test_the_system_clock_tells_milliseconds_since_the_epoch():
    before = time.time()
    now_ms = SystemClock().now_ms()
    assert type(now_ms) is int
    assert before * 1000 - 1 <= now_ms <= time.time() * 1000


def test_the_system_clocks_monotonic_time_goes_on():
    clock = SystemClock()
    first = clock.monotonic_ms()
    time.sleep(0.003)
    assert 2 <= clock.monotonic_ms() - first < 5000
    assert type(first) is int


def test_a_manual_clock_stands_until_it_is_advanced():
    clock = ManualClock(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (5, 0)
    clock.advance(3)
    assert (clock.now_ms(), clock.monotonic_ms()) == (8, 3)


def test_a_jump_moves_only_the_wall_clock():
    clock = ManualClock(5)
    clock.jump(-4)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1, 0)
