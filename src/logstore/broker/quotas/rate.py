"""A rate over the last windows of time, and how long it takes to fall to a quota. Knows no clock.

As in Kafka, amounts are added up in windows: one begins with the first amount after the end of the one before
it, and counts until nothing in it is younger than all windows together are long. The rate is the sum over
the span of the windows, and what is missing of them before the first amount counts as time without any. So a
client that was idle may use at once what the whole windows let through.
"""

from __future__ import annotations

from collections import deque

LONGEST_DELAY_MS = 2**31 - 1
"""What the protocol has room for."""


class WindowedRate:
    """Amounts per second. Its owner lets one thread at a time in, and gives times that never go back."""

    __slots__ = ("_count", "_size_ms", "_windows")

    def __init__(self, window_count: int, window_ms: int) -> None:
        """``window_count``: the current window among them."""
        self._count = window_count
        self._size_ms = window_ms
        self._windows: deque[_Window] = deque()

    def record(self, amount: float, now_ms: int) -> None:
        """Add an amount."""
        self._forget_old(now_ms)
        windows = self._windows
        if not windows or now_ms - windows[-1].start_ms >= self._size_ms:
            windows.append(_Window(now_ms))
        windows[-1].last_ms = now_ms
        windows[-1].amount += amount

    def delay_ms(self, quota: float, now_ms: int) -> int:
        """How long to add nothing, so that the rate is back at the quota; 0 if it is no higher.

        The sum over the span and the delay together is the quota (KIP-13).
        """
        self._forget_old(now_ms)
        amount = sum([window.amount for window in self._windows])
        delay_ms = amount * 1000 / quota - self._span_ms(now_ms)
        return min(max(round(delay_ms), 0), LONGEST_DELAY_MS)

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing counts any more."""
        self._forget_old(now_ms)
        return not self._windows

    def _span_ms(self, now_ms: int) -> int:
        """From the start of the first window; with as many whole ones before it as are missing."""
        span_ms = now_ms - self._windows[0].start_ms if self._windows else 0
        missing = self._count - 1 - span_ms // self._size_ms
        return span_ms + max(missing, 0) * self._size_ms

    def _forget_old(self, now_ms: int) -> None:
        windows, age_ms = self._windows, self._count * self._size_ms
        while windows and now_ms - windows[0].last_ms >= age_ms:
            windows.popleft()


class _Window:
    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.amount = 0.0
