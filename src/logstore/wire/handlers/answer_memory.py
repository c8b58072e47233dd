"""How much memory the records take that clients have asked for, and not taken yet.

Kafka sends records from its files. Here they are read first, and 50 clients that ask for much and take it
slowly would have the process hold 3.4 GiB. Answers are therefore smaller the less is free.

Lock: ``_lock`` guards what is lent. Nothing is called with it held.
"""

from __future__ import annotations

import threading
from typing import Final

_LEAST_BYTES: Final = 256 * 1024
"""What each answer may have all the same: every client goes on."""
_SMALL_BYTES: Final = 64 * 1024
"""Answers up to here are not counted."""


class AnswerMemory:
    """Of one listener."""

    def __init__(self, most_bytes: int) -> None:
        self._lock = threading.Lock()
        self._most_bytes = most_bytes
        self._lent_bytes = 0

    @property
    def lent_bytes(self) -> int:
        """What answers take, or may come to take, now."""
        return self._lent_bytes

    def lend(self, wanted_bytes: int, back_bytes: int) -> int:
        """Take ``back_bytes`` back; returns how many of the wanted ones there are: half of what is free, so
        that the next client finds some, too."""
        with self._lock:
            self._lent_bytes -= back_bytes
            free_bytes = (self._most_bytes - self._lent_bytes) // 2
            lent_bytes = min(wanted_bytes, max(free_bytes, _LEAST_BYTES))
            self._lent_bytes += lent_bytes
            return lent_bytes

    def exchange(self, size_bytes: int, back_bytes: int) -> None:
        """Count so many bytes in place of others."""
        with self._lock:
            self._lent_bytes += size_bytes - back_bytes


class AnswerRoom:
    """What the answer of one connection takes: it has one at a time."""

    __slots__ = ("_held_bytes", "_memory", "_waiting_bytes")

    def __init__(self, memory: AnswerMemory) -> None:
        self._memory = memory
        self._held_bytes = 0
        self._waiting_bytes = 0

    def take(self, most_bytes: int, min_bytes: int) -> tuple[int, int]:
        """The records of an answer are about to be read. Returns how many bytes they may be at most, and how
        many the client has to wait for: none if it gets less than it wants.

        Args:
            most_bytes: what the client takes.
            min_bytes: what it waits for. While it waits, less than that was read.
        """
        wanted_bytes = max(most_bytes, 0)
        self._held_bytes = self._memory.lend(wanted_bytes, self._held_bytes)
        if self._held_bytes < wanted_bytes:
            min_bytes = min(min_bytes, 1)
        self._waiting_bytes = max(min(self._held_bytes, min_bytes), 0)
        return min(most_bytes, self._held_bytes), min_bytes

    def wait(self) -> None:
        """What was read is not enough yet."""
        self._hold(self._waiting_bytes)

    def hold(self, size_bytes: int) -> None:
        """The answer is there, and so large."""
        self._hold(size_bytes if size_bytes > _SMALL_BYTES else 0)

    def _hold(self, size_bytes: int) -> None:
        if size_bytes != self._held_bytes:
            self._memory.exchange(size_bytes, self._held_bytes)
            self._held_bytes = size_bytes
