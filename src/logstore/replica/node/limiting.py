"""How fast replicas that have fallen behind may copy: what is written meanwhile is not to wait for it.

They copy small pieces at even distances. A second's worth at once, as quotas allow it, would keep a leader
that can give ten times as much busy for a tenth of each second.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Final

from logstore.arguments import shown
from logstore.errors import InvalidConfigError

FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_RATE: Final = "leader.replication.throttled.rate"
"""Kafka's tools set both. A node holds back what it copies, and not what it gives to others, which do the
same."""
_MOST_RATE: Final = 2**63 - 1
_PIECE_MS: Final = 10
"""What is copied at once is worth so long."""
_LEAST_PIECE_BYTES: Final = 64 * 1024
"""Of one partition; a batch comes whole."""
_LONGEST_DELAY_MS: Final = 10_000


class CatchUpLimit:
    """Of one node: for all its replicas that are not in sync, together. Safe to use from many threads."""

    def __init__(self, bytes_per_second: int | None, now_ms: Callable[[], int]) -> None:
        """``bytes_per_second``: unless clients set another; None for no limit."""
        self._usual = self._bytes_per_second = bytes_per_second
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._resume_ms = 0.0
        self._set: dict[str, str] = {}

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return self._bytes_per_second is not None

    @property
    def wait_ms(self) -> int:
        """How long such replicas have to wait from now on; 0 without a limit."""
        return max(math.ceil(self._resume_ms - self._now_ms()), 0) if self.is_set else 0

    def piece_bytes(self, partition_count: int) -> int:
        """How much of each partition is to be copied at once, if it is asked for so many."""
        limit = self._bytes_per_second or 0
        return max(limit * _PIECE_MS // (1_000 * partition_count), _LEAST_PIECE_BYTES)

    @property
    def answer_bytes(self) -> int:
        """How much is to be copied at once of all partitions, however many they are: what the limit lets come
        in a second."""
        return max(self._bytes_per_second or 0, _LEAST_PIECE_BYTES)

    def note(self, size_bytes: int) -> None:
        """Such a replica has copied this."""
        limit = self._bytes_per_second
        if limit is None:
            return
        with self._lock:
            now_ms = self._now_ms()
            resume_ms = max(self._resume_ms, now_ms) + 1_000 * size_bytes / limit
            self._resume_ms = min(resume_ms, now_ms + _LONGEST_DELAY_MS)

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
            self._resume_ms = 0.0
