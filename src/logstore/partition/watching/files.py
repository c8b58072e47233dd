"""Files that another process writes: noticing their changes, and the growing segment at the end.

This module handles one file at a time; :mod:`~logstore.partition.watching.read_only` knows which segments
make up a log.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from logstore.clock import Clock
from logstore.errors import CorruptionError, ReopenRequiredError, StorageError
from logstore.files import File, Files, FileStamp
from logstore.format.header import HEADER_BYTES
from logstore.format.index import AbortedTransactions, TimestampOffset
from logstore.format.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from logstore.model import AbortedTransaction
from logstore.partition.recovery.tail import Tail, index_tail
from logstore.partition.segments.indexes import IndexBuilder, OffsetIndex, TimeIndex
from logstore.partition.segments.segment import OpenFiles, OpenSegments, Segment
from logstore.partition.segments.transaction_index import TransactionIndex
from logstore.partition.segments.walk import PIECE_BYTES, Walk, positions_behind
from logstore.partition.state.home import LogHome
from logstore.partition.state.leader_epochs import LeaderEpochs

_UNSETTLED_NS = 50_000_000  # a file changed this recently may change again without a new time stamp
_INDEX_INTERVAL_BYTES = 4096


class Watch:
    """Tells whether a file or directory may have changed since the last question: one system call.

    Ask first, then read: a change in between is noticed the next time.
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
    """The checkpoint files of a directory, for all its logs; read again when they may have changed."""

    def __init__(self, home: LogHome, files: Files, clock: Clock) -> None:
        self.is_clean = False
        """Whether there is a clean-shutdown marker: no log was changed since then."""
        self._home = home
        self._files = files
        self._number: int | None = None
        """Of the directory."""
        self._watch = Watch(files, clock, home.path)
        self._lock = threading.Lock()

    def check_place(self) -> None:
        """
        Raises:
            ReopenRequiredError: another directory has the path than when this was called first, as after a
                backup was put there. What is known belongs to the one before.
        """
        number = self._files.stamp(self._home.path).number
        if self._number is None:
            self._number = number
        if number != self._number:
            raise ReopenRequiredError(
                None, "another directory was put in this one's place; open the store again", self._home.path
            )

    def current(self) -> LogHome:
        """
        Raises:
            CorruptionError: a checkpoint is not a regular file, or larger than any can be.
            ReopenRequiredError: see :meth:`check_place`.
        """
        self.check_place()
        with self._lock:
            if self._watch.has_changed():
                try:
                    self.is_clean = self._home.has_clean_marker()  # first: a writer removes it, then changes
                    self._home.load()
                except BaseException:
                    self._watch.forget()
                    raise
        return self._home

    def forget(self) -> None:
        """Read them the next time, even if the directory looks unchanged."""
        with self._lock:
            self._watch.forget()


class StampedSegment(Segment):
    """A sealed segment of a log that another process writes. It never changes, but another segment may take
    its names, by compaction or an erasure or after a truncation. This object stands for the file that was
    there when it was made: anything read is returned only if that file is still there."""

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        cache: OpenSegments,
        state: str = "",
        stamp: FileStamp | None = None,
    ) -> None:
        """``state``: the suffix of the names of its files. ``stamp``: of the file that was found earlier; by
        default, of the file there now."""
        super().__init__(files, directory, base_offset, cache, is_read_only=True)
        self.state = self._suffix = state
        self.path = self.path_of(LOG_SUFFIX)
        self.stamp = stamp or files.stamp(self.path)
        self._size_bytes = self.stamp.size_bytes
        self.is_swapped_in_part = False
        """Whether its log has its plain name already, but its transaction index does not."""
        self.is_checked = False
        """Whether this reader has checked all its batches, and the next segment's follow them."""
        self.quiet_range = (0, 0)
        """Positions between which no batch has a producer, as far as the check has seen."""
        self.replayed: tuple[AbortedTransaction, ...] | None = None
        """The aborted transactions that a replay has found: a power cut may have taken their entries from the
        stored index. None before the replay."""

    def _open(self) -> OpenFiles:
        opened = super()._open()
        self._check_in_place()
        return opened

    def _read_transactions(self, log_path: str) -> TransactionIndex:
        index = super()._read_transactions(log_path)
        if self.is_swapped_in_part and not index.entries:
            path = f"{self.path_of(TRANSACTION_INDEX_SUFFIX)}{SWAP_SUFFIX}"
            index = TransactionIndex.open(self._files, path, self.base_offset)
            if not index.entries:  # it was renamed between the two looks
                index = super()._read_transactions(log_path)
        self._check_in_place()
        if self.replayed:
            known = {each.last_offset: each for each in (*self.replayed, *index.entries)}
            index.entries = AbortedTransactions(known[offset] for offset in sorted(known))
        return index

    def _check_in_place(self) -> None:
        """Check that the log is still the same. Called last: then it was the same all the time."""
        if self._files.stamp(self.path) != self.stamp:
            raise replaced(self.path)


def replaced(path: str) -> StorageError:
    """The error for a reader whose segment's name now belongs to another file."""
    return StorageError(errno.ENOENT, "the segment was replaced and its file removed", path)


def begins_with(file: File, size_bytes: int, last: tuple[int, bytes]) -> bool:
    """Whether a file still begins with its good part, given by its size and the position and header of its
    last batch. Cutting the file and appending again changes that header: its offset, its time or its CRC."""
    position, header = last
    return file.size_bytes() >= size_bytes and file.read_at(position, len(header)) == header


class TailRules(NamedTuple):
    """What is known about a log's end before its batches are read, as in recovery."""

    recovery_point: int
    is_dense: bool
    """Whether a gap above the recovery point means loss."""
    is_clean: bool
    ended_at: int | None
    """The recovery point, if one is stored: where the log once ended."""


class WatchedSegment(Segment):
    """A segment at the end of a log that another process writes: it may grow, and its index files lag behind.

    The first look begins as recovery does, with the stored index entries below the recovery point. The
    batches above the last of them are checked and indexed here.

    Lock: ``_index_lock`` guards the indexes. A look extends them, and a reader that finds them wrong replaces
    them.
    """

    def __init__(
        self, files: Files, clock: Clock, directory: str, base_offset: int, cache: OpenSegments
    ) -> None:
        super().__init__(files, directory, base_offset, cache, is_read_only=True)
        self.aborted = AbortedTransactions()
        """The aborted transactions with markers in the good part; the stored index may not have all yet."""
        self.contents = Watch(files, clock, self.path)
        self.fault: CorruptionError | None = None
        """The error that ended the last look before the file's end."""
        self._tail: Tail | None = None
        self._looked_at: File | None = None
        self._last = (0, b"")  # position and header of the last batch, in one tuple for other threads
        self._good = (0, base_offset)
        self._index_lock = threading.RLock()
        self.indexes = self._empty_indexes()

    def _empty_indexes(self) -> IndexBuilder:
        return IndexBuilder.empty(self._files, self.index_paths, self.base_offset, _INDEX_INTERVAL_BYTES)

    # Looking

    def begin(self, rules: TailRules, reach: int | None = None) -> None:
        """Take the first look: find the end of the good part."""
        with self._looking():
            self._take_stored_indexes()
            self._tail, self.fault, *_ = index_tail(
                self,
                lambda: self._new_tail(rules),
                max(rules.recovery_point, self.base_offset),
                are_indexes_sound=rules.is_clean,
                reach=reach,
                ended_at=rules.ended_at,
            )
            self._note_end(self._tail)

    def read_on(self, reach: int | None = None) -> bool:
        """Take in the batches written since the last look. Returns False if the file does not begin with its
        good part any more, or if that was not good after all: the caller must begin again."""
        with self._looking() as file:
            if self._tail is None or not self.begins(file):
                return False
            self._tail.go_on()
            if reach is not None:
                self._tail.hold_last_against(reach)
            if self._tail.took_back:
                return False
            self.fault = self._tail.fault
            self._note_end(self._tail)
            return True

    def skip_damage(self) -> bool:
        """Go on at the next readable batch behind the last good one; False if there is none. A reader of the
        part in between gets the error."""
        with self._looking() as file:
            tail = self._tail
            assert tail is not None
            end = file.size_bytes()
            for position in positions_behind(file.read_at, self._stored_index(), tail.position, end):
                piece = next(iter(Walk(file.read_at, position, end, check=True)), None)
                if piece is not None and piece.batches[0][1].base_offset >= tail.end_offset:
                    tail.skip_to(position, piece.batches[0][1].base_offset)
                    tail.go_on()
                    self.fault = tail.fault
                    self._note_end(tail)
                    return True
        return False

    @contextmanager
    def _looking(self) -> Iterator[File]:
        with self._index_lock:
            file = self._looked_at = self._files.open(self.path)
            try:
                yield file
            finally:
                self._looked_at = None
                file.close()

    def _take_stored_indexes(self) -> None:
        indexes = self._empty_indexes()
        indexes.read_files()
        self.indexes = indexes

    def _new_tail(self, rules: TailRules) -> Tail:
        return Tail(
            self,
            LeaderEpochs(),
            rules.recovery_point,
            is_dense=rules.is_dense,
            is_closed=rules.is_clean,
            can_map=False,
        )

    def _note_end(self, tail: Tail) -> None:
        self._good = (tail.position, tail.end_offset)
        position = tail.last_position
        if position is None and tail.position:
            position = self._find_last(tail.position)
        if position is not None:
            size = min(HEADER_BYTES, tail.position - position)
            self._last = (position, self.log_file.read_at(position, size))

    def _find_last(self, end: int) -> int:
        """Where the last batch before ``end`` begins."""
        last = self.indexes.offset_index.entry_at(end - 1).position
        for piece in Walk(self.log_file.read_at, last, end, check=False):
            last = piece.position + piece.batches[-1][0]
        return last

    def _stored_index(self) -> OffsetIndex | None:
        """The index as the writer has stored it; None if there is no usable one."""
        try:
            index = OffsetIndex.open_sealed(self._files, self.path_of(INDEX_SUFFIX), self.base_offset)
        except (StorageError, CorruptionError):
            return None
        return index if index.is_in_order else None

    # What the looks found

    @property
    def log_file(self) -> File:
        """The file of the current look."""
        assert self._looked_at is not None
        return self._looked_at

    @property
    def size_bytes(self) -> int:
        """The size of the good part."""
        return self._good[0]

    @property
    def next_offset(self) -> int:
        """The offset after the good part."""
        return self._good[1]

    @property
    def quiet_range(self) -> tuple[int, int]:
        """The positions, covered by the last look, between which no batch has a producer."""
        assert self._tail is not None
        return self._tail.quiet_range

    @property
    def last_batch(self) -> tuple[int, bytes]:
        """Position and header of the last good batch."""
        return self._last

    def begins(self, file: File) -> bool:
        """Whether the file still begins with the good part."""
        return begins_with(file, self.size_bytes, self._last)

    # Reading

    @property
    def offset_index(self) -> OffsetIndex:
        return self.indexes.offset_index

    @property
    def time_index(self) -> TimeIndex:
        return self.indexes.time_index

    @property
    def largest_timestamp(self) -> TimestampOffset:
        return self.indexes.largest

    def log_and_index(self) -> tuple[File, OffsetIndex]:
        return self._files_open().log, self.indexes.offset_index

    def _open(self) -> OpenFiles:
        indexes, file = self.indexes, self._files.open(self.path)
        if not self.begins(file):
            raise replaced(self.path)
        return OpenFiles(file, indexes.offset_index, indexes.time_index)

    def _files_open(self) -> OpenFiles:
        looked_at = self._looked_at
        if self._tail is None and looked_at is not None:  # no other thread has this segment yet
            return OpenFiles(looked_at, self.offset_index, self.time_index)
        return super()._files_open()

    def rebuild_indexes(self) -> bool:
        with self._index_lock:
            if self._rebuilt or self._tail is None:
                return False
            self._rebuilt = True
            builder = self._empty_indexes()
            for piece in self.walk(0, self.size_bytes, check=False, piece_bytes=PIECE_BYTES):
                for position, header in piece.batches:
                    builder.add(header, piece.position + position)
            self.indexes = builder
            return True

    def read_stored_transactions(self) -> AbortedTransactions:
        """The aborted transactions as the writer has stored them."""
        return super().read_transaction_index().entries

    def read_transaction_index(self) -> TransactionIndex:
        index = TransactionIndex(self._files, self.path_of(TRANSACTION_INDEX_SUFFIX), self.base_offset)
        index.entries = self.aborted
        return index
