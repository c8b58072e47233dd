"""Single appends on their way to becoming a batch.

Each record gets its offset at once; the rows wait here until there are enough of them, or until the linger
time is over. Every row was checked before it came here: a batch of them can be encoded and is not too large,
so that only the disk can refuse it. Guarded by the log's lock.
"""

from __future__ import annotations

from logstore.config import StoreConfig, TopicConfig
from logstore.format.header import HEADER_BYTES
from logstore.model import Header
from logstore.partition.columns import Columns
from logstore.partition.validate import largest_batch_bytes

Row = tuple[bytes | None, bytes | None, int, tuple[Header, ...]]
"""Key, value, timestamp in milliseconds, headers."""


class Gathering:
    """The rows of the next batch."""

    __slots__ = ("_limit_bytes", "has_failed", "max_record_bytes", "rows", "size_bytes")

    def __init__(self, store_config: StoreConfig, config: TopicConfig) -> None:
        self.use_limits(store_config, config)
        self.clear()

    def use_limits(self, store_config: StoreConfig, config: TopicConfig) -> None:
        """Take the limits of a configuration. Only while there are no rows: they were held against the old
        ones."""
        largest_bytes = largest_batch_bytes(config) - HEADER_BYTES
        self.max_record_bytes = largest_bytes
        """A record that may take more than this is not gathered: it might not fit into any batch."""
        self._limit_bytes = min(store_config.batch_bytes - HEADER_BYTES, largest_bytes)

    def must_drain_before(self, size_bytes: int) -> bool:
        """Whether the rows must be written before one of ``size_bytes`` is added: it does not fit, or writing
        them was tried and failed, and is tried again before more are taken in."""
        return self.has_failed or (bool(self.rows) and self.size_bytes + size_bytes > self._limit_bytes)

    def add(self, row: Row, size_bytes: int) -> None:
        self.rows.append(row)
        self.size_bytes += size_bytes

    def remove_last(self, size_bytes: int) -> None:
        """Take back the newest row, whose append is about to fail."""
        self.rows.pop()
        self.size_bytes -= size_bytes

    def columns(self) -> Columns:
        keys, values, timestamps, headers = zip(*self.rows, strict=True)
        is_constant = timestamps.count(timestamps[0]) == len(timestamps)
        return Columns(
            keys, values, timestamps[0] if is_constant else timestamps, headers if any(headers) else None
        )

    def clear(self) -> None:
        """Begin the next batch."""
        self.rows: list[Row] = []
        self.size_bytes = 0
        self.has_failed = False
        """Writing the rows was tried, and did not succeed."""
