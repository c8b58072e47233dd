"""How fast replicas that have fallen behind may copy: what is written meanwhile is not to wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from logstore.broker.quotas.rate import WindowedRate

_WINDOW_COUNT: Final = 2
_WINDOW_MS: Final = 1_000
"""Who was idle may copy a second's worth at once. Kafka has 11 windows of a second."""
_LONGEST_DELAY_MS: Final = 10_000


class CatchUpLimit:
    """Of one node: for all its replicas that are not in sync, together. Safe to use from many threads."""

    def __init__(self, bytes_per_second: int | None, now_ms: Callable[[], int]) -> None:
        """``bytes_per_second``: None for no limit."""
        self._bytes_per_second = bytes_per_second
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._rate = WindowedRate(_WINDOW_COUNT, _WINDOW_MS)
        self._resume_ms = 0

    @property
    def is_used_up(self) -> bool:
        """Whether such replicas have to wait."""
        return self._bytes_per_second is not None and self._now_ms() < self._resume_ms

    def note(self, size_bytes: int) -> None:
        """Such a replica has copied this."""
        if self._bytes_per_second is None:
            return
        with self._lock:
            now_ms = self._now_ms()
            delay_ms = self._rate.charge(
                size_bytes, self._bytes_per_second, now_ms, most_ms=_LONGEST_DELAY_MS
            )
            self._resume_ms = max(self._resume_ms, now_ms + delay_ms)
