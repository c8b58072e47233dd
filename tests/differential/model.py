"""What a log holds: a list of all that was appended, in order, and which of it is still there.

Knows nothing of batches, segments and files. What was aborted, and what is decided, follows from the list.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.model import Isolation, Record


class Entry(NamedTuple):
    """A record, or the marker that ends a transaction."""

    offset: int
    producer: int | None
    """Of the transaction."""
    record: Record | None
    is_commit: bool = False


class Model:
    """One log."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.gone: set[int] = set()
        """Offsets of records that compaction has removed."""
        self.start = 0
        self.end = 0
        self.high_watermark: int | None = None
        """None: the log end."""

    # What happens

    def add(self, record: Record, producer: int | None = None) -> None:
        assert record.offset == self.end
        self.entries.append(Entry(record.offset, producer, record))
        self.end += 1

    def mark(self, offset: int, producer: int, *, is_commit: bool) -> None:
        assert offset == self.end
        self.entries.append(Entry(offset, producer, None, is_commit))
        self.end += 1

    def cut(self, end: int, there: set[int]) -> None:
        """The log was truncated; of its records these are there: batches go whole."""
        lost = [entry.offset for entry in self.entries if entry.record and self._is_lost(entry, end, there)]
        assert all(offset >= min(lost) for offset in lost)
        first_lost = min(lost, default=end)
        between = [entry for entry in self.entries if first_lost <= entry.offset < end]
        assert all(entry.offset in lost or entry.record is None for entry in between), "a hole"
        self.entries = [
            entry for entry in self.entries if entry.offset < end and entry.offset not in set(lost)
        ]
        self.gone = {offset for offset in self.gone if offset < end}
        self.end = end
        self.start = min(self.start, end)
        if self.high_watermark is not None:
            self.high_watermark = min(self.high_watermark, end)

    def _is_lost(self, entry: Entry, end: int, there: set[int]) -> bool:
        if entry.offset < self.start or entry.offset in self.gone:
            return entry.offset >= end
        return entry.offset not in there

    def compact(self, there: list[Record]) -> None:
        """Of all records these are left: check that those that are not were superseded, aborted, or
        tombstones."""
        left = {record.offset: record for record in there}
        hidden, stable = self.aborted(), self.stable
        last: dict[bytes | None, int] = {}
        for entry in self.entries:
            if entry.record is not None and entry.offset < stable and entry.offset not in hidden:
                last[entry.record.key] = entry.offset
        for record in self.records(self.start, self.end):
            if left.get(record.offset) == record:
                continue
            assert record.offset not in left, f"another record at {record.offset}"
            is_over = record.offset in hidden or record.key is None or last[record.key] > record.offset
            assert record.offset < stable, f"an undecided record went: {record}"
            assert is_over or record.value is None, f"the latest record of its key went: {record}"
            self.gone.add(record.offset)
        assert len(left) == len(self.records(self.start, self.end)), "a record came back"

    # What is there

    @property
    def open_since(self) -> dict[int, int]:
        """The first offset of each open transaction, by producer."""
        found: dict[int, int] = {}
        for entry in self.entries:
            if entry.producer is not None and entry.record is not None:
                found.setdefault(entry.producer, entry.offset)
            elif entry.producer is not None:
                found.pop(entry.producer, None)
        return found

    @property
    def stable(self) -> int:
        """Below it every transaction is decided, as far as the high watermark tells."""
        mark = self.end if self.high_watermark is None else self.high_watermark
        open_since = dict(self.open_since)
        begun: dict[int, int] = {}
        for entry in self.entries:  # what ended at or above the high watermark has not ended for readers
            if entry.producer is None:
                continue
            if entry.record is not None:
                begun.setdefault(entry.producer, entry.offset)
            else:
                first = begun.pop(entry.producer, entry.offset)
                if entry.offset >= mark:
                    open_since[-entry.offset - 1] = first
        return max(min([mark, *open_since.values()]), self.start)

    def aborted(self, below: int | None = None) -> set[int]:
        """Offsets of aborted records; with ``below``, of transactions whose markers lie below it."""
        found: set[int] = set()
        undecided: dict[int, list[int]] = {}
        for entry in self.entries:
            if entry.producer is None or (below is not None and entry.offset >= below):
                continue
            if entry.record is not None:
                undecided.setdefault(entry.producer, []).append(entry.offset)
            else:
                mine = undecided.pop(entry.producer, [])
                found.update(() if entry.is_commit else mine)
        return found

    def limit(self, isolation: Isolation) -> int:
        if isolation is Isolation.COMMITTED:
            return self.stable
        if isolation is Isolation.HIGH_WATERMARK and self.high_watermark is not None:
            return max(self.high_watermark, self.start)
        return self.end

    def records(self, start: int, stop: int, isolation: Isolation = Isolation.LOG_END) -> list[Record]:
        """What a reader must get."""
        hidden = self.aborted() if isolation is Isolation.COMMITTED else set()
        return [
            entry.record
            for entry in self.entries
            if entry.record is not None
            and max(start, self.start) <= entry.offset < stop
            and entry.offset not in self.gone
            and entry.offset not in hidden
        ]

    def latest(self, end: int, isolation: Isolation) -> list[Record]:
        """The table view as of an offset: the latest of each key, without what was aborted by then."""
        hidden = self.aborted(None if isolation is Isolation.COMMITTED else end)
        last = {
            record.key: record
            for record in self.records(self.start, end)
            if record.key is not None and record.offset not in hidden
        }
        kept = [record for record in last.values() if record.value is not None]
        return sorted(kept, key=lambda record: record.offset)

    def at_time(self, timestamp_ms: int) -> int | None:
        found = (
            record.offset
            for record in self.records(self.start, self.end)
            if record.timestamp_ms >= timestamp_ms
        )
        return next(found, None)

    def newest(self) -> tuple[int, int] | None:
        """Offset and timestamp of the first record with the largest timestamp."""
        everything = self.records(self.start, self.end)
        best = max(everything, key=lambda record: (record.timestamp_ms, -record.offset), default=None)
        return None if best is None else (best.offset, best.timestamp_ms)
