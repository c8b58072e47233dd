"""Segments: one ``.log`` file each, with its indexes.

A :class:`Segment` is sealed: it never changes. Its files are opened when they are first needed, and closed
again when many others were read since. The last segment of a log is an :class:`ActiveSegment`: it grows by
appending and shrinks by truncation. Neither knows other segments, producers, epochs or retention.
"""

from __future__ import annotations

import errno
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple, TypeVar
from weakref import ReferenceType, WeakKeyDictionary, ref

from logstore.errors import CorruptionError, NotOpenedError, StorageError
from logstore.files import File, Files, FileStamp
from logstore.format.header import HEADER_BYTES, BatchHeader, decode_header
from logstore.format.index import TimestampOffset
from logstore.format.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from logstore.partition.segments.failed_flushes import note_failed_flush, opening_to_flush
from logstore.partition.segments.index_pages import IndexPages
from logstore.partition.segments.indexes import (
    MAX_RELATIVE_OFFSET,
    IndexBuilder,
    OffsetIndex,
    TimeIndex,
)
from logstore.partition.segments.transaction_index import TransactionIndex
from logstore.partition.segments.walk import FIRST_PIECE_BYTES, PIECE_BYTES, Walk
from logstore.warning import warn

_MAX_ATTEMPTS = 32  # segments that are asked to close their files when another is opened
_numbers = itertools.count()
_Answer = TypeVar("_Answer")
_NO_INDEX = {
    getattr(errno, name, errno.EIO)  # some exist only on Linux
    for name in ("ENOENT", "EIO", "EUCLEAN", "EBADMSG")
}
"""Errors of opening an index that mean it is missing or unreadable. Running out of descriptors is not one."""
_REBUILT_INTERVAL_BYTES = 4096  # the default of index_interval_bytes; readers do not depend on the density


class OpenFiles(NamedTuple):
    """The open files of a sealed segment."""

    log: File
    offset_index: OffsetIndex
    time_index: TimeIndex


class OpenSegments:
    """The segments whose files are open, least recently used first. Shared by the logs of a store.

    Dropping a segment only forgets the references: a reader that is using the files goes on, and they are
    closed with the last reference. Active segments are counted separately, and flushed before they are
    closed: the system reports a write error only to the descriptor that the data was written through.

    Lock: ``_lock`` guards the order. Each step leaves it usable, for a signal handler or a finalizer that has
    interrupted this thread may come in between, and read or append.
    """

    def __init__(self, limit_count: int, active_limit_count: int = 2**31) -> None:
        self._limit_count = limit_count
        self._active_limit_count = active_limit_count
        self._order: OrderedDict[Segment, None] = OrderedDict()
        self._active: WeakKeyDictionary[Segment, None] = WeakKeyDictionary()
        self._lock = threading.RLock()
        self.index_pages = IndexPages()

    @property
    def count(self) -> int:
        """How many segments have their files open now."""
        with self._lock:
            return len(self._order) + len(self._active)

    def touch(self, segment: Segment) -> None:
        """Note that a sealed segment is used."""
        with self._lock:
            self._order.pop(segment, None)
            self._order[segment] = None
            while len(self._order) > self._limit_count:
                self._order.popitem(last=False)[0].forget_files()

    def touch_active(self, segment: Segment) -> None:
        """Note that an active segment is opened. If there are too many, drops those opened first: flushed
        ones, or else one that is flushed first."""
        with self._lock:
            self._active.pop(segment, None)
            last_attempt = min(len(self._active), _MAX_ATTEMPTS) - 1
            for attempt in range(last_attempt + 1):
                if len(self._active) < self._active_limit_count:
                    break
                oldest = next(iter(self._active))
                del self._active[oldest]
                if not oldest.forget_flushed_files(flush=attempt == last_attempt):
                    self._active[oldest] = None
            self._active[segment] = None

    def discard(self, segment: Segment) -> None:
        with self._lock:
            self._order.pop(segment, None)
            self._active.pop(segment, None)


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
        self.number = next(_numbers)
        """Unique to this object in this process: its cached batches are kept under it."""
        self._stem = f"{directory}/{segment_file_name(base_offset, '')}"
        """The path of its files without what their names end in."""
        self._suffix = ""
        self._coming_suffix = ""
        """The suffix that the files are being renamed to."""
        self.path = self.path_of(LOG_SUFFIX)
        self._files = files
        self._cache = cache
        self._is_read_only = is_read_only
        self._opened: OpenFiles | None = None
        self._size_bytes: int | None = None
        self._largest_timestamp: TimestampOffset | None = None
        self._promised_offset = -1
        self._rebuilt = False
        self._has_lost_files = False
        self._former: ReferenceType[Segment] | None = None
        self._has_left_cache = False
        self._kept: OpenFiles | None = None
        self._kept_transactions: TransactionIndex | None = None
        self._removed_suffixes: tuple[str, ...] = ()
        """Of the files that :meth:`remove_indexes` has removed: a flush does without them."""
        self._flush_error: BaseException | None = None
        """Kept because the system reports it only once: a second fsync would succeed and mean nothing."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    @property
    def is_retired(self) -> bool:
        """Whether it has left the log: batches read from it are not cached."""
        return bool(self._coming_suffix)

    def path_of(self, suffix: str) -> str:
        return f"{self._stem}{suffix}{self._suffix}"

    @property
    def index_paths(self) -> tuple[str, str]:
        """The paths of the offset index and the time index."""
        return self.path_of(INDEX_SUFFIX), self.path_of(TIME_INDEX_SUFFIX)

    @property
    def size_bytes(self) -> int:
        """Size of the .log file."""
        if self._size_bytes is None:
            self._size_bytes = self._of_log(self._files.size_bytes)
        return self._size_bytes

    @property
    def offset_index(self) -> OffsetIndex:
        return self._files_open().offset_index

    @property
    def time_index(self) -> TimeIndex:
        return self._files_open().time_index

    def log_and_index(self) -> tuple[File, OffsetIndex]:
        """The .log file and the offset index, for a reader that needs both once."""
        opened = self._files_open()
        return opened.log, opened.offset_index

    def read_transaction_index(self) -> TransactionIndex:
        """The aborted transactions whose markers lie in this segment. Reads the file each time (most segments
        have none).

        Raises:
            StorageError: ENOENT: the segment's files are gone. An open .log file can still be read, but which
                of its records were aborted is no longer known.
        """
        index = None
        try:
            index = self._of_log(self._read_transactions)
        except StorageError:
            if self._kept_transactions is None:
                raise
        kept = self._kept_transactions  # after the read: the file may have gone meanwhile
        if kept is not None:
            return kept
        assert index is not None
        return index

    def _read_transactions(self, log_path: str) -> TransactionIndex:
        """The transaction index beside the .log file of this name. There may be none. A segment's log is
        renamed and removed before the files beside it, so if the log is there, none was missed."""
        state = log_path.removeprefix(f"{self._stem}{LOG_SUFFIX}")
        path = f"{self._stem}{TRANSACTION_INDEX_SUFFIX}{state}"
        index = TransactionIndex.open(self._files, path, self.base_offset)
        if not index.entries:
            self._files.size_bytes(log_path)
        return index

    @property
    def largest_timestamp(self) -> TimestampOffset:
        """The largest timestamp of the segment and the last offset of its batch; (-1, base) if no record has
        one.

        It is read once from the time index, and checked against the batches from the one in the entry on.
        """
        if self._largest_timestamp is None:
            entry = self.time_index.last_entry
            if not self.confirms(entry, self.size_bytes, is_largest=True) and self.rebuild_indexes():
                entry = self.time_index.last_entry
            self._largest_timestamp = entry
        return self._largest_timestamp

    def promises(self, offset: int) -> bool:
        """Whether the time index, as found on disk, ends with an entry for ``offset``. If the log ends before
        that offset, it lost its end."""
        self._files_open()
        return self._promised_offset == offset

    def newest_ms(self) -> int:
        """The largest timestamp; the file's modification time if no record has one."""
        largest_ms = self.largest_timestamp.timestamp_ms
        return largest_ms if largest_ms >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        return self._of_log(self._files.modified_ms)

    def file_stamp(self) -> FileStamp:
        """The stamp of the .log file, even after a rename."""
        return self._of_log(self._files.stamp)

    def link_log(self, new: str) -> None:
        """Give the .log file another name. The caller holds the log's lock, and the segment is a sealed one
        of the log. Code that changes the file later checks for other names first."""
        self._files.link(self.path, new)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Bytes of the .log file; fewer than requested only at its end."""
        return self._files_open().log.read_at(position, size_bytes)

    def newest_at(self, position: int) -> memoryview | None:
        """All bytes from there on to the end of the .log file, if they are in memory."""
        return None

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Like :meth:`read_at`, into an existing buffer; returns the number of bytes."""
        return self._files_open().log.read_into(position, buffer)

    def walk(self, position: int, end: int, *, check: bool, piece_bytes: int = FIRST_PIECE_BYTES) -> Walk:
        """Walk the batches in ``[position, end)``."""
        return Walk(self._files_open().log.read_at, position, end, check=check, piece_bytes=piece_bytes)

    # Index entries are hints

    def position_before(self, offset: int) -> int:
        """A position where a batch begins that holds ``offset`` or lies in front of it.

        It comes from the index. If the batch there does not fit, the indexes are rebuilt; if that is not
        possible, the answer is the beginning of the file.
        """
        position = self._indexed_position(offset)
        if self._begins_before(position, offset):
            return position
        self.rebuild_indexes()
        position = self._indexed_position(offset)
        return position if self._begins_before(position, offset) else 0

    def _indexed_position(self, offset: int) -> int:
        return self.offset_index.lookup(offset).position if offset > self.base_offset else 0

    def _begins_before(self, position: int, offset: int) -> bool:
        if position <= 0:
            return position == 0
        header = self.header_at(position)
        return header is not None and self.base_offset <= header.base_offset <= offset

    def header_at(self, position: int) -> BatchHeader | None:
        """The header of the batch at a position, unchecked; None if there is none."""
        try:
            return decode_header(self.read_at(position, HEADER_BYTES))
        except CorruptionError:
            return None

    def confirms(self, entry: TimestampOffset, end: int, *, is_largest: bool = False) -> bool:
        """Whether the batch of a time index entry has its timestamp; with ``is_largest``, also whether no
        batch behind it up to position ``end`` has a larger one."""
        is_true = entry.timestamp_ms < 0  # "no record has one": check all batches, whatever the offset
        start = 0 if is_true else self.position_before(entry.offset)
        for piece in self.walk(start, end, check=False):
            for _, header in piece.batches:
                if header.max_timestamp_ms > entry.timestamp_ms:
                    return False
                if header.base_offset <= entry.offset <= header.last_offset:
                    is_true = is_true or header.max_timestamp_ms == entry.timestamp_ms
                if header.last_offset >= entry.offset and not (is_true and is_largest):
                    return is_true
        return is_true

    def _files_open(self) -> OpenFiles:
        opened = self._opened
        if opened is None:
            opened = self._opened = self._kept or self._open_or_kept()
        self._cache.touch(self)
        if self._has_left_cache or self._kept is not None:
            self._cache.discard(self)  # the cache would keep the files open after the last reader
        return opened

    def _open_or_kept(self) -> OpenFiles:
        try:
            return self._open()
        except StorageError:
            if self._kept is None:  # else another thread opened them before they were renamed
                raise
            return self._kept

    def keep_open(self) -> None:
        """Open the files for good, before they are removed. Readers of this object go on. The files are
        closed, and the disk frees their bytes, with the last reference to it."""
        for each in self._with_former():
            each._keep_open()

    def _keep_open(self) -> None:
        if self._kept is None:
            transactions = self.read_transaction_index()
            self._kept = self._files_open()
            self._kept_transactions = transactions
        self._cache.discard(self)

    def leave_cache(self) -> None:
        """Take the segment out of the cache: no new readers come. Readers of this object go on; the files are
        closed with the last reference to it, not when many others were read."""
        self._has_left_cache = True  # first: another thread may be about to put it back
        self._cache.discard(self)

    def stop_keeping(self) -> None:
        """Undo :meth:`keep_open`: the files stay after all."""
        self._kept = self._kept_transactions = None

    def flush(self) -> None:
        """Make the log, the indexes and the aborted transactions durable.

        Raises:
            NotOpenedError: a file could not be opened; no flush was tried.
            StorageError: a flush failed, now or before.
        """
        self._check_flushable()
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            if suffix == TRANSACTION_INDEX_SUFFIX and not self._files.is_file(self.path_of(suffix)):
                continue
            try:
                with opening_to_flush():
                    file = self._files.open(self.path_of(suffix), write=True)
            except NotOpenedError:
                if suffix in self._removed_suffixes:
                    continue
                raise
            try:
                self._flush_file(file)
            finally:
                file.close()

    def _flush_file(self, file: File) -> None:
        """Flush a file of the segment. A failure is remembered."""
        try:
            file.flush()
        except StorageError as error:
            self._note_failed_flush(error)
            raise

    def _note_failed_flush(self, error: BaseException) -> None:
        """Remember it, also for the next recovery."""
        self._flush_error = error
        if isinstance(error, StorageError):
            note_failed_flush(self._files, self.directory)

    def _check_flushable(self) -> None:
        if self._flush_error is not None:
            raise self._flush_error

    def take_over_failure(self, other: Segment) -> None:
        """Take over the flush failure of an object with the same files: they are not durable here either."""
        self._flush_error = other._flush_error

    def rename_files(self, suffix: str) -> list[str]:
        """Rename every file of the segment by appending ``suffix``, and return the new paths. Readers of the
        segment go on under the new names until the files are removed."""
        for each in self._with_former():
            each._coming_suffix = suffix
        renamed = []
        for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            path = self.path_of(kind)
            if self._files.is_file(path):
                self._files.rename(path, path + suffix)
                renamed.append(path + suffix)
        for each in self._with_former():
            each._suffix += suffix
            each.path = each.path_of(LOG_SUFFIX)
        return renamed

    def remember_former(self, former: Segment) -> None:
        """Note the active segment that this one was. Its readers must find the files even after a rename."""
        self._former = ref(former)
        self.take_over_failure(former)

    def _with_former(self) -> list[Segment]:
        """This segment, and the active one that it was, while that still has readers."""
        former = None if self._former is None else self._former()
        return [self] if former is None else [self, former]

    def disown_files(self) -> None:
        """Never write the files from here on: another object changes them."""
        self._is_read_only = True

    def lose_files(self) -> None:
        """Treat the files as removed, because another segment's files are about to take their names. A reader
        that has them open goes on."""
        for each in self._with_former():
            each._has_lost_files = True

    def remove_indexes(self) -> bool:
        """Remove the index files of a segment that is about to be removed; returns whether there were any.
        Its readers go on without them, and they are not written again."""
        self.disown_files()
        self._cache.discard(self)
        self.forget_files()
        self._removed_suffixes = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)  # first: another thread may be flushing
        paths = [self.path_of(suffix) for suffix in self._removed_suffixes]
        there = [path for path in paths if self._files.is_file(path)]
        for path in there:
            self._files.remove(path)
        return bool(there)

    def forget_files(self) -> None:
        """Drop the references to the open files; the next use opens them again."""
        self._opened = None

    def forget_flushed_files(self, *, flush: bool = False) -> bool:
        """Like :meth:`forget_files`, unless written data is not yet flushed; ``flush`` flushes it first.
        Returns whether the files were forgotten."""
        self.forget_files()
        return True

    def _open_log(self, *, write: bool = False) -> File:
        return self._of_log(lambda path: self._files.open(path, write=write))

    def _of_log(self, ask: Callable[[str], _Answer]) -> _Answer:
        """The result of ``ask`` for the path of the .log file, even during :meth:`rename_files`. The path is
        checked again afterwards: if the segment got another name meanwhile, the answer may come from the file
        that replaced it."""
        while True:
            path = self.path
            try:
                answer = ask(path)
            except StorageError as error:
                if error.errno != errno.ENOENT or not self._coming_suffix:
                    raise
                answer = ask(path + self._coming_suffix)
            if self._has_lost_files:
                raise StorageError(errno.ENOENT, "the segment was replaced and its file removed", path)
            if self.path == path:
                return answer

    def _open(self) -> OpenFiles:
        log = self._open_log()
        pages, base_offset = self._cache.index_pages, self.base_offset
        try:
            offset_index = OffsetIndex.open_sealed(
                self._files,
                self.path_of(INDEX_SUFFIX),
                base_offset,
                pages,
                self._rebuilding(log, attrgetter("offset_index")),
            )
            time_index = TimeIndex.open_sealed(
                self._files,
                self.path_of(TIME_INDEX_SUFFIX),
                base_offset,
                pages,
                self._rebuilding(log, attrgetter("time_index")),
            )
            if time_index.entry_count:
                self._promised_offset = time_index.last_entry.offset
        except CorruptionError:
            return self._rebuild_indexes(log)
        except StorageError as error:
            if error.errno not in _NO_INDEX or log.path == error.filename:
                raise
            if error.errno != errno.ENOENT:
                warn("an index is rebuilt from the log: %s", error)
            return self._rebuild_indexes(log)
        return OpenFiles(log, offset_index, time_index)

    def _rebuilding(
        self, log: File, index_of: Callable[[OpenFiles], OffsetIndex | TimeIndex]
    ) -> Callable[[], bytes]:
        """A function that rebuilds an index when its file cannot be read. It holds this object by a weak
        reference, or the files would stay open until the next garbage collection."""
        known = ref(self)

        def rebuild() -> bytes:
            segment = known()
            return b"" if segment is None else index_of(segment._rebuild_unreadable(log)).copy().entries

        return rebuild

    def _rebuild_unreadable(self, log: File) -> OpenFiles:
        rebuilt = self._rebuild_indexes(log)
        if self._opened is not None:
            self._opened = rebuilt
        return rebuilt

    def rebuild_indexes(self) -> bool:
        """Rebuild both indexes from the log, because an entry of one of them was wrong.

        Returns False if that was done before, or is not possible here: then reads go on without a hint. Cost:
        one pass over the segment's headers. They are not stored if the old ones reach further: the old ones
        are the only sign that the log lost its end.
        """
        if self._rebuilt:
            return False
        self._opened = self._rebuild_indexes(self._files_open().log)
        return True

    def _rebuild_indexes(self, log: File) -> OpenFiles:
        self._rebuilt = True
        builder = IndexBuilder.empty(self._files, self.index_paths, self.base_offset, _REBUILT_INTERVAL_BYTES)
        builder.clear()
        last_offset = self.base_offset - 1
        for piece in Walk(log.read_at, 0, log.size_bytes(), check=False, piece_bytes=PIECE_BYTES):
            for position, header in piece.batches:
                if not 0 <= header.last_offset - self.base_offset <= MAX_RELATIVE_OFFSET:
                    continue  # damage; readers get the error
                builder.add(header, piece.position + position)
                last_offset = header.last_offset
        builder.close()
        is_staying = not self._is_read_only and not self._coming_suffix
        if is_staying and self._promised_offset <= last_offset:
            _try_to_store(builder)
        return OpenFiles(log, builder.offset_index, builder.time_index)


def _try_to_store(builder: IndexBuilder) -> None:
    """Store rebuilt indexes for the next reader. This one has them, so a full disk must not stop it."""
    try:
        builder.offset_index.replace_file()
        builder.time_index.replace_file()
    except StorageError as error:
        warn("rebuilt indexes could not be stored: %s", error)
