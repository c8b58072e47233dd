"""Single appends on their way to becoming a batch.

Each record gets its offset at once; the rows wait here until there are enough of them, or until the linger
time is over. Guarded by the log's lock.
"""

from __future__ import annotations

from logstore.model import Bytes, Header
from logstore.partition.columns import Columns


class Gathering:
    """The rows of the next batch."""

    __slots__ = ("_headers", "_keys", "_timestamps", "_values", "has_failed", "size_bytes")

    def __init__(self) -> None:
        self.has_failed = False
        """Writing them was tried and failed: the next append tries again before it adds to them."""
        self.clear()

    def __len__(self) -> int:
        return len(self._values)

    def add(
        self,
        key: Bytes | None,
        value: Bytes | None,
        timestamp_ms: int,
        headers: tuple[Header, ...],
        size_bytes: int,
    ) -> None:
        self._keys.append(key)
        self._values.append(value)
        self._timestamps.append(timestamp_ms)
        self._headers.append(headers)
        self.size_bytes += size_bytes

    def remove_last(self, size_bytes: int) -> None:
        """Take back the newest row, whose append is about to fail."""
        for column in (self._keys, self._values, self._timestamps, self._headers):
            column.pop()
        self.size_bytes -= size_bytes

    def columns(self) -> Columns:
        headers = self._headers if any(self._headers) else None
        first = self._timestamps[0]
        is_constant = self._timestamps.count(first) == len(self._timestamps)
        return Columns(self._keys, self._values, first if is_constant else self._timestamps, headers)

    def clear(self) -> None:
        """Begin the next batch. The lists are replaced: an encoder may still hold the old ones."""
        self._keys: list[Bytes | None] = []
        self._values: list[Bytes | None] = []
        self._timestamps: list[int] = []
        self._headers: list[tuple[Header, ...]] = []
        self.size_bytes = 0
