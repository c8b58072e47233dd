"""A rate shared by several threads: a thread that is ahead of the rate sleeps.

Decides only how long; the caller sleeps, and may have to end that early. Knows a clock and no files.
"""

from __future__ import annotations

import threading
from typing import Final

from logstore.clock import Clock

CREDIT_MS: Final = 300
"""How much unused time may be made up for later, so that work in pieces still reaches the rate. Kafka checks
its rate in the same interval."""

LEAST_MS: Final = 10
"""Shorter delays gather until they are this long: each sleep costs a system call and a wake-up."""


class SharedThrottle:
    """Bytes per second, over all callers of :meth:`delay_ms`.

    Each byte is due when the bytes before it have taken their time. Lock: ``_lock`` guards ``_due_us``.
    """

    def __init__(self, bytes_per_second: int, clock: Clock) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._lock = threading.Lock()
        self._due_us = clock.monotonic_ms() * 1000
        """When all bytes counted so far have taken their time at this rate."""

    def delay_ms(self, size_bytes: int) -> int:
        """Count bytes that were read or written; returns how long to sleep before the next."""
        with self._lock:
            now_us = self._clock.monotonic_ms() * 1000
            begin_us = max(self._due_us, now_us - CREDIT_MS * 1000)
            self._due_us = begin_us + size_bytes * 1_000_000 // self._bytes_per_second
            ahead_ms = (self._due_us - now_us) // 1000
        return ahead_ms if ahead_ms >= LEAST_MS else 0
