"""Files that another process writes: noticing that they changed, and the segment at the end that grows.

Knows one file at a time; which segments make up a log is the business of
:mod:`~logstore.partition.watching`.
"""

from __future__ import annotations

import errno
import threading

from logstore.clock import Clock
from logstore.errors import CorruptionError, StorageError
from logstore.files import File, Files, FileStamp
from logstore.format.header import HEADER_BYTES, BatchHeader
from logstore.format.index import AbortedTransactions, TimestampOffset
from logstore.format.names import INDEX_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, TRANSACTION_INDEX_SUFFIX
from logstore.partition.home import LogHome
from logstore.partition.index_builder import IndexBuilder
from logstore.partition.indexes import OffsetIndex, TimeIndex, TransactionIndex
from logstore.partition.segment import OpenFiles, OpenSegments, Segment
from logstore.partition.walk import Piece

_UNSETTLED_NS = 50_000_000  # what changed this recently may change again without a new time stamp
_INDEX_INTERVAL_BYTES = 4096


class Watch:
    """Tells whether a file or directory may have changed since it was asked last: one system call.

    Ask first, then read: what changes in between is noticed the next time.
    """

    def __init__(self, files: Files, clock: Clock, path: str) -> None:
        self._files = files
        self._clock = clock
        self._path = path
        self._settled_ns = -1

    def has_changed(self) -> bool:
        changed_ns = self._files.changed_ns(self._path)
        if changed_ns == self._settled_ns:
            return False
        is_settled = self._clock.now_ms() * 1_000_000 - changed_ns > _UNSETTLED_NS
        self._settled_ns = changed_ns if is_settled else -1
        return True

    def forget(self) -> None:
        """Answer yes the next time."""
        self._settled_ns = -1


class WatchedCheckpoints:
    """The checkpoint files of a directory, read again when they may have changed; for all its logs."""

    def __init__(self, home: LogHome, files: Files, clock: Clock) -> None:
        self._home = home
        self._watch = Watch(files, clock, home.path)
        self._lock = threading.Lock()

    def current(self) -> LogHome:
        with self._lock:
            if self._watch.has_changed():
                self._home.load()
        return self._home


class StampedSegment(Segment):
    """A sealed segment of a log that somebody else writes. It never changes, but another one may take its
    names, by compaction or an erasure or after a truncation. It is that of the file that was there when this
    object was made: what is read for it is given only if that is there still."""

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        cache: OpenSegments,
        state: str = "",
        stamp: FileStamp | None = None,
    ) -> None:
        """``state``: what the names of its files end with. ``stamp``: of the file that was found earlier,
        unless it is the one that is there now."""
        super().__init__(files, directory, base_offset, cache, is_read_only=True)
        self.state = self._suffix = state
        self.path = self.path_of(LOG_SUFFIX)
        self.stamp = stamp or files.stamp(self.path)
        self._size_bytes = self.stamp.size_bytes
        self.is_swapped_in_part = False
        """Its log has its plain name, and its aborted transactions have not."""

    def _open(self) -> OpenFiles:
        opened = super()._open()
        self._check_in_place()
        return opened

    def _read_transactions(self, log_path: str) -> TransactionIndex:
        index = super()._read_transactions(log_path)
        if self.is_swapped_in_part and not index.entries:
            path = f"{self.path_of(TRANSACTION_INDEX_SUFFIX)}{SWAP_SUFFIX}"
            index = TransactionIndex.open(self._files, path, self.base_offset)
            if not index.entries:  # it got its plain name between the two looks
                index = super()._read_transactions(log_path)
        self._check_in_place()
        return index

    def _check_in_place(self) -> None:
        """Called last: a log that has the name now had it all the time."""
        if self._files.stamp(self.path) != self.stamp:
            raise replaced(self.path)


def replaced(path: str) -> StorageError:
    """What a reader gets whose segment's name is another file's now."""
    return StorageError(errno.ENOENT, "the segment was replaced, and its file removed", path)


def begins_with(file: File, size_bytes: int, last: tuple[int, bytes]) -> bool:
    """Whether a file begins with what was found good of it: so many bytes, and position and header of the
    last batch in there. Cutting it and appending anew changes that header: its offset, its time or its
    CRC."""
    position, header = last
    return file.size_bytes() >= size_bytes and file.read_at(position, len(header)) == header


class WatchedSegment(Segment):
    """The last segment of a log that somebody else writes: it grows, and its index files lag behind."""

    def __init__(
        self, files: Files, clock: Clock, directory: str, base_offset: int, cache: OpenSegments
    ) -> None:
        super().__init__(files, directory, base_offset, cache, is_read_only=True)
        self.aborted = AbortedTransactions()
        """Seen by this reader; the writer's index file may not have them yet."""
        self.contents = Watch(files, clock, self.path)
        self.next_offset = base_offset
        self._checked_bytes = 0
        self._last = (0, b"")  # position and header of the last batch, together: other threads look
        self._indexes = IndexBuilder(
            OffsetIndex(files, self.path, base_offset),
            TimeIndex(files, self.path, base_offset),
            _INDEX_INTERVAL_BYTES,
        )

    @property
    def size_bytes(self) -> int:
        """Bytes that were found good."""
        return self._checked_bytes

    @property
    def largest_timestamp(self) -> TimestampOffset:
        return self._indexes.largest

    def _open(self) -> OpenFiles:
        indexes, file = self._indexes, self._files.open(self.path)
        if not self.begins(file):
            raise replaced(self.path)
        return OpenFiles(file, indexes.offset_index, indexes.time_index)

    def rebuild_indexes(self) -> bool:
        return False  # they were built from the batches themselves by this reader

    def read_transaction_index(self) -> TransactionIndex:
        index = TransactionIndex(self._files, self.path_of(TRANSACTION_INDEX_SUFFIX), self.base_offset)
        index.entries = self.aborted
        return index

    @property
    def last_batch(self) -> tuple[int, bytes]:
        """Position and header of the last batch that was found good."""
        return self._last

    def begins(self, file: File) -> bool:
        """Whether the file begins with what was found good."""
        return begins_with(file, self._checked_bytes, self._last)

    def stored_index(self) -> OffsetIndex | None:
        """The index as the writer has stored it; None if there is none that can be used."""
        try:
            index = OffsetIndex.open_sealed(self._files, self.path_of(INDEX_SUFFIX), self.base_offset)
        except (StorageError, CorruptionError):
            return None
        return index if index.is_in_order else None

    def skip_to(self, position: int) -> None:
        """Leave out what cannot be read in front of the next batch."""
        self._checked_bytes = position

    def accept(self, header: BatchHeader, piece: Piece, position: int) -> None:
        """Take in the next batch, which was checked."""
        at = piece.position + position
        self._indexes.add(header, at)
        self._last = (at, piece.buffer[position : position + min(HEADER_BYTES, header.size_bytes)])
        self.next_offset = header.next_offset
        self._checked_bytes = at + header.size_bytes
