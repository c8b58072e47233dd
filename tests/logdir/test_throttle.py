"""The throttle's arithmetic, on a clock set by hand."""

import pytest

from logstore.config import UNLIMITED
from logstore.logdir.throttle import CREDIT_MS, LEAST_MS, SharedThrottle
from logstore.testing import ManualClock

RATE = 1_000_000  # bytes per second: a thousand per millisecond


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def throttle(clock):
    clock.advance(10_000)
    return SharedThrottle(RATE, clock)


def test_bytes_take_their_time(throttle):
    assert throttle.delay_ms(50_000) == 50


def test_who_waited_may_go_on(throttle, clock):
    clock.advance(throttle.delay_ms(50_000))
    assert throttle.delay_ms(20_000) == 20


def test_who_does_not_wait_owes_more_and_more(throttle):
    assert [throttle.delay_ms(50_000) for _ in range(3)] == [50, 100, 150]


def test_short_delays_gather(throttle):
    delays = [throttle.delay_ms(3_000) for _ in range(4)]
    assert delays == [0, 0, 0, 12]
    assert LEAST_MS == 10


def test_time_without_use_counts_for_a_moment_only(throttle, clock):
    clock.advance(60_000)
    assert throttle.delay_ms(CREDIT_MS * 1_000) == 0
    assert throttle.delay_ms(50_000) == 50


def test_over_time_it_is_the_rate_however_unevenly_bytes_come(throttle, clock):
    began_ms, taken_bytes = clock.monotonic_ms(), 0
    for number in range(1_000):
        size_bytes = (number * 7919) % 70_000
        clock.advance(number % 3)  # the work itself takes time
        clock.advance(throttle.delay_ms(size_bytes))
        taken_bytes += size_bytes
    passed_ms = clock.monotonic_ms() - began_ms
    assert passed_ms == pytest.approx(taken_bytes / 1_000, abs=LEAST_MS)


def test_a_rate_beyond_every_disk_is_none(clock):
    throttle = SharedThrottle(UNLIMITED, clock)
    assert [throttle.delay_ms(2**40) for _ in range(3)] == [0, 0, 0]


def test_a_byte_per_second_is_a_rate_too(clock):
    assert SharedThrottle(1, clock).delay_ms(3) == 3_000
