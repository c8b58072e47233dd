"""The segment that grows: the last one of a log.

It is written with plain positioned writes, first the file, then memory. Its index entries stay in memory
until :meth:`ActiveSegment.store_indexes`. Callers hold the log's lock for every change; reading needs no
lock.

Lock: ``_index_lock`` guards the replacement of the indexes. A reader replaces them if it finds that entries
taken over from disk are wrong.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import NamedTuple

from logstore.config import TopicConfig
from logstore.errors import NotOpenedError, StorageError
from logstore.files import File, Files, read_small_file, write_small_file
from logstore.format.header import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, BatchHeader, decode_header
from logstore.format.index import TimestampOffset
from logstore.format.names import (
    TEMPORARY_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from logstore.format.received import is_given, memory_bytes
from logstore.model import AbortedTransaction, Bytes
from logstore.partition.segments.failed_flushes import is_interrupt, opening_to_flush
from logstore.partition.segments.indexes import (
    IndexBuilder,
    IndexEntries,
    OffsetIndex,
    TimeIndex,
)
from logstore.partition.segments.planned import PlannedAppend
from logstore.partition.segments.segment import OpenSegments, Segment
from logstore.partition.segments.transaction_index import MAX_TRANSACTION_INDEX_BYTES, TransactionIndex
from logstore.partition.segments.walk import FIRST_PIECE_BYTES, PIECE_BYTES, Walk

NO_ROLLING_TIMESTAMP = -2
"""Means no append yet. It is not -1, because records may carry that timestamp."""


class _Newest(NamedTuple):
    """The batch that was written last, in the memory that was given away for it."""

    position: int
    batch: weakref.ref[memoryview]
    """It is not kept for readers: a store has thousands of partitions."""


def _newest_of(buffers: Sequence[Bytes], position: int) -> _Newest | None:
    """None also of a batch that is a small part of its request: who keeps one record would keep that."""
    batch = buffers[-1]
    if type(batch) is not memoryview or len(buffers) > 1 or not is_given(batch):
        return None
    return _Newest(position, weakref.ref(batch)) if 2 * len(batch) >= memory_bytes(batch) else None


class ActiveSegment(Segment):
    """The last segment of a log."""

    __slots__ = (  # with those of the base class they are too many: see LogState
        "_index_limit_bytes",
        "_index_lock",
        "_is_flushed",
        "_kept_log",
        "_log",
        "_newest",
        "_transactions",
        "created_ms",
        "has_rest",
        "indexes",
        "is_shared",
        "jitter_ms",
        "rolling_timestamp_ms",
    )

    size_bytes: int = 0
    """Where the next batch goes: behind it, the file may hold the rest of a failed append."""

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        cache: OpenSegments,
        *,
        config: TopicConfig,
        created_ms: int,
        jitter_ms: int = 0,
    ) -> None:
        super().__init__(files, directory, base_offset, cache)
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.rolling_timestamp_ms = NO_ROLLING_TIMESTAMP
        self._log: File | None = None
        self._kept_log: File | None = None
        self._is_flushed = True
        self.has_rest = False
        """Whether bytes of a failed append, or those that a power cut left, may lie behind the end, in the
        file or only on the disk. Then :meth:`cut_rest` comes before the next :meth:`append`."""
        self.is_shared = False
        """Whether the file has another name. Then :meth:`own_file` comes before the next :meth:`append`."""
        self._newest: _Newest | None = None
        self._transactions: TransactionIndex | None = None
        self._index_lock = threading.RLock()
        self._index_limit_bytes = config.segment_index_bytes
        self.indexes = self._empty_indexes(config.index_interval_bytes)

    def _empty_indexes(self, interval_bytes: int) -> IndexBuilder:
        return IndexBuilder.empty(
            self._files, self.index_paths, self.base_offset, interval_bytes, self._index_limit_bytes
        )

    def create(self, *, flush: bool = True) -> None:
        """Create the files, empty and durable: a crash that loses the directory entry would lose every record
        that is appended and flushed here later. Without ``flush``, the caller must flush the directory before
        it calls any of these records durable.

        The indexes are created with the log: Kafka rescans a segment that lacks one.
        """
        self._log = log = self._files.open(self.path, create=True)
        self._cache.touch_active(self)
        log.truncate(0)
        self.indexes.create()
        if flush:
            self._files.flush_directory(self.directory)

    def link(self, path: str) -> None:
        """Create the indexes, and give an existing file, whole and durable, a second name here. Nothing of it
        is visible in this segment before :meth:`take_name`.

        Raises:
            StorageError: the file cannot have a second name here, or the disk refused.
        """
        self._files.link(path, self.path + TEMPORARY_SUFFIX)
        self.indexes.clear()
        self.indexes.store(flush=True)

    def unlink(self) -> None:
        """Undo :meth:`link`, except for the indexes."""
        if self._files.is_file(self.path + TEMPORARY_SUFFIX):
            self._files.remove(self.path + TEMPORARY_SUFFIX)

    def take_name(self, headers: Sequence[BatchHeader]) -> None:
        """Make the linked file the segment's log, durably. ``headers`` are those of its batches."""
        self._files.rename(self.path + TEMPORARY_SUFFIX, self.path)
        self._files.flush_directory(self.directory)
        position = 0
        for header in headers:
            self.indexes.add(header, position)
            position += header.size_bytes
        self.use_contents(position)

    def use_contents(self, size_bytes: int, first_timestamp_ms: int | None = None) -> None:
        """Take over an existing file; recovery found its first ``size_bytes`` good. The largest timestamp of
        the first batch is read if it is not given."""
        self.size_bytes = size_bytes
        if size_bytes and first_timestamp_ms is not None:
            self.rolling_timestamp_ms = first_timestamp_ms
        elif size_bytes >= HEADER_BYTES:
            self.rolling_timestamp_ms = decode_header(self.read_at(0, HEADER_BYTES)).max_timestamp_ms

    def look_for_other_names(self) -> None:
        """Find out whether the file has another name, for example in a backup. Such a file is never changed
        in place: before the first change, a copy takes this name. The caller makes sure that the file gets no
        other name from now on."""
        self.is_shared = self._files.link_count(self.path) > 1
        if self.is_shared:
            self.indexes.distrust_files()

    def cut_to_size(self) -> None:
        """Cut off the bytes of the file behind the segment's end."""
        self._cut(self.size_bytes)

    def _cut(self, size_bytes: int) -> None:
        """Cut the file to the segment's size. A file with another name is copied first."""
        if not self.is_shared:
            self.log_file.truncate(size_bytes)
            return
        path = self.path_of(TRANSACTION_INDEX_SUFFIX)
        transactions = read_small_file(self._files, path, MAX_TRANSACTION_INDEX_BYTES)
        if transactions is not None:
            write_small_file(self._files, path, transactions)
        self.rewrite()
        self.has_rest = False

    @property
    def log_file(self) -> File:
        log = self._log  # read once: another thread may clear it
        if log is None:
            log = self._log = self._kept_log or self._open_or_kept_log()
            self._cache.touch_active(self)
        return log

    def _open_or_kept_log(self) -> File:
        try:
            return self._open_log(write=True)
        except StorageError:
            if self._kept_log is None:
                raise
            return self._kept_log

    def _keep_open(self) -> None:
        self._kept_log = self.log_file
        self.read_transaction_index()

    @property
    def offset_index(self) -> OffsetIndex:
        return self.indexes.offset_index

    @property
    def time_index(self) -> TimeIndex:
        return self.indexes.time_index

    @property
    def largest_timestamp(self) -> TimestampOffset:
        return self.indexes.largest

    def rebuild_indexes(self) -> bool:
        with self._index_lock:
            if self._rebuilt:
                return False
            self._rebuilt = True
            builder = self._empty_indexes(self.indexes.interval_bytes)
            builder.clear()
            for piece in self.walk(0, self.size_bytes, check=False, piece_bytes=PIECE_BYTES):
                for position, header in piece.batches:
                    builder.add(header, piece.position + position)
            self.indexes = builder
            return True

    def forget_files(self) -> None:
        super().forget_files()
        self._log = None

    def forget_flushed_files(self, *, flush: bool = False) -> bool:
        if flush and not self._is_flushed:
            with contextlib.suppress(StorageError):  # the log's own next flush reports it
                self.flush()
        if not self._is_flushed:
            return False
        self.forget_files()
        return True

    def read_at(self, position: int, size_bytes: int) -> bytes:
        return self.log_file.read_at(position, size_bytes)

    def newest_at(self, position: int) -> memoryview | None:
        newest = self._newest
        if newest is None or newest.position != position:
            return None
        batch = newest.batch()
        return None if batch is None else batch.toreadonly()

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self.log_file.read_into(position, buffer)

    def log_and_index(self) -> tuple[File, OffsetIndex]:
        return self.log_file, self.indexes.offset_index

    def walk(self, position: int, end: int, *, check: bool, piece_bytes: int = FIRST_PIECE_BYTES) -> Walk:
        return Walk(self.log_file.read_at, position, end, check=check, piece_bytes=piece_bytes)

    def read_transaction_index(self) -> TransactionIndex:
        transactions = self._transactions
        if transactions is None:
            with self._index_lock:  # only one may be read and kept: entries are appended to it
                transactions = self._transactions
                if transactions is None:
                    transactions = self._transactions = super().read_transaction_index()
        return transactions

    def append(self, planned: PlannedAppend) -> BaseException | None:
        """Write batches at the end of a file that is clear (:attr:`has_rest`, :attr:`is_shared`).

        Ctrl-C comes most often while the system writes, which then ends that all the same. Such an error is
        returned, for the caller to raise when all is finished.

        Raises:
            StorageError: the write failed, and the file was cut back to its old size, unless that failed
                too.
        """
        position = self.size_bytes
        self.has_rest = True
        self._is_flushed = False
        log = self._log
        if log is None:
            log = self.log_file
        interrupt = None
        self._newest = None
        try:
            log.write_at(position, planned.buffers)
        except StorageError:
            self._cut_rest(position)
            raise
        except BaseException as error:
            if log.size_bytes() != position + planned.size_bytes:
                raise
            interrupt = error
        self._is_flushed = False  # a flush may have run during the write
        if self.rolling_timestamp_ms == NO_ROLLING_TIMESTAMP:
            self.rolling_timestamp_ms = planned.newest_ms
        with self._index_lock:
            indexes = self.indexes
            for header in planned.headers:
                indexes.add(header, position)
                position += header.batch_length + LENGTH_OVERHEAD_BYTES
            self._newest = _newest_of(planned.buffers, self.size_bytes)
            self.size_bytes = position
        self.has_rest = False
        return interrupt

    def _cut_rest(self, position: int) -> None:
        """After a failed write: cut off what reached the file, so that nobody takes it for records."""
        with contextlib.suppress(StorageError):
            if self.log_file.size_bytes() > position:
                self.log_file.truncate(position)
            else:
                self.has_rest = False  # nothing did, so nothing can be on the disk

    def own_file(self) -> None:
        """Let a copy take the name of a file that has another name, for example in a backup."""
        if self.is_shared:
            self.cut_to_size()

    def cut_rest(self) -> bool:
        """Cut off what a failed append left in the file, or what a power cut left behind its end. Returns
        whether a power cut could bring it back: then :meth:`flush_cut` comes before other records take its
        place.

        Otherwise the disk might get the records behind that place and not those in it, and show the refused
        ones in front of them: of the same size, at the same offsets, with a correct checksum.
        """
        if self.has_rest or self.log_file.size_bytes() > self.size_bytes:
            self.has_rest = True
            self.cut_to_size()
        return self.has_rest

    def flush_cut(self) -> None:
        """Make the cut of :meth:`cut_rest` durable. A failure is one of :meth:`flush`."""
        self.flush()
        self.has_rest = False

    def append_aborted(self, aborted: AbortedTransaction) -> None:
        """Note an aborted transaction whose marker was just appended."""
        self.read_transaction_index().append(aborted)

    def flush(self) -> None:
        """Make the log durable. The indexes follow with :meth:`store_indexes`: after a crash, the part above
        the stored recovery point is indexed again."""
        if self._flush_error is not None:
            raise self._flush_error
        log = self._log
        if log is None:
            with opening_to_flush():
                log = self.log_file
        transactions = self._transactions
        self._is_flushed = True  # first: records appended meanwhile may not be flushed
        handled = sys.exc_info()[1]
        try:
            log.flush()
            if transactions is not None and not transactions.is_flushed:
                transactions.flush()
        except BaseException as error:
            self._is_flushed = False
            if not isinstance(error, NotOpenedError) and not is_interrupt(error, handled):
                self._note_failed_flush(error)
            raise

    def store_indexes(self, *, flush: bool) -> None:
        """Write the index entries that are only in memory."""
        with self._index_lock:
            self.indexes.store(flush=flush)

    def copy_indexes(self) -> tuple[IndexEntries, IndexEntries]:
        """The offset index and the time index, as they are now."""
        with self._index_lock:
            return self.indexes.offset_index.copy(), self.indexes.time_index.copy()

    def close_indexes(self) -> None:
        """Add the entry that closes the time index; :meth:`store_indexes` follows. In a clean directory, a
        broker takes a segment's largest timestamp from this entry, for lookups by time and retention."""
        with self._index_lock:
            self.indexes.close()

    def hide_from(self, offset: int) -> int:
        """Hide the batches from the first one whose last offset is at or above ``offset``, in memory. Returns
        the offset after the last batch that is left. :meth:`truncate_to` follows."""
        cut, end = self._position_of_first_at(offset)
        self.has_rest = True
        self._newest = None
        self.size_bytes = cut
        return end

    def truncate_to(self, offset: int, created_ms: int) -> None:
        """Drop the batches that :meth:`hide_from` has hidden.

        The largest timestamp is determined again from the batches behind the last index entry that is kept,
        or from all batches if the time index is wrong.
        """
        self._check_flushable()
        cut = self.size_bytes
        with self._index_lock:
            self.indexes.truncate_to(offset)
            self.read_transaction_index().truncate_to(offset)
            self._cut(cut)
            self._flush_file(self.log_file)
            self.has_rest = False
            if not self.confirms(self.time_index.last_entry, cut):
                self.indexes.clear()
            if cut == 0:
                self.created_ms = created_ms
                self.rolling_timestamp_ms = NO_ROLLING_TIMESTAMP
            self._reindex_tail(cut)
            with contextlib.suppress(StorageError):  # then the next store does it
                self.indexes.store(flush=False)  # the files name what is gone: that looks like a lost end

    def rewrite(self) -> None:
        """Replace the log by a copy of it, durably, after a failed flush.

        The copy gets new blocks. Writing the same pages again may not reach the disk, although it is
        reported: ext4 takes the blocks of a failed write for written, and the disk keeps them as never
        written, so that they read as zeros after the next mount. Readers that have the old file open go on. A
        crash before the rename is durable leaves the old file, of which nothing was acknowledged beyond what
        had been flushed before. Cost: the file's size in reading, writing and free space.

        Raises:
            StorageError: the disk refused or has no room; the old file is still there.
        """
        path = self.path + TEMPORARY_SUFFIX
        try:
            self._copy_log(path)
            self._files.set_modified_ms(path, self.modified_ms)  # retention may go by it
            self._files.rename(path, self.path)
        except StorageError:
            with contextlib.suppress(StorageError):
                self._files.remove(path)
            raise
        self._files.flush_directory(self.directory)
        self.forget_files()
        self.indexes.distrust_files()
        self.is_shared = False

    def _copy_log(self, path: str) -> None:
        copy = self._files.open(path, create=True)
        try:
            copy.truncate(0)
            for position in range(0, self.size_bytes, PIECE_BYTES):
                size_bytes = min(PIECE_BYTES, self.size_bytes - position)
                copy.write_at(position, [self.log_file.read_at(position, size_bytes)])
            self._flush_file(copy)
        finally:
            copy.close()

    def _position_of_first_at(self, offset: int) -> tuple[int, int]:
        end = self.base_offset
        walk = self.walk(self.position_before(offset - 1), self.size_bytes, check=False)
        for piece in walk:
            for position, header in piece.batches:
                if header.last_offset >= offset:
                    return piece.position + position, end
                end = header.next_offset
        return self.size_bytes, end

    def _reindex_tail(self, end: int) -> None:
        """Add the batches behind the last index entry to the builder again."""
        for piece in self.walk(self.position_before(self.offset_index.last_offset), end, check=False):
            for position, header in piece.batches:
                self.indexes.add(header, piece.position + position)

    def seal(self) -> Segment:
        """Write the closing entries, and return the sealed segment that replaces this one. Nothing is flushed
        yet.

        Leftover bytes of a failed append are cut off now: a sealed segment is the whole file.
        """
        self.cut_rest()
        self.close_indexes()
        self.store_indexes(flush=False)
        sealed = Segment(self._files, self.directory, self.base_offset, self._cache)
        sealed.size_bytes  # noqa: B018 - remembers the size now, before the file is ever renamed
        sealed.remember_former(self)
        return sealed


def open_active(segment: ActiveSegment) -> ActiveSegment:
    """Give a segment that exists on disk the indexes found beside it, or empty ones if they cannot be used.
    The caller must still check them and add the part behind their last entries."""
    segment.indexes.read_files()
    segment.look_for_other_names()
    return segment
