"""A rate over the last windows of time, and how long it takes to fall to a quota. Knows no clock.

As in Kafka, amounts are added up in windows, and one begins with the first amount after the end of the one
before it. The rate is the sum over the span of the windows, and what is missing of them before the first
amount counts as time without any. So a client that was idle may use at once what the whole windows let
through.

A window counts until its last amount, and the delay after that, are older than all windows together are long.
Kafka does not count the delay. An amount for which the delay is longer than the windows is then forgotten as
soon as it is paid for, and the next one gets the idle time for free: such clients reach 1.5 times their quota
(measured, with amounts of 12 or 30 seconds' worth).

Delays by an earlier quota count no more: with one that was far too low for a moment, a window would count for
hours, and all of that time as time without any amounts. What the last windows have is then paid for by the
new one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

LONGEST_DELAY_MS: Final = 2**31 - 1
"""What the protocol has room for."""


class WindowedRate:
    """Amounts per second. Its owner lets one thread at a time in, and gives times that never go back."""

    __slots__ = ("_count", "_quota", "_size_ms", "_windows")

    def __init__(self, window_count: int, window_ms: int) -> None:
        """``window_count``: the current window among them."""
        self._count = window_count
        self._size_ms = window_ms
        self._windows: deque[_Window] = deque()
        self._quota = 0.0

    def charge(self, amount: float, quota: float, now_ms: int, *, most_ms: int = LONGEST_DELAY_MS) -> int:
        """Add an amount. Returns how long to add nothing, so that the rate is back at the quota: the sum over
        the span and the delay together is then no higher (KIP-13). 0 if it is none now; never above
        ``most_ms``."""
        self._forget_old(now_ms)
        windows = self._windows
        if quota != self._quota:
            self._go_by(quota, now_ms, most_ms)
        if not windows or now_ms - windows[-1].start_ms >= self._size_ms:
            windows.append(_Window(now_ms))
        current = windows[-1]
        current.amount += amount
        delay_ms = self._delay_ms(now_ms, most_ms)
        current.until_ms = max(current.until_ms, now_ms + delay_ms)
        return delay_ms

    def _go_by(self, quota: float, now_ms: int, most_ms: int) -> None:
        """From now on there is another quota."""
        self._quota = quota
        for window in self._windows:
            window.until_ms = min(window.until_ms, window.start_ms + self._size_ms)
        self._forget_old(now_ms)
        delay_ms = self._delay_ms(now_ms, most_ms) if self._windows else 0
        if delay_ms:
            for window in self._windows:
                window.until_ms = now_ms + delay_ms

    def _delay_ms(self, now_ms: int, most_ms: int) -> int:
        total = sum([window.amount for window in self._windows])
        return min(max(round(total * 1000 / self._quota - self._span_ms(now_ms)), 0), most_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing counts any more."""
        self._forget_old(now_ms)
        return not self._windows

    def _span_ms(self, now_ms: int) -> int:
        """From the start of the first window; with as many whole ones before it as are missing."""
        span_ms = now_ms - self._windows[0].start_ms
        missing = self._count - 1 - span_ms // self._size_ms
        return span_ms + missing * self._size_ms if missing > 0 else span_ms

    def _forget_old(self, now_ms: int) -> None:
        windows, age_ms = self._windows, self._count * self._size_ms
        while windows and now_ms - windows[0].until_ms >= age_ms:
            windows.popleft()


class _Window:
    __slots__ = ("amount", "start_ms", "until_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.until_ms = start_ms
        """When the last amount was added, or its delay is over."""
        self.amount = 0.0
