"""Segments: one ``.log`` file each, with its indexes.

A :class:`Segment` is sealed: it never changes, its files are opened when they are first needed and closed
again when many others were read since. The last segment of a log is an :class:`ActiveSegment`: it grows by
appending and shrinks by truncation. Neither knows offsets beyond its own, producers, epochs or retention.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from typing import NamedTuple

from logstore.errors import CorruptionError, StorageError
from logstore.files import File, Files
from logstore.format.index import TimestampOffset
from logstore.format.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from logstore.partition.index_builder import IndexBuilder
from logstore.partition.indexes import OffsetIndex, TimeIndex, TransactionIndex
from logstore.partition.walk import FIRST_PIECE_BYTES, PIECE_BYTES, Walk

_REBUILT_INTERVAL_BYTES = 4096  # the default of index_interval_bytes; density is nothing a reader depends on


class OpenFiles(NamedTuple):
    """What a sealed segment holds open."""

    log: File
    offset_index: OffsetIndex
    time_index: TimeIndex


class OpenSegments:
    """The sealed segments whose files are open, least recently used first. Shared by the logs of a store.

    Dropping one only forgets the references: a reader that is using the files goes on, and they are closed
    with the last reference. Lock: ``_lock`` guards the order.
    """

    def __init__(self, limit_count: int) -> None:
        self._limit_count = limit_count
        self._order: OrderedDict[Segment, None] = OrderedDict()
        self._lock = threading.Lock()

    def touch(self, segment: Segment) -> None:
        with self._lock:
            self._order[segment] = None
            self._order.move_to_end(segment)
            while len(self._order) > self._limit_count:
                self._order.popitem(last=False)[0].forget_files()

    def discard(self, segment: Segment) -> None:
        with self._lock:
            self._order.pop(segment, None)


class Segment:
    """A sealed segment: records from ``base_offset`` on, up to the base of the next one.

    All methods may be called from many threads.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        cache: OpenSegments,
        *,
        is_read_only: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.directory = directory
        self._suffix = ""
        self.path = self.path_of(LOG_SUFFIX)
        self._files = files
        self._cache = cache
        self._is_read_only = is_read_only
        self._opened: OpenFiles | None = None
        self._size_bytes: int | None = None
        self._rebuilt = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def path_of(self, suffix: str) -> str:
        return f"{self.directory}/{segment_file_name(self.base_offset, suffix)}{self._suffix}"

    @property
    def size_bytes(self) -> int:
        """Size of the .log file."""
        if self._size_bytes is None:
            self._size_bytes = self._files.size_bytes(self.path)
        return self._size_bytes

    @property
    def offset_index(self) -> OffsetIndex:
        return self._files_open().offset_index

    @property
    def time_index(self) -> TimeIndex:
        return self._files_open().time_index

    def read_transaction_index(self) -> TransactionIndex:
        """The aborted transactions whose markers lie here; read anew each time (most segments have none)."""
        return TransactionIndex.open(self._files, self.path_of(TRANSACTION_INDEX_SUFFIX), self.base_offset)

    @property
    def largest_timestamp(self) -> TimestampOffset:
        """The largest timestamp of the segment and the last offset of its batch; (-1, base) if no record has
        one."""
        return self.time_index.last_entry

    @property
    def modified_ms(self) -> int:
        return self._files.modified_ms(self.path)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Bytes of the .log file; fewer than asked only at its end."""
        return self._files_open().log.read_at(position, size_bytes)

    def walk(self, position: int, end: int, *, check: bool, piece_bytes: int = FIRST_PIECE_BYTES) -> Walk:
        """Walk the batches in ``[position, end)``."""
        return Walk(self._files_open().log.read_at, position, end, check=check, piece_bytes=piece_bytes)

    def _files_open(self) -> OpenFiles:
        opened = self._opened
        if opened is None:
            opened = self._opened = self._open()
        self._cache.touch(self)
        return opened

    def flush(self) -> None:
        """Make the log, the indexes and the aborted transactions durable."""
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            if suffix == TRANSACTION_INDEX_SUFFIX and not self._files.is_file(self.path_of(suffix)):
                continue
            file = self._files.open(self.path_of(suffix), write=True)
            try:
                file.flush()
            finally:
                file.close()

    def rename_files(self, suffix: str) -> list[str]:
        """Rename every file of the segment by appending ``suffix`` and return the new paths. Readers that hold
        the segment go on reading it under the new names until the files are removed."""
        renamed = []
        for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            path = self.path_of(kind)
            if self._files.is_file(path):
                self._files.rename(path, path + suffix)
                renamed.append(path + suffix)
        self._suffix += suffix
        self.path = self.path_of(LOG_SUFFIX)
        return renamed

    def forget_files(self) -> None:
        """Drop the references to the open files; the next use opens them again."""
        self._opened = None

    def _open(self) -> OpenFiles:
        log = self._files.open(self.path)
        try:
            offset_index = OffsetIndex.open_sealed(self._files, self.path_of(INDEX_SUFFIX), self.base_offset)
            time_index = TimeIndex.open_sealed(self._files, self.path_of(TIME_INDEX_SUFFIX), self.base_offset)
            # A stale or foreign index points outside the file; an empty time index hides timestamps.
            if not _is_plausible(offset_index, time_index, log.size_bytes()):
                return self._rebuild_indexes(log)
        except CorruptionError:
            return self._rebuild_indexes(log)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return self._rebuild_indexes(log)
        return OpenFiles(log, offset_index, time_index)

    def rebuild_indexes(self) -> bool:
        """Build both indexes anew from the log, because what one of them said was wrong.

        Returns False if that was done before: then it is the log that is damaged. Cost: one pass over the
        segment's headers.
        """
        if self._rebuilt:
            return False
        self._opened = self._rebuild_indexes(self._files_open().log)
        return True

    def _rebuild_indexes(self, log: File) -> OpenFiles:
        self._rebuilt = True
        builder = IndexBuilder(
            OffsetIndex(self._files, self.path_of(INDEX_SUFFIX), self.base_offset),
            TimeIndex(self._files, self.path_of(TIME_INDEX_SUFFIX), self.base_offset),
            _REBUILT_INTERVAL_BYTES,
        )
        builder.clear()
        walk = Walk(log.read_at, 0, log.size_bytes(), check=False, piece_bytes=PIECE_BYTES)
        for piece in walk:
            for position, header in piece.batches:
                builder.add(header, piece.position + position)
        builder.close()
        if not self._is_read_only:
            builder.offset_index.store(flush=True)
            builder.time_index.store(flush=True)
        return OpenFiles(log, builder.offset_index, builder.time_index)


def _is_plausible(offset_index: OffsetIndex, time_index: TimeIndex, log_size_bytes: int) -> bool:
    last = offset_index.entry(offset_index.entry_count - 1) if offset_index.entry_count else None
    if last is not None and last.position >= log_size_bytes:
        return False
    return time_index.entry_count > 0 or log_size_bytes == 0
