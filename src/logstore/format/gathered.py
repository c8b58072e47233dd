"""Rows that wait to become one batch, and the most bytes a record can take.

The sizes are cheap upper bounds. All code that cuts records into batches uses them, so a batch never passes
its limit and every way of encoding cuts at the same places. :class:`GatheredRows` is plain Python; a compiled
class with the same methods replaces it in :mod:`logstore.format.loops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from logstore.format.units import PLAUSIBLE_FROM_MS, PLAUSIBLE_TO_MS, is_checkable, unit_of
from logstore.model import NO_TIMESTAMP_MS, Header

MAX_RECORD_OVERHEAD_BYTES: Final = 36
"""The most bytes that a record takes besides key, value and headers: 5 for each of its size, offset, key
size, value size and header count, 10 for its timestamp, 1 for attributes."""

MAX_HEADER_OVERHEAD_BYTES: Final = 10
"""The most bytes that a header takes besides key and value: their sizes."""

_INT64_MAX = (1 << 63) - 1
_MAX_UTF8_BYTES = 4  # per character

Row = tuple[bytes | None, bytes | None, int, tuple[Header, ...]]
"""Key, value, timestamp in milliseconds, headers."""


class RowRules(NamedTuple):
    """The rules that rows are checked against, and attributes for their batches; all numbers fit 64 bits."""

    attributes: int
    """With the bit for log append time every timestamp is the current time."""
    needs_keys: bool
    before_max_ms: int
    """How far before the current time a timestamp other than -1 may lie; ``after_max_ms``: how far after."""
    after_max_ms: int
    limit_bytes: int
    """The most bytes that the records of a batch take together. A single record may take more."""
    checks_unit: bool = False
    """Whether to refuse timestamps that look like another unit than milliseconds."""


NO_PRODUCER: Final = (-1, -1, -1)
"""Producer id, epoch and base sequence of a batch without a producer."""


def headers_bytes(headers: Sequence[Header]) -> int:
    """The most bytes that one record's headers take, besides their count."""
    return sum(
        [_MAX_UTF8_BYTES * len(key) + len(value or b"") + MAX_HEADER_OVERHEAD_BYTES for key, value in headers]
    )


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """The most bytes that one record takes."""
    size = MAX_RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    return size + headers_bytes(headers) if headers else size


class GatheredRows:
    """The rows of the next batch, and the limits that a row is checked against. The owner holds a lock around
    every call, except :meth:`gather` and :meth:`close_gate`."""

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
        """Check rows against these rules from now on. While there are rows, which were checked against the
        old ones, only the limit may change, and only upwards."""
        self.rules = rules
        self.max_record_bytes = max_record_bytes
        """A record that may take more bytes than this is not gathered: it might not fit into any batch."""

    @property
    def row_count(self) -> int:
        return len(self.rows)

    def add(self, value: Any, key: Any, headers: Any, timestamp_ms: Any, now_ms: int) -> int:
        """Add a row if everything about it is ordinary, and return its number. Otherwise return -1; the
        caller then looks closer.

        Ordinary means exact types, a timestamp within its bounds, a key if one is needed, room in the batch,
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
        """Add a row as :meth:`add` does, but without a lock, and return its offset. Returns None if the gate
        is closed or anything about the row is unusual; then take the lock and look closer.

        This class always returns None, because plain Python cannot do it in one step that no other thread
        interrupts. The compiled class does it in 0.1 µs. ``now_ms`` is the current time; None asks the
        machine's clock.
        """
        return None

    def open_gate(self, base_offset: int, until_ms: int, for_this_thread: bool = False) -> None:
        """Let :meth:`gather` add rows from now on; the batch's first row has the offset ``base_offset``. The
        rows must be written by ``until_ms``: from then on :meth:`gather` refuses, so that the caller takes
        the lock and writes them. With ``for_this_thread`` it refuses all other threads."""

    def close_gate(self) -> None:
        """Stop :meth:`gather` from adding rows: no other thread changes them any more."""

    def must_drain_before(self, size_bytes: int) -> bool:
        """Whether the rows must be written before one of ``size_bytes`` can be added: it does not fit, or
        writing has failed and must be tried again first."""
        return self.has_failed or (bool(self.rows) and self.size_bytes + size_bytes > self.rules.limit_bytes)

    def put(self, row: Row, size_bytes: int) -> int:
        """Add a checked row, and return its number."""
        self.rows.append(row)
        self.size_bytes += size_bytes
        return len(self.rows) - 1

    def remove_last(self) -> None:
        """Remove the newest row, because its append is about to fail."""
        key, value, _, headers = self.rows.pop()
        self.size_bytes -= record_bytes(key, value, headers)

    def encode(self, now_ms: int) -> bytearray | None:
        """The rows as one sealed batch at base offset 0, not compressed. None if the caller must encode them
        by columns: always, in this class."""
        return None

    def clear(self) -> None:
        """Begin the next batch."""
        self.rows: list[Row] = []
        self.size_bytes = 0
        self.has_failed = False
        """Whether an attempt to write the rows has failed."""
