"""Time, as everything above takes it: an object that tests can replace.

Timestamps are whole milliseconds since the epoch. ``monotonic_ms`` orders and measures; it never goes back.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The two times that the engine asks for."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch. May jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds from an arbitrary start; never decreases."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
