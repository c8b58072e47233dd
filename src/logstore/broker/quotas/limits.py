"""Measures what clients use, and says how long each has to wait.

Knows quotas and rates; no requests, and no files. A client that no quota holds for is not measured.

Lock: ``_lock`` guards the rates and what is known about clients; it is held for single additions.
"""

from __future__ import annotations

import threading
from typing import Final

from logstore.broker.quotas.precedence import Applied, Client, find_quota
from logstore.broker.quotas.rate import LONGEST_DELAY_MS, WindowedRate
from logstore.clock import Clock
from logstore.logdir.quotas import REQUEST_PERCENTAGE, QuotaEntity, Quotas

_FEWEST_KEPT: Final = 1_000


class Limits:
    """Of one broker."""

    def __init__(self, clock: Clock, *, window_count: int, window_ms: int) -> None:
        self._clock = clock
        self._window_count = window_count
        self._window_ms = window_ms
        self._lock = threading.Lock()
        self._quotas: Quotas = {}
        self._rates: dict[tuple[str, QuotaEntity], WindowedRate] = {}
        self._applied: dict[tuple[str, Client], Applied | None] = {}
        self._look_at_count = _FEWEST_KEPT
        """With so many rates, or clients, those that are not in use are forgotten."""
        self.are_set = False
        """Whether there is any quota. Read without the lock: all that a request costs without one."""

    def put(self, quotas: Quotas) -> None:
        """Go by these quotas from now on. What was measured stays; delays that were told stay, too."""
        with self._lock:
            self._quotas = quotas
            self._applied.clear()
            self.are_set = bool(quotas)

    def charge(self, client: Client, key: str, amount: float) -> int:
        """Count what a client has used: bytes, or percent of a thread for a second. Returns how many
        milliseconds it has to wait for its next request."""
        with self._lock:
            applied = self._find_locked(key, client)
            if applied is None:
                return 0
            now_ms = self._clock.monotonic_ms()
            rate = self._rate_locked(key, applied.measured, now_ms)
            most_ms = self._window_ms if key == REQUEST_PERCENTAGE else LONGEST_DELAY_MS
            return rate.charge(amount, applied.value, now_ms, most_ms=most_ms)

    def most(self, client: Client, key: str) -> int | None:
        """The most that a client may use at once, so that a pause of all windows makes up for it; None if
        there is no quota."""
        with self._lock:
            applied = self._find_locked(key, client)
        if applied is None:
            return None
        return int(applied.value * (self._window_count - 1) * self._window_ms / 1000)

    def _find_locked(self, key: str, client: Client) -> Applied | None:
        try:
            return self._applied[key, client]
        except KeyError:
            if len(self._applied) >= self._look_at_count:
                self._applied.clear()
            found = self._applied[key, client] = find_quota(self._quotas, client, key)
            return found

    def _rate_locked(self, key: str, measured: QuotaEntity, now_ms: int) -> WindowedRate:
        rate = self._rates.get((key, measured))
        if rate is None:
            if len(self._rates) >= self._look_at_count:
                self._forget_idle_locked(now_ms)
            rate = self._rates[key, measured] = WindowedRate(self._window_count, self._window_ms)
        return rate

    def _forget_idle_locked(self, now_ms: int) -> None:
        """Client ids are the clients' to choose: there may be ever more of them."""
        self._rates = {at: rate for at, rate in self._rates.items() if not rate.is_idle(now_ms)}
        self._look_at_count = max(_FEWEST_KEPT, 2 * len(self._rates))
