"""Reading a partition that another process may be writing.

Takes no lock and writes nothing. What the writer's process knows is found out from its files: the segments
from the directory, the log end by checking the batches behind the last known one. A batch that is not
complete yet, or whose CRC does not hold yet, is not there yet: a follower never sees a torn batch. Missing
or stale indexes are replaced in memory only.

The writer also takes away: it deletes segments, cuts the log's end, empties it, deletes the topic. A reader
that is in the middle of what went finds a file missing or bytes that do not fit; it then looks again, and
only what is still wrong is an error. Compaction and erasures replace segments by others of the same names:
what is read of a segment counts only if the file is still the one that was found with the others.

Waiting is by looking, every few milliseconds: three system calls. Lock: ``_lock`` guards the refresh.
"""

from __future__ import annotations

import errno
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from logstore.config import TopicConfig
from logstore.errors import (
    CorruptionError,
    LogstoreError,
    ReadOnlyError,
    StorageError,
    UnknownTopicError,
)
from logstore.format.header import BatchHeader
from logstore.format.names import SWAP_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file_name
from logstore.model import Isolation, TopicPartition
from logstore.partition.context import LogContext
from logstore.partition.leftovers import (
    Names,
    current_logs,
    list_segment_files,
    segment_bases,
    snapshot_offsets,
)
from logstore.partition.producer_replay import ProducerSource, replay_batch
from logstore.partition.producer_state import ProducerStates
from logstore.partition.readable import ReadableLog
from logstore.partition.segment import Segment
from logstore.partition.sidecars import read_topic_id
from logstore.partition.view import LogView
from logstore.partition.walk import PIECE_BYTES, Piece, Walk, positions_behind
from logstore.partition.watched_files import StampedSegment, Watch, WatchedCheckpoints, WatchedSegment
from logstore.warning import warn

if TYPE_CHECKING:
    from logstore.partition.pinned import PinnedRange
    from logstore.partition.verify import LogFacts
    from logstore.partition.verify_files import StoredCheckpoints

POLL_MS = 2
"""How often a waiting follower looks."""
_WHAT_TO_DO = (
    "Restore the files, or open the store for writing and reopen the partition with accept_loss=True "
    "to cut the log there"
)
_TRIES = 5  # looks at what may be damage, or the writer in the middle of something
_PATIENCE_S = 2.0  # with a writer who is in the middle of something for sure; it takes him some fsyncs

T = TypeVar("T")


class ReadOnlyLog(ReadableLog):
    """One partition, open for reading only."""

    def __init__(
        self,
        context: LogContext,
        checkpoints: WatchedCheckpoints,
        directory: str,
        partition: TopicPartition,
        config: TopicConfig | None = None,
    ) -> None:
        """``config`` is None where the topic's settings are not known."""
        self._config = config
        self.directory = directory
        self.partition = partition
        self._context = context
        self._files = context.files
        self._checkpoints = checkpoints
        self._lock = threading.Lock()
        self._names = Watch(context.files, context.clock, directory)
        self._topic_id: uuid.UUID | None = None
        self._segments: tuple[Segment, ...] = ()
        self._bases: tuple[int, ...] = ()
        self._producers = ProducerStates()
        self._view: LogView | None = None
        self._is_closed = False
        self.passes_damage = False
        """Whether to look for what is behind damage at the end of a log of which the checkpoints say that it
        was longer, and to warn of what is missing. Else that is an error."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """
        Raises:
            ReadOnlyError: always.
        """
        raise ReadOnlyError(
            f"{self.partition} was opened read-only; open the store without read_only to change it"
        )

    append = extend = extend_arrow = append_batch = append_replicated = append_end_marker = _refuse
    _prepare = _prepare_arrow = _refuse
    flush = checkpoint = prepare_checkpoint = roll = delete_before = truncate_to = (
        truncate_fully_and_start_at
    ) = _refuse
    enforce_retention = check_writable = assign_leader_epoch = update_high_watermark = (
        manage_high_watermark
    ) = _refuse
    reconfigure = expire_producers = compact = dirtiness = erase = _refuse
    adopt = adopt_file = last_of_producer = open_transactions = _refuse

    def _refuse_to_say(self, *_: Any) -> NoReturn:
        """
        Raises:
            ReadOnlyError: always.
        """
        raise ReadOnlyError(f"{self.partition} was opened read-only; only who has it open for writing knows")

    recovery = leader_epoch = epoch_entries = property(_refuse_to_say)
    end_offset_for_epoch = _refuse_to_say

    @property
    def config(self) -> TopicConfig:
        """The topic's settings when the log was opened; of a topic whose settings nobody knows, that keeps
        everything."""
        return self._config or TopicConfig(retention_ms=-1)

    @property
    def needs_reopen(self) -> bool:
        """False: only a writer ever has to open it again."""
        return False

    @property
    def is_closed(self) -> bool:
        """Whether it can no longer be read."""
        return self._is_closed

    def close(self) -> None:
        """Refuse further reads. Iterators under way go on; files are closed when nobody uses them."""
        self._is_closed = True
        self.let_go()

    def let_go(self) -> None:
        """Keep no files open for readers to come."""
        for segment in self._segments:
            segment.leave_cache()
            segment.forget_files()

    # Reading, while the writer goes on

    def _newer_view(self, seen: LogView, error: LogstoreError) -> LogView:
        """What is there now, if other segments than before explain the error; else the error."""
        with self._lock:
            self._forget_locked()
        view = self._current_view()
        if view.segments == seen.segments:
            raise error
        return view

    def _facts(self, checkpoints: StoredCheckpoints) -> LogFacts:
        """As the files say; the view ends where they do not read on, which is what a check looks for."""
        from logstore.partition.verify_facts import facts_of_files

        is_clean = self._context.home.has_clean_marker()
        return facts_of_files(
            self._files, self.directory, self.partition, checkpoints, self._config, is_clean=is_clean
        )

    # For other processes

    def pin(self, start: int, stop: int, *, isolation: Isolation = Isolation.HIGH_WATERMARK) -> PinnedRange:
        """The offsets ``[start, stop)`` as they lie in files now, to be read elsewhere by a
        :class:`~logstore.partition.pinned.PinnedReader`: another process can do that without opening the
        store, and without checking the end of the log again.

        Raises:
            OffsetOutOfRangeError: the range is not what can be read now.
        """
        from logstore.partition.pinned import PinnedRange, pin_view  # few programs get here

        found = self._look(lambda view: pin_view(view, start, stop, isolation))
        return PinnedRange(
            directory=self.directory,
            partition=self.partition,
            topic_id=self._topic_id,
            start=start,
            stop=stop,
            isolation=isolation,
            **found,
        )

    # Refreshing

    def _check_usable(self) -> None:
        self._context.fork_flag.check_usable(self.partition, is_closed=self._is_closed)

    def _current_view(self) -> LogView:
        self._check_usable()  # first: in a forked child the lock may be held for ever
        with self._lock:
            deadline = None
            tries = 0
            while True:
                try:
                    return self._refresh_locked()
                except (StorageError, CorruptionError) as error:
                    tries += 1
                    deadline = deadline or time.monotonic() + _PATIENCE_S
                    is_passing = self._is_passing(error)
                    if time.monotonic() > deadline or (not is_passing and tries == _TRIES):
                        raise _settled(error) from error.__cause__
                time.sleep(POLL_MS / 1000)
                self._check_usable()
                self._forget_locked()

    def _is_passing(self, error: StorageError | CorruptionError) -> bool:
        """Whether it is sure that the writer was in the middle of something, or took it away meanwhile."""
        if isinstance(error, CorruptionError):
            return isinstance(error, _ReplacingError)
        self._check_there(error)
        return True

    def _check_there(self, error: StorageError) -> None:
        if error.errno != errno.ENOENT:
            raise error
        if not self._files.is_directory(self.directory):
            self.let_go()
            raise UnknownTopicError(f"{self.partition} was deleted ({self.directory})") from None

    def _forget_locked(self) -> None:
        self._names.forget()
        if self._segments:
            self._watched.contents.forget()

    def _refresh_locked(self) -> LogView:
        if self._names.has_changed():
            self._list_locked()
        home = self._checkpoints.current()  # before the scan: what they say is durable must then be there
        if self._watched.contents.has_changed():
            self._scan_locked()
            while self.passes_damage and home.recovery_point(self.partition) > self._watched.next_offset:
                if not self._pass_damage_locked():
                    break
                self._scan_locked()
        start = max(home.log_start(self.partition) or 0, self._bases[0])
        end = max(self._watched.next_offset, start)
        self._check_loss(home.recovery_point(self.partition), end)
        self._producers.on_high_watermark(end)
        unstable = self._producers.first_unstable_offset(end)
        view = LogView(
            self._segments,
            self._bases,
            self._watched.size_bytes,
            start,
            end,
            end,
            max(end if unstable is None else min(end, unstable), start),
            home.recovery_point(self.partition),
        )
        if view != self._view:
            self._view = view
        return self._view

    def _check_loss(self, recovery_point: int, end: int) -> None:
        if recovery_point > end and self.passes_damage:
            warn(
                "%s: data up to offset %d was durable; %d is the last that can be read",
                self.partition,
                recovery_point,
                end,
            )
        elif recovery_point > end:
            raise _ChangingError(
                f"data up to offset {recovery_point} was durable, but the log can only be read up to {end}. "
                f"{_WHAT_TO_DO}",
                path=self._watched.path,
                position=self._watched.size_bytes,
                base_offset=end,
            )

    @property
    def _watched(self) -> WatchedSegment:
        watched = self._segments[-1]
        assert isinstance(watched, WatchedSegment)
        return watched

    def _list_locked(self) -> None:
        """Find the segments again. The last one is watched; what was watched and is no longer last is
        sealed.

        The names are listed before and after the files were looked at: a listing during a renaming may miss a
        file, and a segment that is missing would look like one whose records were all superseded.
        """
        self._check_topic_id()
        names = list_segment_files(self._files, self.directory)
        logs = self._checked_logs(names)
        bases = tuple(logs)
        known = dict(zip(self._bases, self._segments, strict=True))
        sealed = [self._sealed(base, logs[base], known.get(base), names) for base in bases[:-1]]
        last = known.get(bases[-1])
        is_known = isinstance(last, WatchedSegment)
        if last is None or not is_known:
            last = self._new_watched(bases[-1])
        if list_segment_files(self._files, self.directory) != names:
            raise _ReplacingError("files come, go or are renamed", path=self.directory)
        last.forget_files()  # they may be others of the same name
        if not is_known:
            self._producers = self._producers_at(bases[-1], (*sealed, last), names)
        segments = (*sealed, last)
        for gone in set(self._segments).difference(segments):
            gone.leave_cache()  # open files keep the disk from freeing what was removed
        self._bases, self._segments = bases, segments

    def _check_topic_id(self) -> None:
        """A topic that was deleted and created again is another one."""
        topic_id = read_topic_id(self._files, self.directory)
        if self._segments and topic_id != self._topic_id:
            self.let_go()
            raise UnknownTopicError(f"{self.partition} was deleted; there is a new topic of its name")
        self._topic_id = topic_id

    def _checked_logs(self, names: Names) -> dict[int, str]:
        """Base offsets and states of the segments' logs; of those that take the others' place, if the writer
        is just replacing some, or died over it."""
        logs = current_logs(self._files, self.directory, names)
        if not logs:
            raise _ChangingError(f"holds no segment. {_WHAT_TO_DO}", path=self.directory)
        if logs[max(logs)]:  # it would have to be watched under a name that it is about to lose
            raise _ReplacingError(
                "the last segment is being replaced; an open for writing finishes it, if nobody does",
                path=self.directory,
            )
        return logs

    def _sealed(self, base: int, state: str, known: Segment | None, names: Names) -> Segment:
        """The sealed segment at a base: the one known, unless its file was replaced."""
        found = StampedSegment(self._files, self.directory, base, self._context.open_segments, state)
        if isinstance(known, StampedSegment) and known.stamp == found.stamp and known.path == found.path:
            found = known
        swapped = segment_file_name(base, TRANSACTION_INDEX_SUFFIX) + SWAP_SUFFIX
        found.is_swapped_in_part = not state and swapped in names
        return found

    def _new_watched(self, base: int) -> WatchedSegment:
        context = self._context
        return WatchedSegment(self._files, context.clock, self.directory, base, context.open_segments)

    def _producers_at(self, base: int, segments: tuple[Segment, ...], names: Names) -> ProducerStates:
        """The producers' state at the base of the watched segment; scanning brings it up to date."""
        source = ProducerSource(self._files, self.directory, segments, base, 0)
        return source.rebuild(
            [offset for offset in snapshot_offsets(names) if offset <= base], store_found=False
        )

    def _scan_locked(self) -> None:
        """Check and take in the batches that were written since the last look."""
        file = self._files.open(self._watched.path)
        try:
            if not self._watched.begins(file):
                self._start_watching_anew_locked()
            watched = self._watched
            walk = Walk(
                file.read_at, watched.size_bytes, file.size_bytes(), check=True, piece_bytes=PIECE_BYTES
            )
            for piece in walk:
                for position, header in piece.batches:
                    if header.base_offset < watched.next_offset:
                        return
                    self._take_in_locked(watched, header, piece, position)
        finally:
            file.close()

    def _pass_damage_locked(self) -> bool:
        """Go on at the next batch behind the last good one that may be read; False if there is none. A reader
        meets what is between them, and says so."""
        watched = self._watched
        file = self._files.open(watched.path)
        try:
            end = file.size_bytes()
            behind = positions_behind(file.read_at, watched.stored_index(), watched.size_bytes, end)
            for position in behind:
                walk = Walk(file.read_at, position, end, check=True)
                piece = next(iter(walk), None)
                if piece is not None and piece.batches[0][1].base_offset >= watched.next_offset:
                    watched.skip_to(position)
                    return True
        finally:
            file.close()
        return False

    def _start_watching_anew_locked(self) -> None:
        """The watched file is another one. If it is still the last segment's, the log was cut there."""
        names = list_segment_files(self._files, self.directory)
        base = self._bases[-1]
        if segment_bases(names)[-1:] != [base]:
            raise _ReplacingError("the last segment was sealed and replaced", path=self.directory)
        segments = (*self._segments[:-1], self._new_watched(base))
        self._producers = self._producers_at(base, segments, names)
        self._segments = segments

    def _take_in_locked(
        self, watched: WatchedSegment, header: BatchHeader, piece: Piece, position: int
    ) -> None:
        if header.has_producer:
            completed = replay_batch(self._producers, header, piece.buffer, position, 0)
            watched.aborted += [done.index_entry for done in completed if done.is_aborted]
        watched.accept(header, piece, position)

    def _wait_for_growth(self, seen: LogView, timeout_ms: int) -> None:
        deadline = time.monotonic() + timeout_ms / 1000
        while self._current_view() is seen and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(POLL_MS / 1000, left))


class _ChangingError(CorruptionError):
    """What the directory holds is no log, but may be in a moment."""


class _ReplacingError(_ChangingError):
    """The writer was seen in the middle of something."""


def _settled(error: StorageError | CorruptionError) -> StorageError | CorruptionError:
    """What users are told when nothing changes any more."""
    if not isinstance(error, _ChangingError):
        return error
    return CorruptionError(
        error.reason, path=error.path, position=error.position, base_offset=error.base_offset
    )
