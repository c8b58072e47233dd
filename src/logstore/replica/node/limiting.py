"""How fast replicas that have fallen behind may copy: what is written meanwhile is not to wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from logstore.arguments import shown
from logstore.broker.quotas.rate import WindowedRate
from logstore.errors import InvalidConfigError

FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_RATE: Final = "leader.replication.throttled.rate"
"""Kafka's tools set both. A node holds back what it copies, and not what it gives to others, which do the
same."""
_MOST_RATE: Final = 2**63 - 1
_WINDOW_COUNT: Final = 2
_WINDOW_MS: Final = 1_000
"""Who was idle may copy a second's worth at once. Kafka has 11 windows of a second."""
_LONGEST_DELAY_MS: Final = 10_000


class CatchUpLimit:
    """Of one node: for all its replicas that are not in sync, together. Safe to use from many threads."""

    def __init__(self, bytes_per_second: int | None, now_ms: Callable[[], int]) -> None:
        """``bytes_per_second``: unless clients set another; None for no limit."""
        self._usual = self._bytes_per_second = bytes_per_second
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._rate = WindowedRate(_WINDOW_COUNT, _WINDOW_MS)
        self._resume_ms = 0
        self._set: dict[str, str] = {}

    @property
    def is_used_up(self) -> bool:
        """Whether such replicas have to wait."""
        return self._bytes_per_second is not None and self._now_ms() < self._resume_ms

    def note(self, size_bytes: int) -> None:
        """Such a replica has copied this."""
        limit = self._bytes_per_second
        if limit is None:
            return
        with self._lock:
            now_ms = self._now_ms()
            delay_ms = self._rate.charge(size_bytes, limit, now_ms, most_ms=_LONGEST_DELAY_MS)
            self._resume_ms = max(self._resume_ms, now_ms + delay_ms)

    # What clients set

    def settings(self) -> Mapping[str, str]:
        """What clients have set, by Kafka's names."""
        return self._set.copy()

    def change(self, settings: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Set rates until the node ends; None: as it was started.

        Raises:
            InvalidConfigError: this is no rate, or another setting. Nothing is changed.
        """
        for name, value in settings.items():
            if value is None:  # Kafka's tools end limits that were never set, also of other kinds
                continue
            if name not in (FOLLOWER_RATE, LEADER_RATE):
                raise InvalidConfigError(
                    f"{name} of a node cannot be changed while it runs; {FOLLOWER_RATE} and {LEADER_RATE} can"
                )
            if not (value.isascii() and value.isdigit() and int(value) <= _MOST_RATE):
                raise InvalidConfigError(f"{name} is {shown(value)}; it must be bytes per second, 0 or above")
        if validate_only:
            return
        with self._lock:
            self._set |= {name: str(int(value)) for name, value in settings.items() if value is not None}
            for name in [name for name, value in settings.items() if value is None]:
                self._set.pop(name, None)
            rate = self._set.get(FOLLOWER_RATE)
            self._bytes_per_second = self._usual if rate is None else max(int(rate), 1)
            self._rate = WindowedRate(_WINDOW_COUNT, _WINDOW_MS)
            self._resume_ms = 0
