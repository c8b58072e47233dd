"""The two sparse indexes of a segment, as objects over files.

An index is a cache: it can be rebuilt from the .log file at any time, and its entries are checked against the
log when they are used. The index of a sealed segment never changes, and is read in pages as needed
(:mod:`~logstore.partition.segments.index_pages`); an unreadable one is rebuilt. The index of the active
segment lives in memory. Its new entries are written to the file in one piece when the recovery point is made
durable (:meth:`_SparseIndex.store`), and after the log was cut. An index file is never truncated in place,
because another process may be reading it: it is removed and written again.

Searching and entry formats are in :mod:`logstore.format.index`. This module does not interpret positions in
the log.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple, Self

from logstore.errors import CorruptionError, StorageError, UsageError
from logstore.files import File, Files, read_whole_file, write_small_file
from logstore.format.header import LENGTH_OVERHEAD_BYTES, BatchHeader
from logstore.format.index import (
    OffsetPosition,
    TimestampOffset,
    check_offset_index,
    check_time_index,
    count_entries_below_offset,
    encode_offset_entry,
    encode_time_entry,
    find_offset_upper_bound,
    find_timestamp,
)
from logstore.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, Layout
from logstore.format.loops import find_interval
from logstore.format.run import IndexProgress, Run
from logstore.model import NO_TIMESTAMP_MS
from logstore.partition.segments.index_pages import PAGE_ENTRIES, IndexPages, StoredEntries
from logstore.warning import warn

MAX_RELATIVE_OFFSET = 2**31 - 1
"""Offsets in a segment reach this far above its base: index entries are 32 bits wide."""

MAX_INDEX_BYTES = 256 * 1024 * 1024
"""The most bytes read at once from an index file; no offset or time index is that large."""

MAX_ACTIVE_INDEX_BYTES = 10 * 1024 * 1024
"""How large an index grows, unless the topic's settings say otherwise; Kafka's default."""


class IndexEntries(NamedTuple):
    """The entries of an index that lives in memory, at one moment."""

    entries: bytes
    stored: bytes | None
    """The first entries, which the file has already; None if the file must be replaced."""


class LastEntries(NamedTuple):
    """The last entries of a segment's two indexes."""

    offset: int | None
    """Of the batch that the offset index names last; None if it names none."""
    position: int
    """Where that batch begins; 0 if there is none."""
    newest: TimestampOffset | None
    """The last entry of the time index; None if neither index has any."""


class _SparseIndex(ABC):
    """The shared part of the two indexes: entries in a buffer, and their file."""

    layout: ClassVar[Layout]
    _no_entry: ClassVar[tuple[int, int]]
    """The fields returned when there is no entry."""

    def __init__(
        self, files: Files, path: str, base_offset: int, limit_bytes: int = MAX_ACTIVE_INDEX_BYTES
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self._files = files
        # A bytearray, or for a sealed index bytes or StoredEntries. Readers read this field once and derive
        # the count from it: a truncation replaces it, an append extends it.
        self._entries: Any = bytearray()
        self._rebuild: Callable[[], bytes] = bytes
        self._stored_count = 0
        self._is_durable = False
        """Whether this object has flushed the stored entries."""
        self._max_entries = limit_bytes // self.layout.size_bytes

    @classmethod
    def open_sealed(
        cls,
        files: Files,
        path: str,
        base_offset: int,
        cache: IndexPages | None = None,
        rebuild: Callable[[], bytes] = bytes,
    ) -> Self:
        """Open the index of a sealed segment; a small one is read at once. If the file turns out to be
        unreadable, ``rebuild`` returns the entries; without it the index is then empty.

        Raises:
            StorageError: there is no such file, or it cannot be read.
            CorruptionError: it does not consist of whole entries. Their order is checked when they are used.
        """
        index = cls(files, path, base_offset)
        file = files.open(path)
        size_bytes = file.size_bytes()
        if size_bytes <= PAGE_ENTRIES * cls.layout.size_bytes:
            index._use(file.read_at(0, size_bytes))
            file.close()  # most segments are small: they need no descriptor for this
        else:
            index._use(StoredEntries(file, cls.layout, cache or IndexPages()))
        index._stored_count = index.entry_count
        index._rebuild = rebuild
        return index

    def read_file(self) -> None:
        """Read all entries of the file into memory. Raises the same errors as :meth:`open_sealed`."""
        self._use(bytearray(read_whole_file(self._files, self.path)))
        self._stored_count = self.entry_count

    def _use(self, entries: bytes | bytearray | StoredEntries) -> None:
        if len(entries) % self.layout.size_bytes:
            raise CorruptionError(f"{len(entries)} bytes are not whole entries", path=self.path)
        self._entries = entries

    def _near(self, key: int) -> Any:
        """Entries in which a search for the last one at or below ``key`` finds the same as in all entries."""
        entries = self._entries
        if type(entries) is not StoredEntries:
            return entries
        try:
            return entries.near(key)
        except StorageError as error:
            return self._give_up(error)

    def _fields(self, number: int) -> tuple[Any, ...]:
        """The fields of an entry, or of the last one if there are fewer by now."""
        entries = self._entries
        if type(entries) is StoredEntries:
            try:
                return entries.entry(number)
            except StorageError as error:
                entries = self._give_up(error)
                number = min(number, self.entry_count - 1)
                if number < 0:
                    return self._no_entry
        return self.layout.unpack_from(entries, number * self.layout.size_bytes)

    def _whole(self) -> Any:
        """All entries."""
        entries = self._entries
        if type(entries) is not StoredEntries:
            return entries
        try:
            return entries.read_all()
        except StorageError as error:
            return self._give_up(error)

    def _give_up(self, error: StorageError) -> bytearray:
        """Switch to rebuilt entries in memory, because the file cannot be read."""
        warn("an index is rebuilt from the log: %s", error)
        self._entries = entries = bytearray(self._rebuild())
        return entries

    @property
    def entry_count(self) -> int:
        return len(self._entries) // self.layout.size_bytes

    @property
    def size_bytes(self) -> int:
        return len(self._entries)

    @property
    def is_full(self) -> bool:
        return self.room <= 0

    @property
    def room(self) -> int:
        """How many entries still fit."""
        return self._max_entries - self.entry_count

    @property
    @abstractmethod
    def is_in_order(self) -> bool:
        """Whether the entries rise, as they must. If a file grew but was not flushed, a power cut can leave
        zeros or anything else in it. Cost: 0.1 µs per entry."""

    def copy(self) -> IndexEntries:
        """The entries in memory now, and those of them that the file has."""
        entries = bytes(self._whole())
        count = self._stored_count
        return IndexEntries(entries, None if count < 0 else entries[: count * self.layout.size_bytes])

    def extend(self, entries: bytes) -> None:
        """Add encoded entries. The caller has checked them."""
        self._entries += entries

    def truncate_to(self, offset: int) -> None:
        """Drop every entry with an offset at or above ``offset``, in memory. :meth:`store` follows."""
        count = self.entry_count
        if not count:
            return
        keep = count_entries_below_offset(self._entries, count, self.base_offset, offset, self.layout)
        if keep < count:
            self._entries = bytearray(self._entries[: keep * self.layout.size_bytes])
            if keep < self._stored_count:
                self._stored_count = -1

    def clear(self) -> None:
        """Drop every entry."""
        self._entries = bytearray()
        self._stored_count = -1

    def create(self) -> None:
        """Make the file, empty: see :meth:`IndexBuilder.create`."""
        self.store(flush=False)
        self._is_durable = True

    def trust_file(self) -> None:
        """Take the entries that were read from the file for durable."""
        self._is_durable = self._stored_count == self.entry_count

    def distrust_file(self) -> None:
        """Make :meth:`store` write a new file, because the contents of this one may not be on the disk."""
        self._stored_count = -1

    @property
    def is_stored(self) -> bool:
        """Whether the file has all entries, durably."""
        return self._is_durable and self._stored_count == self.entry_count

    def store(self, *, flush: bool) -> None:
        """Write the entries that the file lacks, and with ``flush`` make them durable."""
        if self._stored_count == self.entry_count and (self._is_durable or not flush):
            return
        if self._stored_count < 0:
            _remove_any(self._files, self.path)
        self._is_durable = False
        stored_bytes = max(self._stored_count, 0) * self.layout.size_bytes
        file = self._files.open(self.path, create=True)
        try:
            if stored_bytes < self.size_bytes:
                file.write_at(stored_bytes, [bytes(self._entries[stored_bytes : self.size_bytes])])
            if flush:
                self._flush(file)
        finally:
            file.close()
        self._stored_count = self.entry_count
        self._is_durable = flush

    def _flush(self, file: File) -> None:
        """Flush the file. After a failure, the next :meth:`store` writes a new file: the same pages may not
        reach the disk."""
        try:
            file.flush()
        except StorageError:
            self.distrust_file()
            raise

    def replace_file(self) -> None:
        """Replace the file by one with these entries, durably and in one step: a failure leaves the old file
        or none, never half an index that looks whole."""
        write_small_file(self._files, self.path, bytes(self._entries[: self.size_bytes]))
        self._stored_count = self.entry_count
        self._is_durable = True


def _remove_any(files: Files, path: str) -> None:
    """Remove whatever is at the path, even a dangling link."""
    try:
        files.remove(path)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise


def _holds(check: Callable[[Any, int, int], None], entries: Any, base_offset: int) -> bool:
    try:
        check(entries, len(entries), base_offset)
    except CorruptionError:
        return False
    return True


class OffsetIndex(_SparseIndex):
    """Sparse map from offset to file position (``.index``).

    It has one entry each ``index_interval_bytes``: the last offset of a batch and the position where it
    begins. A lookup costs a binary search, about 2 microseconds in an index of 300,000 entries.
    """

    layout = OFFSET_INDEX_ENTRY
    _no_entry = (0, 0)

    @property
    def is_in_order(self) -> bool:
        return not self._entries or _holds(check_offset_index, self._whole(), self.base_offset)

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; the base offset of an empty index."""
        return self.entry(self.entry_count - 1).offset if self.entry_count else self.base_offset

    def entry(self, number: int) -> OffsetPosition:
        relative, position = self._fields(number)
        return OffsetPosition(self.base_offset + relative, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """The entry with the largest offset at or below ``offset``; (base, 0) if there is none."""
        relative, position, *_ = self.interval(offset)
        if relative == position == -1:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + relative, position)

    def interval(self, offset: int) -> tuple[int, int, int, int, int]:
        """The entries around ``offset`` as five numbers: relative offset and position of the entry that
        :meth:`lookup` finds, the same for the entry behind it, and the position of the one behind that; -1 if
        there is none."""
        relative = offset - self.base_offset
        return find_interval(self._near(relative), relative)

    def end_position(self, offset: int, end: int) -> int:
        """A position at or behind the end of the batch that holds ``offset``, as a hint for how much to read;
        ``end`` if the index does not say."""
        position = self.interval(offset - 1)[4]
        return position if position >= 0 else end

    def positions_behind(self, position: int, end: int) -> Iterator[int]:
        """The positions of the entries between two positions, rising."""
        last = position
        for number in range(self._first_behind(position), self.entry_count):
            at = self.entry(number).position
            if at >= end:
                return
            if at > last:  # else the index was rebuilt meanwhile
                yield at
            last = max(at, last)

    def entry_at(self, position: int) -> OffsetPosition:
        """The last entry at or before a position; (base, 0) if there is none. Cost: a binary search."""
        number = self._first_behind(position)
        return self.entry(number - 1) if number else OffsetPosition(self.base_offset, 0)

    def _first_behind(self, position: int) -> int:
        """The number of the first entry behind a position."""
        return bisect_right(range(self.entry_count), position, key=lambda number: self.entry(number).position)

    def upper_bound(self, start: OffsetPosition, size_bytes: int) -> OffsetPosition | None:
        """The first entry at least ``size_bytes`` past ``start``; it bounds the offsets of a range."""
        entries = self._whole()
        count = len(entries) // self.layout.size_bytes
        return find_offset_upper_bound(entries, count, self.base_offset, start, size_bytes)

    def append(self, offset: int, position: int) -> None:
        """Add an entry.

        Raises:
            UsageError: the offset does not rise, is out of reach of the base, or the index is full.
        """
        if self.is_full:
            raise UsageError(f"{self.path} is full ({self.entry_count} entries)")
        if self.entry_count and offset <= self.last_offset:
            raise UsageError(f"index offset {offset} does not rise above {self.last_offset} ({self.path})")
        if not 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET:
            raise UsageError(
                f"offset {offset} is out of reach of base offset {self.base_offset} ({self.path})"
            )
        self._entries += encode_offset_entry(self.base_offset, offset, position)


class TimeIndex(_SparseIndex):
    """Sparse map from timestamp to offset (``.timeindex``): each time the largest timestamp grows, the last
    offset of the batch that holds it. The last slot is reserved for the entry that closes the segment."""

    layout = TIME_INDEX_ENTRY
    _no_entry = (NO_TIMESTAMP_MS, 0)

    @property
    def is_in_order(self) -> bool:
        return not self._entries or _holds(check_time_index, self._whole(), self.base_offset)

    @property
    def room(self) -> int:
        return super().room - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The entry with the largest timestamp; (-1, base) of an empty index."""
        if not self.entry_count:
            return TimestampOffset(NO_TIMESTAMP_MS, self.base_offset)
        return self.entry(self.entry_count - 1)

    def entry(self, number: int) -> TimestampOffset:
        timestamp_ms, relative = self._fields(number)
        return TimestampOffset(timestamp_ms, self.base_offset + relative)

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """The entry with the largest timestamp at or below ``timestamp_ms``; (-1, base) if there is none."""
        entries = self._near(timestamp_ms)
        return find_timestamp(entries, len(entries) // self.layout.size_bytes, self.base_offset, timestamp_ms)

    def maybe_append(self, timestamp_ms: int, offset: int, *, is_closing: bool = False) -> None:
        """Add an entry if the timestamp rises.

        Raises:
            UsageError: offset or timestamp goes back, or the index is full (never for the closing entry).
        """
        last = self.last_entry
        if self.is_full and not is_closing:
            raise UsageError(f"{self.path} is full ({self.entry_count} entries)")
        if self.entry_count and offset < last.offset:
            raise UsageError(f"time index offset {offset} is below {last.offset} ({self.path})")
        if self.entry_count and timestamp_ms < last.timestamp_ms:
            raise UsageError(
                f"time index timestamp {timestamp_ms} is below {last.timestamp_ms} ({self.path})"
            )
        if timestamp_ms > last.timestamp_ms:
            self._entries += encode_time_entry(self.base_offset, timestamp_ms, offset)


class IndexBuilder:
    """Adds one entry each ``interval_bytes``, never for the first batch. This is Kafka's rule, but applied to
    each batch; Kafka applies it to each append call.

    The timestamp of a batch that compaction or an erasure has emptied does not count: no record there has it.

    A batch that cannot have an entry (the index is full, or its offset does not rise) is left out: an index
    is sparse, and a reader finds the batch by walking from the entry before.
    """

    def __init__(self, offset_index: OffsetIndex, time_index: TimeIndex, interval_bytes: int) -> None:
        self.offset_index = offset_index
        self.time_index = time_index
        self.interval_bytes = interval_bytes
        self.bytes_since_entry = 0
        self.largest: TimestampOffset = time_index.last_entry
        self._note_ends()

    @classmethod
    def empty(
        cls,
        files: Files,
        paths: tuple[str, str],
        base_offset: int,
        interval_bytes: int,
        limit_bytes: int = MAX_ACTIVE_INDEX_BYTES,
    ) -> Self:
        """With indexes that have no entries; ``paths`` are those of the offset index and the time index."""
        return cls(
            OffsetIndex(files, paths[0], base_offset, limit_bytes),
            TimeIndex(files, paths[1], base_offset, limit_bytes),
            interval_bytes,
        )

    def read_files(self) -> None:
        """Take over the entries of the files; none, if one of the files is missing or damaged. The caller
        must check them, and add the batches behind the last ones."""
        try:
            self.offset_index.read_file()
            self.time_index.read_file()
        except (CorruptionError, StorageError):
            self.clear()
        else:
            self.largest = self.time_index.last_entry
            self._note_ends()

    def store(self, *, flush: bool) -> None:
        """Write the entries that the files lack, and with ``flush`` make them durable."""
        self.offset_index.store(flush=flush)
        self.time_index.store(flush=flush)

    def _note_ends(self) -> None:
        """Update what every append needs to know. Called after each change of the indexes."""
        index = self.offset_index
        self.is_full = index.is_full or self.time_index.is_full
        self._least_offset = index.last_offset + 1 if index.entry_count else index.base_offset
        """The lowest offset that the next entry may have."""
        self._last_timestamp_ms = self.time_index.last_entry.timestamp_ms

    def clear(self) -> None:
        """Start again with empty indexes."""
        self.offset_index.clear()
        self.time_index.clear()
        self._note_ends()
        self.bytes_since_entry = 0
        self.largest = TimestampOffset(NO_TIMESTAMP_MS, self.offset_index.base_offset)

    def create(self) -> None:
        """Start again with empty files. They have no contents to flush; the caller flushes the directory."""
        self.clear()
        self.offset_index.create()
        self.time_index.create()

    def distrust_files(self) -> None:
        """Make the next store write new files for both."""
        self.offset_index.distrust_file()
        self.time_index.distrust_file()

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above ``offset``. The largest timestamp is then that of the last entry left;
        the caller must add the batches behind it again."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self._note_ends()
        self.bytes_since_entry = 0
        self.largest = self.time_index.last_entry

    def keep_below(self, offset: int, *, are_sound: bool) -> LastEntries | None:
        """Keep the entries below an offset up to which files were made durable. Returns the last of them, or
        None if they cannot be used. The caller must check them against the log, and add the batches behind
        them again.

        Args:
            are_sound: their order need not be checked.
        """
        self.truncate_to(offset)
        index, time_index = self.offset_index, self.time_index
        if not are_sound and not (index.is_in_order and time_index.is_in_order):
            return None
        if index.entry_count:
            batch = index.entry(index.entry_count - 1)
            last = LastEntries(batch.offset, batch.position, time_index.last_entry)
        elif time_index.entry_count <= 1:  # a short segment: only a clean stop adds an entry for all of it
            last = LastEntries(None, 0, time_index.last_entry if time_index.entry_count else None)
        else:
            return None
        index.trust_file()
        time_index.trust_file()
        return last

    @property
    def are_stored(self) -> bool:
        """Whether nothing is left to write or to flush."""
        return self.offset_index.is_stored and self.time_index.is_stored

    def add_all(self, batches: Iterable[tuple[BatchHeader, int]]) -> None:
        """:meth:`add` each."""
        for header, position in batches:
            self.add(header, position)

    def add(self, header: BatchHeader, position: int) -> None:
        """Note a batch that begins at ``position`` in the file."""
        base_offset, length, _, _, _, _, delta, _, timestamp_ms, _, _, _, record_count = header
        last_offset = base_offset + delta
        if timestamp_ms > self.largest.timestamp_ms and record_count:
            self.largest = tuple.__new__(TimestampOffset, (timestamp_ms, last_offset))
        if self.bytes_since_entry > self.interval_bytes and self._has_room_for(last_offset):
            self._add_entries(last_offset, position)
            self.bytes_since_entry = 0
        self.bytes_since_entry += length + LENGTH_OVERHEAD_BYTES

    def _add_entries(self, last_offset: int, position: int) -> None:
        """Do and check what :meth:`OffsetIndex.append` and :meth:`TimeIndex.maybe_append` would, in a quarter
        of the time because the ends are remembered. Every large batch comes here."""
        index = self.offset_index
        index.extend(encode_offset_entry(index.base_offset, last_offset, position))
        self._least_offset = last_offset + 1
        largest = self.largest
        if largest.timestamp_ms > self._last_timestamp_ms:
            self.time_index.maybe_append(*largest)
            self._last_timestamp_ms = largest.timestamp_ms
        self.is_full = index.room <= 0 or self.time_index.room <= 0

    @property
    def progress(self) -> IndexProgress:
        """The state from which a run over batches goes on."""
        index = self.offset_index
        return IndexProgress(
            self.bytes_since_entry,
            *self.largest,
            self._least_offset,
            index.room,
            self.time_index.room,
            *self.time_index.last_entry,
        )

    def add_run(self, run: Run) -> None:
        """Note the batches of a run, as :meth:`add` would have noted each."""
        self.offset_index.extend(run.offset_entries)
        self.time_index.extend(run.time_entries)
        self._note_ends()
        self.bytes_since_entry = run.progress.bytes_since_entry
        self.largest = TimestampOffset(
            run.progress.largest_timestamp_ms, run.progress.largest_timestamp_offset
        )

    def _has_room_for(self, offset: int) -> bool:
        reach = offset - self.offset_index.base_offset
        return offset >= self._least_offset and not self.is_full and reach <= MAX_RELATIVE_OFFSET

    def close(self) -> None:
        """Add a sealed segment's closing entry, so that its largest timestamp is known without a scan."""
        if self.largest.offset - self.time_index.base_offset <= MAX_RELATIVE_OFFSET:
            self.time_index.maybe_append(*self.largest, is_closing=True)
            self._note_ends()
