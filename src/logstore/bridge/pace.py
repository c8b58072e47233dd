"""How much a bridge moves at a time: as much as the line carries well within the time that a request, or a
transaction, may take. On a slow line what is larger would never get through: it would be begun again and
again, and nothing of it would count."""

from __future__ import annotations

from typing import Final

FIRST_BYTES: Final = 256 * 1024
"""A fast line carries the most that there may be some steps later."""
LEAST_BYTES: Final = 16 * 1024
_QUICK: Final = 1 / 8
"""Of the time that a step may take: if a step takes less, the next one may be twice as large."""
_SLOW: Final = 1 / 4
"""If it takes more, the next one is half as large: the line may become slower still."""


class Pace:
    """The size of the next step. Used by one thread."""

    def __init__(self, most_bytes: int, limit_ms: int) -> None:
        """
        Args:
            limit_ms: how long a step may take before it counts as failed.
        """
        self._most_bytes = most_bytes
        self._limit_ms = limit_ms
        self.step_bytes = min(FIRST_BYTES, most_bytes)

    def took(self, byte_count: int, elapsed_ms: float) -> None:
        """A step has succeeded. One that was small does not tell how fast a large one would be."""
        if elapsed_ms > self._limit_ms * _SLOW:
            self._change(1 / 2)
        elif elapsed_ms < self._limit_ms * _QUICK and 2 * byte_count >= self.step_bytes:
            self._change(2)

    def failed(self) -> None:
        """A step has failed; it may have been too large."""
        self._change(1 / 4)

    def _change(self, factor: float) -> None:
        least = min(LEAST_BYTES, self._most_bytes)
        self.step_bytes = min(max(int(self.step_bytes * factor), least), self._most_bytes)
