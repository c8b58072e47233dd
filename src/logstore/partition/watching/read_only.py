"""Reading a partition that another process may be writing.

Takes no lock and writes nothing. What the writer's process knows is found out from its files: the segments
from the directory, the log end by checking the batches behind the last known one. The first look finds the
end as recovery would, from what the writer has stored: only what lies above the recovery point is read. A
batch that is not complete yet, or whose CRC does not hold yet, is not there yet: a follower never sees a torn
batch. Missing or stale indexes are replaced in memory only.

The writer also takes away: it deletes segments, cuts the log's end, empties it, deletes the topic. A reader
that is in the middle of what went finds a file missing or bytes that do not fit; it then looks again, and
only what two looks agree on is an error. Compaction and erasures replace segments by others of the same
names: what is read of a segment counts only if the file is still the one that was found with the others.

Lock: ``_lock`` guards the refresh. How a follower waits: :mod:`~logstore.partition.watching.waiting`.
"""

from __future__ import annotations

import errno
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from logstore.config import TopicConfig
from logstore.errors import (
    CorruptionError,
    LogstoreError,
    ReadOnlyError,
    StorageError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from logstore.format.index import AbortedTransactions
from logstore.format.names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from logstore.model import Isolation, Role, TopicPartition
from logstore.partition.arguments import check_isolation, check_offset
from logstore.partition.checking.checkable import CheckableLog
from logstore.partition.reading.readable import WaitForGrowth
from logstore.partition.reading.view import LogView, Truncations
from logstore.partition.recovery.leftovers import (
    Names,
    current_logs,
    list_segment_files,
    segment_bases,
    snapshot_offsets,
)
from logstore.partition.recovery.tail import MOST_OFFSETS
from logstore.partition.segments.segment import Segment
from logstore.partition.state.context import LogContext
from logstore.partition.state.home import RECOVERY_POINTS_NAME, LogHome
from logstore.partition.state.producer_replay import ProducerSource, producer_batches, replay_batch
from logstore.partition.state.producer_state import CompletedTransaction, ProducerStates
from logstore.partition.state.sidecars import (
    read_cuts,
    read_epochs,
    read_role,
    read_topic_id,
    replicated_below,
)
from logstore.partition.watching.files import (
    StampedSegment,
    TailRules,
    Watch,
    WatchedCheckpoints,
    WatchedSegment,
)
from logstore.partition.writing.retention import PlannedDeletion, SegmentFacts, plan_retention
from logstore.warning import warn

if TYPE_CHECKING:
    from logstore.partition.checking.facts import LogFacts
    from logstore.partition.checking.files import StoredCheckpoints
    from logstore.partition.watching.pinned import PinnedRange
    from logstore.partition.watching.stored import StoredState
    from logstore.partition.watching.waiting import Waiting

_WHAT_TO_DO = (
    "Restore the files, or open the store for writing and reopen the partition with accept_loss=True "
    "to cut the log there"
)
_MOST_LOOKS = 1_000  # at a log that is never at rest,
_BETWEEN_LOOKS_MS = 2  # or more, after each other

T = TypeVar("T")


class ReadOnlyLog(CheckableLog):
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
        self._role = Role.ALONE
        self._segments: tuple[Segment, ...] = ()
        self._bases: tuple[int, ...] = ()
        self._checked: dict[int, Segment] = {}
        """Sealed segments above the recovery point that looks have been over, also looks that failed."""
        self._producers = ProducerStates()
        self._view: LogView | None = None
        self._truncations = Truncations()
        self._is_begun = False
        """Whether the log's end was found, so that looks may go on from there."""
        self._is_closed = False
        self._followers: set[Waiting] = set()
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
    writer = property(_refuse)
    flush = checkpoint = prepare_checkpoint = roll = delete_before = truncate_to = (
        truncate_fully_and_start_at
    ) = _refuse
    enforce_retention = check_writable = assign_leader_epoch = update_high_watermark = set_role = _refuse
    reconfigure = expire_producers = compact = dirtiness = erase = _refuse
    adopt = adopt_file = last_of_producer = open_transactions = _refuse

    def _refuse_to_say(self, *_: Any, **__: Any) -> NoReturn:
        """
        Raises:
            ReadOnlyError: always.
        """
        raise ReadOnlyError(f"{self.partition} was opened read-only; only who has it open for writing knows")

    def _check_leader_epoch(self, expected: int) -> None:
        self._refuse_to_say()

    recovery = leader_epoch = epoch_entries = property(_refuse_to_say)
    end_offset_for_epoch = when = on_change = _refuse_to_say

    @property
    def config(self) -> TopicConfig:
        """The topic's settings when the log was opened; of a topic whose settings nobody knows, that keeps
        everything."""
        return self._config or TopicConfig(retention_ms=-1)

    @property
    def role(self) -> Role:
        """What the log is to other replicas, as its writer has stored it. If it is not alone, the high
        watermark is that of the writer's last checkpoint."""
        self._current_view()
        return self._role

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
        for follower in tuple(self._followers):
            follower.wake()
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
        if not view.explains(error, seen):
            raise self._counted(error)
        return view

    def facts_to_check(self, checkpoints: StoredCheckpoints) -> LogFacts:
        """As the files say; the view ends where they do not read on, which is what a check looks for.

        Raises:
            UnknownTopicError: the topic was deleted by another process.
        """
        from logstore.partition.checking.facts_of_files import facts_of_files  # few programs get here

        if not self._files.is_directory(self.directory):
            raise UnknownTopicError(f"{self.partition} was deleted: there is no {self.directory} any more")
        is_clean = self._context.home.has_clean_marker()
        return facts_of_files(
            self._files, self.directory, self.partition, checkpoints, self._config, is_clean=is_clean
        )

    # For other processes

    def pin(self, start: int, stop: int, *, isolation: Isolation = Isolation.HIGH_WATERMARK) -> PinnedRange:
        """The offsets ``[start, stop)`` as they lie in files now, to be read elsewhere by a
        :class:`~logstore.partition.watching.pinned.PinnedReader`: another process can do that without opening
        the store, and without checking the end of the log again.

        Raises:
            OffsetOutOfRangeError: the range is not what can be read now.
        """
        from logstore.partition.watching.pinned import PinnedRange, pin_view  # few programs get here

        check_offset(start, "start")
        check_offset(stop, "stop")
        check_isolation(isolation)
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

    # What a writer would say or do

    def plan_retention(self) -> PlannedDeletion:
        """What :meth:`.Log.enforce_retention` of a writer would delete now. Nothing where nobody knows the
        topic's settings, but for what lies below the log start. Cost: a look at the files, and where
        ``retention_ms`` is set, at the time indexes of the oldest segments.

        Raises:
            CorruptionError: the log cannot be read.
        """
        now_ms = self._context.clock.now_ms()

        def plan(view: LogView) -> PlannedDeletion:
            facts = [
                SegmentFacts(
                    segment.base_offset, view.next_base(number), view.size_of(number), segment.newest_ms
                )
                for number, segment in enumerate(view.segments)
            ]
            count = plan_retention(
                facts,
                config=self.config,
                log_start_offset=view.log_start_offset,
                high_watermark=view.high_watermark,
                now_ms=now_ms,
            )
            ends = [view.log_start_offset, *(each.next_base_offset for each in facts[:count])]
            return PlannedDeletion(count, sum(each.size_bytes for each in facts[:count]), max(ends))

        return self._look(plan)

    def stored_state(self) -> StoredState:
        """What the log's files say besides its records: checkpoints, leader epochs, producers, segments. As
        of the last look, which this call makes. Cost: that of a look, and a read of the leader epochs.

        Raises:
            CorruptionError: the log cannot be read.
            UnsupportedVersionError: a file is from a newer version.
        """
        from logstore.partition.watching.stored import StoredState  # few programs get here

        view = self._current_view()
        epochs = read_epochs(self._files, self.directory)
        with self._lock:
            home = self._checkpoints.current()
            has_point = home.has_recovery_point(self.partition)
            return StoredState(
                role=self._role,
                recovery_point=home.recovery_point(self.partition) if has_point else None,
                log_start_offset=home.log_start(self.partition),
                high_watermark=home.high_watermark(self.partition),
                cleaner_offset=home.cleaner_offset(self.partition),
                epochs=() if epochs is None else epochs.entries,
                producers=tuple(self._producers.snapshot_entries()),
                segments=tuple(
                    (segment.path, view.size_of(number)) for number, segment in enumerate(view.segments)
                ),
            )

    def _check_usable(self) -> None:
        self._context.fork_flag.check_usable(self.partition, is_closed=self._is_closed)

    def _current_view(self) -> LogView:
        self._check_usable()  # first: in a forked child the lock may be held for ever
        with self._lock:
            looks = _Looks()
            before: object = ()  # of the first look nothing is remembered: most find what they look for
            while True:
                try:
                    return self._refresh_locked()
                except (StorageError, CorruptionError) as error:
                    self._begin_anew_locked()
                    self._check_there(error)
                    if looks.agree(error, is_complete=before == self._mark()):
                        raise _settled(error) from error.__cause__
                time.sleep(_BETWEEN_LOOKS_MS / 1000)
                self._check_usable()
                before = self._mark()

    def _mark(self) -> object:
        """What stays the same as long as nothing comes, goes or is declared durable."""
        try:
            names = {entry.name for entry in self._files.list_directory(self.directory)}
        except StorageError:
            return object()  # it goes right now
        try:
            return names, self._files.stamp(f"{self._context.home.path}/{RECOVERY_POINTS_NAME}")
        except StorageError:
            return names, None

    def _check_there(self, error: StorageError | CorruptionError) -> None:
        if isinstance(error, CorruptionError):
            return
        if error.errno != errno.ENOENT:
            raise error
        if not self._files.is_directory(self.directory):
            self.let_go()
            raise UnknownTopicError(f"{self.partition} was deleted ({self.directory})") from None

    def _forget_locked(self) -> None:
        """Look at everything the next time, and read what is new."""
        self._names.forget()
        if self._segments:
            self._watched.contents.forget()

    def _begin_anew_locked(self) -> None:
        """The same, but find the log's end the next time as if nobody had looked before."""
        self._checkpoints.forget()
        self._forget_locked()
        self._is_begun = False

    def _refresh_locked(self) -> LogView:
        home = self._checkpoints.current()  # first: what they say is durable must be in the files seen later
        try:
            if self._names.has_changed() or not self._is_begun:
                self._find_locked(home)
            elif self._watched.contents.has_changed():
                self._read_on_locked(home)
        except BaseException:
            self._begin_anew_locked()
            raise
        recovery_point, end = home.recovery_point(self.partition), self._watched.next_offset
        self._check_loss(recovery_point, end)
        start = max(self._log_start(home, end), self._bases[0])
        end = max(end, start)
        replicated = replicated_below(self._role, home.high_watermark(self.partition), start, end)
        self._producers.on_high_watermark(replicated)
        unstable = self._producers.first_unstable_offset(replicated)
        view = LogView(
            self._segments,
            self._bases,
            self._watched.size_bytes,
            start,
            end,
            replicated,
            max(replicated if unstable is None else min(replicated, unstable), start),
            recovery_point,
            self._truncations,
            self._truncations.count,
            partition=self.partition,
        )
        if view != self._view:
            self._view = view
        return self._view

    def _log_start(self, home: LogHome, end: int) -> int:
        """As its checkpoint says. One behind the end of a log that was closed there is damaged: whoever opens
        it for writing does not believe it either."""
        start = home.log_start(self.partition) or 0
        is_closed_here = self._checkpoints.is_clean and home.recovery_point(self.partition) == end
        return 0 if is_closed_here and start > end else start

    def _check_loss(self, recovery_point: int, end: int) -> None:
        if recovery_point <= end:
            return
        if self.passes_damage:
            warn(
                "%s: data up to offset %d was durable; %d is the last that can be read",
                self.partition,
                recovery_point,
                end,
            )
            return
        fault = self._watched.fault
        reason = fault.reason if fault is not None else "the file ends early"
        raise _ChangingError(
            f"data up to offset {recovery_point} was durable, but the log can only be read up to {end}: "
            f"{reason}. {_WHAT_TO_DO}",
            path=self._watched.path,
            position=self._watched.size_bytes,
            base_offset=end,
        )

    @property
    def _watched(self) -> WatchedSegment:
        watched = self._segments[-1]
        assert isinstance(watched, WatchedSegment)
        return watched

    def _find_locked(self, home: LogHome) -> None:
        """Find the segments, and where the log ends: what a recovery would find, and without changing
        anything. Only what lies above the recovery point is read. The segment in which the log ends is
        watched from then on; where something is lost between two, that is not the last one.

        The names are listed before and after the files were looked at: a listing during a renaming may miss a
        file, and a segment that is missing would look like one whose records were all superseded.
        """
        self._check_topic_id()
        cuts = read_cuts(self._files, self.directory)
        role = read_role(self._files, self.directory)
        names = list_segment_files(self._files, self.directory)
        logs = self._checked_logs(names)
        rules = self._rules(home, role)
        segments = self._segments_up_to_end(logs, names, rules, home.log_start(self.partition) or 0)
        self._check_names_locked(names)
        if read_cuts(self._files, self.directory) != cuts:
            raise _ReplacingError("the log is being truncated", path=self.directory)
        last = segments[-1]
        assert isinstance(last, WatchedSegment)
        last.forget_files()  # they may be others of the same name
        try:
            if self._segments and last is self._segments[-1]:
                self._replay_locked(last)
            else:
                stored = home.high_watermark(self.partition)
                replicated = replicated_below(role, stored, 0, last.next_offset)
                self._producers = self._producers_at_end(segments, last, names, rules, replicated)
        except BaseException:
            last.leave_cache()
            raise
        for gone in set(self._segments).difference(segments):
            gone.leave_cache()  # open files keep the disk from freeing what was removed
        self._bases, self._segments = tuple([each.base_offset for each in segments]), tuple(segments)
        self._role = role
        if cuts != self._truncations.cuts:
            self._truncations = Truncations(cuts)
        self._is_begun = True

    def _check_names_locked(self, names: Names) -> None:
        """Nothing came, went or was renamed during a look, but new segments behind the last: those are for
        the next look. A writer may roll faster than anybody can look at all there is."""
        bases = segment_bases(names)
        again = list_segment_files(self._files, self.directory)
        gone = [name for name in names.keys() - again.keys() if names[name].suffix != SNAPSHOT_SUFFIX]
        new = [again[name] for name in again.keys() - names.keys()]
        if gone or any(
            each.state or (each.suffix == LOG_SUFFIX and each.base_offset <= bases[-1]) for each in new
        ):
            raise _ReplacingError("files come, go or are renamed", path=self.directory)
        if new:
            self._names.forget()

    def _rules(self, home: LogHome, role: Role) -> TailRules:
        has_point = home.has_recovery_point(self.partition)
        recovery_point, is_clean = home.recovery_point(self.partition), self._checkpoints.is_clean
        is_gapless = self._config is not None and not home.may_have_gaps(self.partition, self._config, role)
        return TailRules(
            recovery_point,
            has_point and is_gapless,
            is_clean,
            recovery_point if has_point else None,
        )

    def _segments_up_to_end(
        self, logs: dict[int, str], names: Names, rules: TailRules, log_start: int
    ) -> list[Segment]:
        bases = list(logs)
        known = dict(zip(self._bases, self._segments, strict=True))
        start = max(rules.recovery_point, log_start)
        first = max(sum(base <= start for base in bases) - 1, 0)
        self._checked = {base: self._checked[base] for base in bases[first:-1] if base in self._checked}
        segments: list[Segment] = []
        for number, base in enumerate(bases[:-1]):
            sealed = self._sealed(base, logs[base], self._checked.get(base, known.get(base)), names)
            if number >= first and not sealed.is_checked and not sealed.state:
                watched = self._look_at(base, known.get(base), rules, bases[number + 1])
                if _ends_log(watched, bases[number + 1], rules):
                    return [*segments, watched]
                if self._files.stamp(sealed.path) != sealed.stamp:
                    raise _ReplacingError("a segment was replaced", path=sealed.path)
                sealed.is_checked = True
                self._checked[base] = sealed
            segments.append(sealed)
        return [*segments, self._look_at(bases[-1], known.get(bases[-1]), rules, None)]

    def _look_at(
        self, base: int, known: Segment | None, rules: TailRules, next_base: int | None
    ) -> WatchedSegment:
        """A segment, and how far it is good."""
        reach = base + MOST_OFFSETS if next_base is None else next_base
        if self._is_begun and isinstance(known, WatchedSegment):
            known.contents.has_changed()
            if known.read_on(reach):
                return known
        context = self._context
        watched = WatchedSegment(self._files, context.clock, self.directory, base, context.open_segments)
        watched.contents.has_changed()
        watched.begin(rules if next_base is None else rules._replace(ended_at=None), reach)
        while self.passes_damage and rules.recovery_point > watched.next_offset and watched.skip_damage():
            pass
        return watched

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
        if not logs and any(name.state == DELETED_SUFFIX for name in names.values()):
            raise _ReplacingError("the only segment is being replaced", path=self.directory)
        if not logs:
            raise _ChangingError(f"holds no segment. {_WHAT_TO_DO}", path=self.directory)
        if logs[max(logs)]:  # it would have to be watched under a name that it is about to lose
            raise _ReplacingError(
                "the last segment is being replaced; an open for writing finishes it, if nobody does",
                path=self.directory,
            )
        return logs

    def _sealed(self, base: int, state: str, known: Segment | None, names: Names) -> StampedSegment:
        """The sealed segment at a base: the one known, unless its file was replaced."""
        found = StampedSegment(self._files, self.directory, base, self._context.open_segments, state)
        if isinstance(known, StampedSegment) and known.stamp == found.stamp and known.path == found.path:
            found = known
        swapped = segment_file_name(base, TRANSACTION_INDEX_SUFFIX) + SWAP_SUFFIX
        found.is_swapped_in_part = not state and swapped in names
        return found

    def _read_on_locked(self, home: LogHome) -> None:
        """Check and take in the batches that were written since the last look."""
        if self._watched.read_on():
            self._replay_locked(self._watched)
        else:
            self._is_begun = False
            self._find_locked(home)

    # Producers

    def _producers_at_end(
        self,
        segments: list[Segment],
        last: WatchedSegment,
        names: Names,
        rules: TailRules,
        high_watermark: int,
    ) -> ProducerStates:
        """The producers' state at the log's end, from the newest snapshot that was stored for sure. Also
        fills in which transactions in the last segment were aborted."""
        newest = max(rules.recovery_point, last.base_offset)
        stored = AbortedTransactions()
        if newest > last.base_offset:
            try:
                stored = last.read_stored_transactions()
            except (CorruptionError, UnsupportedVersionError):
                newest = last.base_offset  # they are found again in the batches
        aborted = {each.last_offset: each for each in stored if each.last_offset < newest}

        def note(segment: Segment, completed: Sequence[CompletedTransaction]) -> None:
            if segment is last:
                aborted.update({done.last_offset: done.index_entry for done in completed if done.is_aborted})

        offsets = snapshot_offsets(names)
        producers = ProducerStates()
        producers.clear(last.next_offset)
        if offsets or not rules.is_clean:  # else there were none, as for recovery
            usable = [offset for offset in offsets if offset <= min(newest, last.next_offset)]
            quiet = {last.base_offset: last.quiet_range}
            source = ProducerSource(
                self._files,
                self.directory,
                segments,
                last.next_offset,
                0,
                self.passes_damage,
                quiet,
                high_watermark,
            )
            producers = source.rebuild(usable, store_found=False, on_completed=note)
        last.aborted = AbortedTransactions(aborted[offset] for offset in sorted(aborted))
        return producers

    def _replay_locked(self, watched: WatchedSegment) -> None:
        """Bring the producers' state up to date with what the last look found."""
        begin, end = watched.quiet_range[1], watched.size_bytes
        for header, buffer, position in producer_batches(watched, 0, begin, end):
            completed = replay_batch(self._producers, header, buffer, position, 0)
            watched.aborted = watched.aborted.joined(
                done.index_entry for done in completed if done.is_aborted
            )

    # Waiting

    @contextmanager
    def _waiting(self) -> Iterator[WaitForGrowth]:
        from logstore.partition.watching.waiting import Waiting  # few programs get here

        directories = dict.fromkeys((self.directory, self._context.home.path))  # the checkpoints are in home
        waiting = Waiting(self._files, list(directories))
        self._followers.add(waiting)
        try:
            yield lambda seen, timeout_ms: waiting.wait(lambda: self._current_view() is not seen, timeout_ms)
        finally:
            self._followers.discard(waiting)
            waiting.end()


def _ends_log(watched: WatchedSegment, next_base: int, rules: TailRules) -> bool:
    """Whether the log ends in a segment although others follow: what was durable is damaged, or something
    between them is lost. Damage above the recovery point is left to those who read there. Recovery cuts it
    off, but nobody here knows whether the writer has died, or is alive and has all that lies behind."""
    end = watched.next_offset
    if watched.fault is not None:
        return end < rules.recovery_point
    return end > next_base or (end < next_base and rules.is_dense)


class _ChangingError(CorruptionError):
    """What the directory holds is no log, but may be in a moment."""


class _ReplacingError(_ChangingError):
    """The writer was seen in the middle of something."""


class _Looks:
    """What the looks at a log have ended with, one after the other. How long they took is no matter: this
    process may have been stopped in the middle of one, or the writer in the middle of a change."""

    def __init__(self) -> None:
        self._count = 0
        self._last: object = None

    def agree(self, error: StorageError | CorruptionError, *, is_complete: bool) -> bool:
        """Whether an error is true: two complete looks in a row, during which nothing came or went, ended
        with it. Or there were too many."""
        self._count += 1
        found: object = None
        if is_complete and isinstance(error, StorageError):
            found = error.errno, error.filename
        elif is_complete and isinstance(error, CorruptionError) and not isinstance(error, _ReplacingError):
            found = error.reason, error.path, error.position, error.base_offset
        is_same, self._last = found is not None and found == self._last, found
        return is_same or self._count >= _MOST_LOOKS


def _settled(error: StorageError | CorruptionError) -> StorageError | CorruptionError:
    """What users are told when nothing changes any more."""
    if not isinstance(error, _ChangingError):
        return error
    return CorruptionError(
        error.reason, path=error.path, position=error.position, base_offset=error.base_offset
    )
