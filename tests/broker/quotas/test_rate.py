"""Rates over windows, beside a plain model that keeps every amount and does exact sums."""

from fractions import Fraction
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logstore.broker.quotas.limits import Limits
from logstore.broker.quotas.precedence import Client
from logstore.broker.quotas.rate import LONGEST_DELAY_MS, WindowedRate
from logstore.logdir.quotas import DEFAULT, REQUEST_PERCENTAGE, QuotaEntity
from logstore.testing import ManualClock


class PlainRate:
    """By the words of the module: nothing is forgotten, and everything is added up again, exactly."""

    def __init__(self, count, size_ms):
        self.count, self.size_ms, self.events, self.quota = count, size_ms, [], None

    def windows(self, now_ms):
        """The events of those that count now: of each [when, how much, until when its delay is]."""
        windows = []
        for event in self.events:
            if not windows or event[0] - windows[-1][0][0] >= self.size_ms:
                windows.append([])
            windows[-1].append(event)
        while windows and now_ms - max(until_ms for *_, until_ms in windows[0]) >= self.count * self.size_ms:
            del windows[0]
        return windows

    def charge(self, amount, quota, now_ms):
        """The delay."""
        if quota != self.quota:
            self._go_by(quota, now_ms)
        self.events.append([now_ms, amount, now_ms])
        return self._delay_ms(now_ms)

    def _go_by(self, quota, now_ms):
        """Delays by another quota do not count; what counts without them is paid for by this one."""
        self.quota = quota
        for window in self.windows(now_ms):
            for event in window:
                event[2] = min(event[2], window[0][0] + self.size_ms)
        counted = self.windows(now_ms)
        delay_ms = self._delay_ms(now_ms) if counted else 0
        for event in chain(*counted) if delay_ms else []:
            event[2] = now_ms + delay_ms

    def _delay_ms(self, now_ms):
        """By Kafka's formula."""
        windows = self.windows(now_ms)
        span_ms = now_ms - windows[0][0][0]
        while span_ms < (self.count - 1) * self.size_ms:
            span_ms += self.size_ms
        rate = Fraction(sum(amount for _, amount, _ in chain(*windows)) * 1000, span_ms)
        delay_ms = (rate - self.quota) / self.quota * span_ms
        return min(max(round(delay_ms), 0), LONGEST_DELAY_MS)

    def note_delay(self, delay_ms):
        """The delay that was told for the last amount."""
        self.events[-1][2] += delay_ms


some = settings(suppress_health_check=list(HealthCheck))

STEPS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 30), st.integers(0, 1_200), st.integers(0, 20_000)),
        st.one_of(st.just(0), st.integers(0, 10_000), st.integers(0, 10**12)),
        st.sampled_from((1, 7, 1_000, 123_456, 10**12)),
    ),
    max_size=60,
)


@some
@given(count=st.integers(2, 12), size_ms=st.sampled_from((1_000, 3_000)), steps=STEPS)
def test_delays_are_those_of_the_plain_model(count, size_ms, steps):
    rate, plain, now_ms = WindowedRate(count, size_ms), PlainRate(count, size_ms), 0
    for passed_ms, amount, quota in steps:
        now_ms += passed_ms
        assert rate.is_idle(now_ms) == (not plain.windows(now_ms))
        delay_ms = rate.charge(amount, quota, now_ms)
        assert abs(delay_ms - plain.charge(amount, quota, now_ms)) <= 1  # floating point
        plain.note_delay(delay_ms)


@pytest.mark.parametrize("at_ms", [20_000, 9_000_000, 9_990_000])
def test_after_a_quota_that_was_far_too_low_no_more_than_usual_comes_at_once(at_ms):
    """A window that waits for hours is no time in which nothing was used, as soon as the quota is another."""
    rate = WindowedRate(11, 1_000)
    assert rate.charge(10_000_000, 1_000, 0) == 9_990_000
    assert rate.charge(10_000_000, 1_000_000, at_ms) == 0
    assert rate.charge(1_000_000, 1_000_000, at_ms) == 1_000


def test_what_was_used_before_a_quota_was_lowered_is_paid_for_by_it():
    rate = WindowedRate(11, 1_000)
    for second in range(10):
        assert rate.charge(10_000, 10_000, second * 1_000) == 0
    assert rate.charge(1_000, 1_000, 10_000) == 91_000
    assert rate.charge(1, 1_000, 101_000) == 1
    assert rate.charge(1_000, 1_000, 101_001) == 1_000


def test_what_the_whole_windows_let_through_comes_at_once_and_no_more():
    rate = WindowedRate(11, 1_000)
    assert rate.charge(10_000, 1_000, 0) == 0
    assert rate.charge(1, 1_000, 0) == 1
    assert rate.charge(4_999, 1_000, 0) == 5_000


@some
@given(
    quota=st.integers(1_000, 100_000),
    sizes=st.lists(st.integers(1, 50_000), min_size=1, max_size=30),
    count=st.integers(2, 12),
)
def test_who_waits_as_told_stays_below_the_quota_and_what_the_windows_let_through(quota, sizes, count):
    """By any moment: what the windows let through, the quota for the time that has passed, and the last
    amount; and not much less."""
    rate, now_ms, sent = WindowedRate(count, 1_000), 0, 0
    for size in sizes * 10:
        sent += size
        assert sent <= quota * (count * 1_000 + now_ms) / 1_000 + size
        now_ms += rate.charge(size, quota, now_ms)
    assert sent >= 0.9 * quota * now_ms / 1_000


class TestLimits:
    def limits(self, **values):
        self.clock = ManualClock()
        limits = Limits(self.clock, window_count=11, window_ms=1_000)
        limits.put({QuotaEntity(None, DEFAULT): values})
        return limits

    def test_a_delay_for_time_is_one_window_at_most(self):
        limits = self.limits(request_percentage=10.0, producer_byte_rate=10)
        assert limits.charge(Client(), REQUEST_PERCENTAGE, 100.0) == 0  # a second of a thread, in ten
        assert limits.charge(Client(), REQUEST_PERCENTAGE, 5.0) == 500
        assert limits.charge(Client(), REQUEST_PERCENTAGE, 100.0) == 1_000
        assert limits.charge(Client(), "producer_byte_rate", 300) == 20_000

    def test_without_a_quota_nothing_is_measured(self):
        limits = self.limits(producer_byte_rate=1)
        assert limits.are_set
        assert limits.charge(Client(), "consumer_byte_rate", 10**9) == 0
        limits.put({})
        assert not limits.are_set
        assert limits.charge(Client(), "producer_byte_rate", 10**9) == 0

    def test_rates_of_clients_that_are_gone_are_forgotten(self):
        limits = self.limits(producer_byte_rate=10)
        for number in range(20_000):
            limits.charge(Client("u", str(number)), "producer_byte_rate", 200)
            self.clock.advance(11)
        assert len(limits._rates) <= 4_000  # 1,909 count at a time
        assert len(limits._applied) <= 4_000
        assert limits.charge(Client("u", "19999"), "producer_byte_rate", 0) > 0

    def test_clients_share_what_is_set_for_their_user(self):
        limits = self.limits()
        limits.put({QuotaEntity("alice"): {"producer_byte_rate": 10}})
        assert limits.charge(Client("alice", "a"), "producer_byte_rate", 100) == 0
        assert limits.charge(Client("alice", "b"), "producer_byte_rate", 10) == 1_000
        assert limits.charge(Client("bob", "b"), "producer_byte_rate", 1_000) == 0
