"""Time, as everything above takes it: an object that tests can replace.

Timestamps are whole milliseconds since the epoch. ``monotonic_ms`` orders and measures; it never goes back.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

_BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"


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


class BootClock(SystemClock):
    """The machine's clock. Its monotonic time goes on while the machine is suspended, where the system has
    such a time: for what other machines measure meanwhile."""

    _ID: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(self._ID) // 1_000_000


def read_boot_id() -> str:
    """The id of this start of the machine; empty if the system has none, as elsewhere than on Linux."""
    try:
        with open(_BOOT_ID_PATH, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
