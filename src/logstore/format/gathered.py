"""Rows that wait to become one batch, and what a record takes at most.

The sizes are upper bounds that cost little: whoever cuts records into batches goes by them, so that a batch
never passes its limit and every way of encoding cuts at the same places. :class:`GatheredRows` is plain
Python; a compiled class of the same methods takes its place in :mod:`logstore.format.loops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from logstore.format.units import PLAUSIBLE_FROM_MS, PLAUSIBLE_TO_MS, is_checkable, unit_of
from logstore.model import NO_TIMESTAMP_MS, Header

MAX_RECORD_OVERHEAD_BYTES: Final = 36
"""What a record takes at most besides key, value and headers: 5 bytes for each of its size, offset, key
size, value size and header count, 10 for its timestamp, 1 for attributes."""

MAX_HEADER_OVERHEAD_BYTES: Final = 10
"""What a header takes at most besides key and value: their sizes."""

_INT64_MAX = (1 << 63) - 1
_MAX_UTF8_BYTES = 4  # per character

Row = tuple[bytes | None, bytes | None, int, tuple[Header, ...]]
"""Key, value, timestamp in milliseconds, headers."""


class RowRules(NamedTuple):
    """What rows are held against, and what the headers of their batches say; all of it fits into 64 bits."""

    attributes: int
    """With the bit of log append time every timestamp is the present."""
    needs_keys: bool
    before_max_ms: int
    """Timestamps, other than -1, lie within so much of the present."""
    after_max_ms: int
    limit_bytes: int
    """What the records of a batch take at most together. A single one may take more."""
    checks_unit: bool = False
    """Timestamps that look like another unit than milliseconds are refused."""


NO_PRODUCER: Final = (-1, -1, -1)
"""Producer id, epoch and base sequence of a batch without a producer."""


def headers_bytes(headers: Sequence[Header]) -> int:
    """The bytes that one record's headers take at most, besides their count."""
    return sum(
        [_MAX_UTF8_BYTES * len(key) + len(value or b"") + MAX_HEADER_OVERHEAD_BYTES for key, value in headers]
    )


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """The bytes that one record takes at most."""
    size = MAX_RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    return size + headers_bytes(headers) if headers else size


class GatheredRows:
    """The rows of the next batch, and the limits that a row is held against. Whoever owns them holds a lock
    around every call, but for :meth:`gather` and :meth:`close_gate`."""

    __slots__ = (
        "has_failed",
        "max_record_bytes",
        "rows",
        "rules",
        "size_bytes",
    )

    def __init__(self, rules: RowRules, max_record_bytes: int) -> None:
        self.use_rules(rules, max_record_bytes)
        self.clear()

    def use_rules(self, rules: RowRules, max_record_bytes: int) -> None:
        """Hold the rows to come against these. Only while there are none: they were held against others."""
        self.rules = rules
        self.max_record_bytes = max_record_bytes
        """A record that may take more than this is not gathered: it might not fit into any batch."""

    @property
    def row_count(self) -> int:
        return len(self.rows)

    def add(self, value: Any, key: Any, headers: Any, timestamp_ms: Any, now_ms: int) -> int:
        """Add a row if all about it is ordinary, and return its number; else -1, and the caller looks closer.

        Ordinary: exact types, a timestamp within its bounds, a key where one is needed, room in the batch,
        and no failure before. Cost: 0.5 µs.
        """
        rules = self.rules
        if type(headers) is not tuple or headers or type(value) is not bytes or self.has_failed:
            return -1
        size = MAX_RECORD_OVERHEAD_BYTES + len(value)
        if key is not None:
            if type(key) is not bytes:
                return -1
            size += len(key)
        elif rules.needs_keys:
            return -1
        if timestamp_ms is None:
            timestamp_ms = now_ms
        elif (
            type(timestamp_ms) is not int
            or (
                timestamp_ms != NO_TIMESTAMP_MS
                and not max(now_ms - rules.before_max_ms, 0)
                <= timestamp_ms
                <= min(now_ms + rules.after_max_ms, _INT64_MAX)
            )
            or (
                not PLAUSIBLE_FROM_MS <= timestamp_ms <= PLAUSIBLE_TO_MS
                and rules.checks_unit
                and unit_of(timestamp_ms) is not None
                and is_checkable(now_ms)
            )
        ):
            return -1
        if size > self.max_record_bytes or self.must_drain_before(size):
            return -1
        self.rows.append((key, value, timestamp_ms, ()))
        self.size_bytes += size
        return len(self.rows) - 1

    def gather(self, value: Any, key: Any, headers: Any, timestamp_ms: Any, now_ms: int | None) -> int | None:
        """Add a row as :meth:`add` does, and return its offset, without a lock: if the gate is open. None if
        it is not, or anything about the row is out of the ordinary; then take the lock and look closer.

        Here always, because plain Python does not do this in one step that no other thread can cut in two.
        The compiled class does, which takes 0.1 µs. ``now_ms`` is the present; None is the machine's clock.
        """
        return None

    def open_gate(self, base_offset: int, until_ms: int) -> None:
        """From now on :meth:`gather` may add rows: the first of the batch has the offset ``base_offset``. By
        ``until_ms`` they must be written: whoever adds one then has to take the lock, and does it."""

    def close_gate(self) -> None:
        """From now on :meth:`gather` adds none: the rows stay as they are, whatever other threads do."""

    def must_drain_before(self, size_bytes: int) -> bool:
        """Whether the rows must be written before one of ``size_bytes`` is added: it does not fit, or writing
        them was tried and failed, and is tried again before more are taken in."""
        return self.has_failed or (bool(self.rows) and self.size_bytes + size_bytes > self.rules.limit_bytes)

    def put(self, row: Row, size_bytes: int) -> int:
        """Add a row that was checked, and return its number."""
        self.rows.append(row)
        self.size_bytes += size_bytes
        return len(self.rows) - 1

    def remove_last(self) -> None:
        """Take back the newest row, whose append is about to fail."""
        key, value, _, headers = self.rows.pop()
        self.size_bytes -= record_bytes(key, value, headers)

    def encode(self, now_ms: int) -> bytearray | None:
        """The rows as one sealed batch at base offset 0, not compressed. None if they have to go by columns:
        here always."""
        return None

    def clear(self) -> None:
        """Begin the next batch."""
        self.rows: list[Row] = []
        self.size_bytes = 0
        self.has_failed = False
        """Writing the rows was tried, and did not succeed."""
