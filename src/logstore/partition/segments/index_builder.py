"""Filling the indexes of a segment as its batches go by: while appending, recovering and rebuilding."""

from __future__ import annotations

from logstore.format.header import LENGTH_OVERHEAD_BYTES, BatchHeader
from logstore.format.index import TimestampOffset, encode_offset_entry
from logstore.format.run import IndexProgress, Run
from logstore.model import NO_TIMESTAMP_MS
from logstore.partition.segments.indexes import MAX_RELATIVE_OFFSET, OffsetIndex, TimeIndex


class IndexBuilder:
    """Adds one entry each ``interval_bytes``, never for the first batch: Kafka's rule, applied to each batch
    where Kafka applies it to each append call.

    A batch without records, which compaction or an erasure has emptied, has no timestamp: none is found
    there.

    A batch that cannot have an entry (the index is full, its offset does not rise) is left out: an index is
    sparse, and a reader finds the batch by walking from the entry before.
    """

    def __init__(self, offset_index: OffsetIndex, time_index: TimeIndex, interval_bytes: int) -> None:
        self.offset_index = offset_index
        self.time_index = time_index
        self.interval_bytes = interval_bytes
        self.bytes_since_entry = 0
        self.largest: TimestampOffset = time_index.last_entry
        self._note_ends()

    def _note_ends(self) -> None:
        """After each change of the indexes: every append asks."""
        index = self.offset_index
        self.is_full = index.is_full or self.time_index.is_full
        self._least_offset = index.last_offset + 1 if index.entry_count else index.base_offset
        """The first that may have the next entry."""
        self._last_timestamp_ms = self.time_index.last_entry.timestamp_ms

    def clear(self) -> None:
        """Begin again with empty indexes."""
        self.offset_index.clear()
        self.time_index.clear()
        self._note_ends()
        self.bytes_since_entry = 0
        self.largest = TimestampOffset(NO_TIMESTAMP_MS, self.offset_index.base_offset)

    def distrust_files(self) -> None:
        """Write both files anew with the next store."""
        self.offset_index.distrust_file()
        self.time_index.distrust_file()

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above ``offset``. The largest timestamp is then that of the last entry left:
        the caller adds the batches behind it again."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self._note_ends()
        self.bytes_since_entry = 0
        self.largest = self.time_index.last_entry

    def add(self, header: BatchHeader, position: int) -> None:
        """Note a batch that begins at ``position`` in the file."""
        last_offset, timestamp_ms = header.last_offset, header.max_timestamp_ms
        if timestamp_ms > self.largest.timestamp_ms and header.record_count:
            self.largest = TimestampOffset(timestamp_ms, last_offset)
        if self.bytes_since_entry > self.interval_bytes and self._has_room_for(last_offset):
            self._add_entries(last_offset, position)
            self.bytes_since_entry = 0
        self.bytes_since_entry += header.batch_length + LENGTH_OVERHEAD_BYTES

    def _add_entries(self, last_offset: int, position: int) -> None:
        """What :meth:`OffsetIndex.append` and :meth:`TimeIndex.maybe_append` would do and check, in a quarter
        of the time because the ends are remembered: each large batch comes here."""
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
        """What a run over batches goes on from."""
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
        """Note the batches of a run: what :meth:`add` would have done with each."""
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
        """The closing entry of a sealed segment: its largest timestamp is known without a scan."""
        if self.largest.offset - self.time_index.base_offset <= MAX_RELATIVE_OFFSET:
            self.time_index.maybe_append(*self.largest, is_closing=True)
            self._note_ends()
