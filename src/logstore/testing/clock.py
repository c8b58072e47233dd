"""A clock that moves only when a test moves it."""

from __future__ import annotations


class ManualClock:
    """Wall and monotonic clock for tests. ``advance`` moves both; ``jump`` moves only the wall clock."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass.

        Raises:
            ValueError: not a whole number, or below 0 (use :meth:`jump`).
        """
        if type(ms) is not int or ms < 0:
            raise ValueError(
                f"ms is {ms!r}; it must be a whole number, 0 or above; jump() sets the clock back"
            )
        self._now_ms += ms
        self._monotonic_ms += ms

    def jump(self, ms: int) -> None:
        """Set the wall clock forward or back by ``ms``, as an administrator or NTP would.

        Raises:
            ValueError: not a whole number.
        """
        if type(ms) is not int:
            raise ValueError(f"ms is {ms!r}; it must be a whole number")
        self._now_ms += ms
