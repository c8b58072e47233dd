"""Reading a partition that another process may be writing.

Takes no lock and writes nothing. What the writer's process knows is found out from its files: the segments
from the directory, the log end by checking the batches behind the last known one. A batch that is not
complete yet, or whose CRC does not hold yet, is not there yet: a follower never sees a torn batch. Missing
or stale indexes are replaced in memory only.

Waiting is by looking, every few milliseconds: two system calls. Lock: ``_lock`` guards the refresh.
"""

from __future__ import annotations

import threading
import time
from typing import Any, NoReturn

from logstore.clock import Clock
from logstore.errors import CorruptionError, LogstoreError, ReadOnlyError, StorageError
from logstore.files import Files
from logstore.format.names import LOG_SUFFIX, SWAP_SUFFIX, TRANSACTION_INDEX_SUFFIX
from logstore.model import AbortedTransaction, TopicPartition
from logstore.partition.home import LogHome
from logstore.partition.index_builder import IndexBuilder
from logstore.partition.indexes import OffsetIndex, TimeIndex, TransactionIndex
from logstore.partition.leftovers import list_segment_files, segment_bases, snapshot_offsets
from logstore.partition.producer_replay import ProducerSource, replay_batch
from logstore.partition.producer_state import ProducerStates
from logstore.partition.readable import ReadableLog
from logstore.partition.segment import OpenFiles, OpenSegments, Segment
from logstore.partition.view import LogView
from logstore.partition.walk import PIECE_BYTES, Walk

POLL_MS = 2
"""How often a waiting follower looks."""
_CHECKPOINT_MS = 100  # how old the log start and the durable offset may be
_UNSETTLED_NS = 50_000_000  # a directory changed this recently may change again without a new time stamp


class WatchedSegment(Segment):
    """The last segment of a log that somebody else writes: it grows, and its index files lag behind."""

    def __init__(self, files: Files, directory: str, base_offset: int, cache: OpenSegments) -> None:
        super().__init__(files, directory, base_offset, cache, is_read_only=True)
        self.aborted: list[AbortedTransaction] = []
        """Seen by this reader; the writer's index file may not have them yet."""
        self._indexes: IndexBuilder | None = None
        self._checked_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes that were found good."""
        return self._checked_bytes

    def _open(self) -> OpenFiles:
        indexes = self.indexes
        return OpenFiles(self._files.open(self.path), indexes.offset_index, indexes.time_index)

    @property
    def indexes(self) -> IndexBuilder:
        """Built by this reader from the batches it checked."""
        if self._indexes is None:
            self._indexes = IndexBuilder(
                OffsetIndex(self._files, self.path, self.base_offset),
                TimeIndex(self._files, self.path, self.base_offset),
                4096,
            )
        return self._indexes

    def rebuild_indexes(self) -> bool:
        return False

    def read_transaction_index(self) -> TransactionIndex:
        index = TransactionIndex(self._files, self.path_of(TRANSACTION_INDEX_SUFFIX), self.base_offset)
        index.entries = tuple(self.aborted)
        return index

    def advance(self, checked_bytes: int) -> None:
        self._checked_bytes = checked_bytes


class ReadOnlyLog(ReadableLog):
    """One partition, open for reading only."""

    def __init__(
        self,
        home: LogHome,
        files: Files,
        clock: Clock,
        cache: OpenSegments,
        directory: str,
        partition: TopicPartition,
    ) -> None:
        self.directory = directory
        self.partition = partition
        self._home = home
        self._files = files
        self._clock = clock
        self._cache = cache
        self._lock = threading.Lock()
        self._seen_change = -1
        self._segments: list[Segment] = []
        self._producers = ProducerStates()
        self._log_end = 0
        self._checkpoints_read_ms = -_CHECKPOINT_MS
        self._view: LogView | None = None

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """
        Raises:
            ReadOnlyError: always.
        """
        raise ReadOnlyError(
            f"{self.partition} was opened read-only; open the store without read_only to change it"
        )

    append = extend = append_batch = append_replicated = append_end_marker = _refuse
    flush = checkpoint = roll = delete_before = truncate_to = truncate_fully_and_start_at = _refuse
    enforce_retention = assign_leader_epoch = update_high_watermark = manage_high_watermark = _refuse
    reconfigure = expire_producers = _refuse

    def close(self) -> None:
        """Nothing to do: files are closed with the last reference."""

    # Refreshing

    def _current_view(self) -> LogView:
        with self._lock:
            for _ in range(3):
                try:
                    return self._refresh_locked()
                except StorageError as error:  # a file went away between listing and opening it
                    if error.errno != 2:
                        raise
                    self._seen_change = -1
            return self._refresh_locked()

    def _refresh_locked(self) -> LogView:
        changed = self._files.changed_ns(self.directory)
        if changed != self._seen_change:
            self._list_locked()
            settled = self._clock.now_ms() * 1_000_000 - changed > _UNSETTLED_NS
            self._seen_change = changed if settled else -1
        self._scan_locked()
        self._read_checkpoints_locked()
        start = max(self._home.log_start(self.partition) or 0, self._segments[0].base_offset)
        end = max(self._log_end, start)
        unstable = self._producers.first_unstable_offset(end)
        durable = min(self._home.recovery_point(self.partition), end)
        view = LogView(
            tuple(self._segments),
            tuple([segment.base_offset for segment in self._segments]),
            self._watched.size_bytes,
            start,
            end,
            end,
            max(min(end, unstable if unstable is not None else end), start),
            durable,
        )
        if self._view is None or view != self._view:
            self._view = view
        return self._view

    @property
    def _watched(self) -> WatchedSegment:
        watched = self._segments[-1]
        assert isinstance(watched, WatchedSegment)
        return watched

    def _read_checkpoints_locked(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checkpoints_read_ms >= _CHECKPOINT_MS:
            self._home.load()
            self._checkpoints_read_ms = now_ms

    def _list_locked(self) -> None:
        """Find the segments again. The last one is watched; what was watched and is no longer last is sealed."""
        names = list_segment_files(self._files, self.directory)
        bases = segment_bases(names) or [self._swapped_base(names)]
        known = {segment.base_offset: segment for segment in self._segments}
        segments: list[Segment] = []
        for base in bases[:-1]:
            segment = known.get(base)
            if segment is None or isinstance(segment, WatchedSegment):
                segment = Segment(self._files, self.directory, base, self._cache, is_read_only=True)
            segments.append(segment)
        last = known.get(bases[-1])
        if not isinstance(last, WatchedSegment):
            last = WatchedSegment(self._files, self.directory, bases[-1], self._cache)
        self._segments = [*segments, last]
        if last.base_offset not in known or not isinstance(known[last.base_offset], WatchedSegment):
            self._log_end = max(last.base_offset, 0)
            self._load_producers_locked(names)

    def _swapped_base(self, names: Any) -> int:
        swapped = [n.base_offset for n in names.values() if n.suffix == LOG_SUFFIX and n.state == SWAP_SUFFIX]
        if swapped:
            return int(min(swapped))
        raise CorruptionError("holds no segment", path=self.directory)

    def _load_producers_locked(self, names: Any) -> None:
        """The producers' state at the base of the watched segment; scanning brings it up to date."""
        base = self._watched.base_offset
        source = ProducerSource(
            self._files, self.directory, self._segments[:-1], self._segments[0].base_offset, base, 0
        )
        self._producers = source.rebuild(
            [offset for offset in snapshot_offsets(names) if offset <= base], store_aborted=False
        )

    def _scan_locked(self) -> None:
        """Check and take in the batches that were written since the last look."""
        watched = self._watched
        file = self._files.open(watched.path)
        size = file.size_bytes()
        if size < watched.size_bytes:  # truncated by its writer
            self._segments[-1] = watched = WatchedSegment(
                self._files, self.directory, watched.base_offset, self._cache
            )
            self._log_end = watched.base_offset
            self._load_producers_locked(list_segment_files(self._files, self.directory))
        walk = Walk(file.read_at, watched.size_bytes, size, check=True, piece_bytes=PIECE_BYTES)
        for piece in walk:
            for position, header in piece.batches:
                if header.base_offset < self._log_end:
                    return
                if header.has_producer:
                    completed = replay_batch(self._producers, header, piece.buffer, position, 0)
                    watched.aborted += [done.index_entry for done in completed if done.is_aborted]
                watched.indexes.add(header, piece.position + position)
                self._log_end = header.next_offset
                watched.advance(piece.position + position + header.size_bytes)
        file.close()

    def _wait_for_growth(self, seen: LogView, timeout_ms: int) -> None:
        deadline = self._clock.monotonic_ms() + timeout_ms
        path = seen.segments[-1].path
        while self._clock.monotonic_ms() < deadline:
            time.sleep(POLL_MS / 1000)
            try:
                if self._files.size_bytes(path) != seen.active_size_bytes:
                    return
                if self._files.changed_ns(self.directory) != self._seen_change:
                    self._seen_change = -1
                    if self._current_view() is not seen:
                        return
            except LogstoreError:
                return
