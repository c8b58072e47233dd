"""The ways of reading a log, each as a function that returns all it finds, and the checks of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from logstore.errors import OffsetOutOfRangeError
from logstore.format.batch import decode_batch
from logstore.format.loops import scan_batches
from logstore.model import Isolation, Record
from logstore.partition.reading.readable import ReadableLog

COMMITTED = Isolation.COMMITTED

Seen = list[tuple[int, bytes | None, bytes | None]]
"""Offset, key and value of each record, in the order in which they came."""


def _seen(records: Any) -> Seen:
    return [(record.offset, record.key, record.value) for record in records]


def by_read(log: ReadableLog) -> Seen:
    return _seen(log.read(isolation=COMMITTED))


def on_demand(log: ReadableLog) -> Seen:
    return _seen(log.read(isolation=COMMITTED, on_demand=True))


def by_columns(log: ReadableLog) -> Seen:
    reader = log.iterate_arrow(isolation=COMMITTED, columns=["offset", "key", "value"], batch_rows=7)
    return [tuple(row.values()) for batch in reader for row in batch.to_pylist()]


def one_by_one(log: ReadableLog) -> Seen:
    found: list[Record | None] = []
    offset, stop = log.log_start_offset, log.last_stable_offset
    while offset < stop:
        try:
            found.append(log.record_at(offset, isolation=COMMITTED))
            offset += 1
        except OffsetOutOfRangeError:
            offset = log.log_start_offset
    return _seen(record for record in found if record is not None)


def by_fetch(log: ReadableLog) -> Seen:
    found: list[Record] = []
    offset, stop = log.log_start_offset, log.last_stable_offset
    while offset < stop:
        fetched = log.fetch(offset, max_bytes=300, isolation=COMMITTED)
        batches, _, fault = scan_batches(fetched.data, 0, len(fetched.data), check=True)
        assert fault is None
        if not batches:
            break
        for position, header in batches:
            is_aborted = header.is_transactional and any(
                entry.producer_id == header.producer_id
                and entry.first_offset <= header.base_offset <= entry.last_offset
                for entry in fetched.aborted
            )
            if not is_aborted and not header.is_control:
                records = decode_batch(fetched.data, position, header)
                found += [record for record in records if record.offset >= offset]
        offset = fetched.next_offset
    return _seen(found)


def by_follow(log: ReadableLog) -> Seen:
    return _seen(log.follow(log.log_start_offset, timeout=0, isolation=COMMITTED))


def by_steps(log: ReadableLog) -> Seen:
    """Read in short steps, one after the other."""
    found: list[Record] = []
    for start in range(log.log_start_offset, log.last_stable_offset, 5):
        found += log.read(start, start + 5, isolation=COMMITTED)
    return _seen(found)


WAYS: dict[str, Callable[[ReadableLog], Seen]] = {
    "read": by_read,
    "on demand": on_demand,
    "columns": by_columns,
    "record_at": one_by_one,
    "fetch": by_fetch,
    "follow": by_follow,
    "short reads": by_steps,
}
"""Ways of reading all that is committed."""


class Truth:
    """The records that were appended and not aborted: offset -> key and value."""

    def __init__(self) -> None:
        self.records: dict[int, tuple[bytes, bytes | None]] = {}

    def note(self, offsets: range, rows: Any) -> None:
        for offset, (value, key) in zip(offsets, rows, strict=True):
            self.records[offset] = (key, value)

    def latest(self, stop: int = 2**63) -> set[int]:
        """The offsets of the latest record of each key below ``stop``."""
        last = {key: offset for offset, (key, _) in self.records.items() if offset < stop}
        return set(last.values())

    def check(self, seen: Seen, must: set[int]) -> None:
        """Check that each record is right, none comes twice or out of order, and those of ``must`` are
        there."""
        offsets = [offset for offset, _, _ in seen]
        assert offsets == sorted(set(offsets))
        for offset, key, value in seen:
            assert self.records.get(offset) == (key, value), offset
        assert must <= set(offsets), sorted(must - set(offsets))

    def check_times(self, log: ReadableLog, times: dict[int, int], must: set[int]) -> None:
        """Check lookups by time; ``times`` has the time of each offset. The record found must be at or after
        the time, and no record that must be there may come before it."""
        for time_ms in sorted({times[offset] for offset in must}):
            found = log.find_timestamp(time_ms)
            assert found is not None
            assert found.offset in self.records
            assert times[found.offset] == found.timestamp_ms >= time_ms
            assert found.offset <= min(offset for offset in must if times[offset] >= time_ms)


def ways_that_can(names: dict[str, Any] = WAYS) -> Iterator[str]:
    """The ways whose packages are installed."""
    for name in names:
        if name == "columns":
            try:
                import pyarrow  # noqa: F401
            except ImportError:
                continue
        yield name
