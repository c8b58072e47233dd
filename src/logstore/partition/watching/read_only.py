"""Reading a partition that another process may be writing.

It takes no lock in the directory and writes nothing. It learns the writer's state from the files: the
segments from the directory, the log end by checking the batches behind the last known one. The first look
finds the end as recovery would, from what the writer has stored: only the part above the recovery point is
read. A batch that is not complete yet, or whose CRC is not right yet, does not exist yet: a follower never
sees a torn batch. Missing or stale indexes are replaced in memory only.

The writer also removes data: it deletes segments, cuts the log's end, empties it, deletes the topic. A reader
of removed data finds a file missing or bytes that do not fit. It then looks again, and an error is raised
only if two looks agree on it. Compaction and erasures replace segments by others with the same names: data
read from a segment counts only if the file is still the one that was found with the others.

Lock: ``_lock`` guards the refresh. How a follower waits: :mod:`~logstore.partition.watching.waiting`.
"""

from __future__ import annotations

import errno
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
from logstore.model import AbortedTransaction, Isolation, Role, TopicPartition
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
_MOST_LOOKS = 1_000  # at a log that keeps changing
_BETWEEN_LOOKS_MS = 2  # at least

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
        """``config`` is None if the topic's settings are unknown."""
        self._config = config
        self.directory = directory
        self.partition = partition
        self._context = context
        self._files = context.files
        self._checkpoints = checkpoints
        self._lock = threading.Lock()
        self._names = Watch(context.files, context.clock, directory)
        self._topic_id: uuid.UUID | None = None
        self._has_damaged_topic_id = False
        self._role = Role.ALONE
        self._segments: tuple[Segment, ...] = ()
        self._bases: tuple[int, ...] = ()
        self._checked: dict[int, Segment] = {}
        """Sealed segments above the recovery point that were checked, including those of failed looks."""
        self._producers = ProducerStates()
        self._view: LogView | None = None
        self._truncations = Truncations()
        self._is_begun = False
        """Whether the log's end was found, so that the next look can go on from there."""
        self.change_count = 0
        """How often a look has found files that may have changed since the one before."""
        self._is_closed = False
        self._followers: set[Waiting] = set()
        self.passes_damage = False
        """Whether to pass over damage at the end of a log that was longer by its checkpoints, and to warn of
        the missing records. Otherwise that is an error."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """
        Raises:
            ReadOnlyError: always.
        """
        raise ReadOnlyError(
            f"{self.partition} was opened read-only; open the store without read_only to change it"
        )

    append = append_if_ready = extend = extend_arrow = append_batch = append_replicated = _refuse
    append_end_marker = _refuse
    writer = property(_refuse)
    flush = checkpoint = prepare_checkpoint = roll = delete_before = truncate_to = (
        truncate_fully_and_start_at
    ) = _refuse
    enforce_retention = check_writable = assign_leader_epoch = update_high_watermark = _refuse
    set_role = lead = stop_leading = _refuse
    reconfigure = expire_producers = compact = dirtiness = erase = _refuse
    adopt = adopt_file = last_of_producer = open_transactions = active_producers = _refuse

    def _refuse_to_say(self, *_: Any, **__: Any) -> NoReturn:
        """
        Raises:
            ReadOnlyError: always.
        """
        raise ReadOnlyError(f"{self.partition} was opened read-only; only the writer's process knows this")

    def _check_leader_epoch(self, expected: int) -> None:
        self._refuse_to_say()

    recovery = leader_epoch = epoch_entries = property(_refuse_to_say)
    end_offset_for_epoch = when = on_change = _refuse_to_say

    @property
    def config(self) -> TopicConfig:
        """The topic's settings when the log was opened; if they are unknown, settings that keep
        everything."""
        return self._config or TopicConfig(retention_ms=-1)

    @property
    def role(self) -> Role:
        """The log's role among replicas, as its writer has stored it. If it is not alone, the high watermark
        is that of the writer's last checkpoint."""
        self._current_view()
        return self._role

    @property
    def needs_reopen(self) -> bool:
        """Always False: only a writer may have to reopen the log."""
        return False

    @property
    def is_closed(self) -> bool:
        """Whether the log is closed, and can no longer be read."""
        return self._is_closed

    def close(self) -> None:
        """Refuse further reads. Iterators under way go on; files are closed when they are no longer used."""
        self._is_closed = True
        for follower in tuple(self._followers):
            follower.wake()
        self.let_go()

    def let_go(self) -> None:
        """Keep no files open for future readers."""
        for segment in self._segments:
            segment.leave_cache()
            segment.forget_files()

    # Reading, while the writer goes on

    def _newer_view(self, seen: LogView, error: LogstoreError) -> LogView:
        """The current view, if other segments than before explain the error. Otherwise raises the error."""
        with self._lock:
            self._forget_locked()
        view = self._current_view()
        if not view.explains(error, seen):
            raise self._counted(error)
        return view

    def facts_to_check(self, checkpoints: StoredCheckpoints) -> LogFacts:
        """The facts from the files. They are not taken from the view, which ends where the files cannot be
        read: that is what a check looks for.

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
        """Note where the offsets ``[start, stop)`` lie in files now, for a
        :class:`~logstore.partition.watching.pinned.PinnedReader`: another process can read them without
        opening the store, and without checking the end of the log again.

        Raises:
            OffsetOutOfRangeError: the range is not within what can be read now.
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

    # What a writer would report or do

    def plan_retention(self) -> PlannedDeletion:
        """What :meth:`.Log.enforce_retention` of a writer would delete now. If the topic's settings are
        unknown, only segments below the log start. Cost: a look at the files and, if ``retention_ms`` is set,
        at the time indexes of the oldest segments.

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
        """The stored state of the log besides its records: checkpoints, leader epochs, producers, segments.
        This call looks at the files first. Cost: that of a look, and a read of the leader epochs.

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
        self._check_usable()  # first: a forked child may never get the lock
        with self._lock:
            looks = _Looks()
            before: object = ()  # before the first look no mark is taken: most looks succeed
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
        """A value that stays the same as long as no file comes or goes and nothing is declared durable."""
        try:
            names = {entry.name for entry in self._files.list_directory(self.directory)}
        except StorageError:
            return object()  # it is being removed
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
        """Make the next look examine everything, and read what is new."""
        self._names.forget()
        if self._segments:
            self._watched.contents.forget()

    def _begin_anew_locked(self) -> None:
        """Like :meth:`_forget_locked`, but also make the next look find the log's end from the start."""
        self._checkpoints.forget()
        self._forget_locked()
        self._is_begun = False

    def _refresh_locked(self) -> LogView:
        home = self._checkpoints.current()  # first: what they call durable must be in the files
        try:
            if self._names.has_changed() or not self._is_begun:
                self.change_count += 1
                self._find_locked(home)
            elif self._watched.contents.has_changed():
                self.change_count += 1
                self._read_on_locked(home)
        except BaseException:
            self._begin_anew_locked()
            raise
        recovery_point, end = home.recovery_point(self.partition), self._watched.next_offset
        self._check_loss(recovery_point, end)
        start = max(self._log_start(home, end), self._bases[0])
        end = max(end, start)
        replicated = replicated_below(self._role, home.high_watermark(self.partition), start, end)
        view = LogView(
            self._segments,
            self._bases,
            self._watched.size_bytes,
            start,
            end,
            replicated,
            max(self._producers.last_stable_offset(replicated), start),
            recovery_point,
            self._truncations,
            self._truncations.count,
            partition=self.partition,
        )
        if view != self._view:
            self._view = view
        return self._view

    def _log_start(self, home: LogHome, end: int) -> int:
        """The log start from its checkpoint. If the log was closed at an end below it, the checkpoint is
        damaged and ignored, as in an open for writing."""
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
        """Find the segments and the log's end as a recovery would, without changing anything. Only the part
        above the recovery point is read. The segment in which the log ends is watched from then on; if
        records between two segments are lost, that is not the last one.

        The names are listed before and after the files are read: a listing during a rename may miss a file,
        and a missing segment would look like one whose records were all superseded.
        """
        topic_id = self._check_topic_id()
        cuts = read_cuts(self._files, self.directory)
        role = read_role(self._files, self.directory)
        names = list_segment_files(self._files, self.directory)
        logs = self._checked_logs(names)
        rules = self._rules(home, role)
        segments = self._segments_up_to_end(logs, names, rules, home.log_start(self.partition) or 0)
        self._check_names_locked(names)
        if read_cuts(self._files, self.directory) != cuts:
            raise _ReplacingError("the log is being truncated", path=self.directory)
        again = self._read_topic_id()
        if (None if isinstance(again, CorruptionError) else again) != topic_id:
            raise _ReplacingError("the topic is being deleted, or made again", path=self.directory)
        last = segments[-1]
        assert isinstance(last, WatchedSegment)
        last.forget_files()  # the files may be others with the same names
        self._replay_sealed(segments, names)
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
            gone.leave_cache()  # the disk cannot free removed files that are open
        self._bases, self._segments = tuple([each.base_offset for each in segments]), tuple(segments)
        self._role = role
        if cuts != self._truncations.cuts:
            self._truncations = Truncations(cuts)
        self._is_begun = True

    def _check_names_locked(self, names: Names) -> None:
        """Check that no file came, went or was renamed during a look. New segments behind the last are
        allowed and left to the next look: a writer may roll faster than a look takes."""
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
                sealed.quiet_range = watched.quiet_range
                self._checked[base] = sealed
            segments.append(sealed)
        return [*segments, self._look_at(bases[-1], known.get(bases[-1]), rules, None)]

    def _look_at(
        self, base: int, known: Segment | None, rules: TailRules, next_base: int | None
    ) -> WatchedSegment:
        """A segment whose good part is known."""
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

    def _read_topic_id(self) -> uuid.UUID | CorruptionError | None:
        """The stored one; an error if it is damaged."""
        try:
            return read_topic_id(self._files, self.directory)
        except CorruptionError as error:
            return error

    def _check_topic_id(self) -> uuid.UUID | None:
        """A topic that was deleted and created again is another one. A damaged id does not tell that: records
        are then read without it, as by the writer. Returns the stored id; None if it is damaged, or there is
        none."""
        topic_id = self._read_topic_id()
        if isinstance(topic_id, CorruptionError):
            if not self._has_damaged_topic_id:
                warn("ignoring a damaged topic id: %s", topic_id)
            self._has_damaged_topic_id = True
            return None
        was_unknown = self._topic_id is None and self._has_damaged_topic_id
        self._has_damaged_topic_id = False
        if self._segments and topic_id != self._topic_id and not was_unknown:
            self.let_go()
            raise UnknownTopicError(f"{self.partition} was deleted; there is a new topic with its name")
        self._topic_id = topic_id
        return topic_id

    def _checked_logs(self, names: Names) -> dict[int, str]:
        """Base offsets and states of the segments' logs. If the writer is replacing some, or died while doing
        so, those of the new segments."""
        logs = current_logs(self._files, self.directory, names)
        if not logs and any(name.state == DELETED_SUFFIX for name in names.values()):
            raise _ReplacingError("the only segment is being replaced", path=self.directory)
        if not logs:
            raise _ChangingError(f"holds no segment. {_WHAT_TO_DO}", path=self.directory)
        if logs[max(logs)]:  # it cannot be watched under a name that it is about to lose
            raise _ReplacingError(
                "the last segment is being replaced; if its writer has died, an open for writing finishes it",
                path=self.directory,
            )
        return logs

    def _sealed(self, base: int, state: str, known: Segment | None, names: Names) -> StampedSegment:
        """The sealed segment at a base: the known one, unless its file was replaced."""
        found = StampedSegment(self._files, self.directory, base, self._context.open_segments, state)
        if isinstance(known, StampedSegment) and known.stamp == found.stamp and known.path == found.path:
            found = known
        swapped = segment_file_name(base, TRANSACTION_INDEX_SUFFIX) + SWAP_SUFFIX
        found.is_swapped_in_part = not state and swapped in names
        return found

    def _read_on_locked(self, home: LogHome) -> None:
        """Check and take in the batches written since the last look."""
        if self._watched.read_on():
            self._replay_locked(self._watched)
        else:
            self._is_begun = False
            self._find_locked(home)

    # Producers

    def _replay_sealed(self, segments: Sequence[Segment], names: Names) -> None:
        """Find the aborted transactions of sealed segments above the recovery point in their batches, once
        for each: a power cut that left the batches may have taken the entries of the transaction index, and
        only the next open for writing stores them again."""
        new = {
            each.base_offset: each
            for each in segments[:-1]
            if isinstance(each, StampedSegment) and each.is_checked and each.replayed is None
        }
        if all(each.quiet_range == (0, each.size_bytes) for each in new.values()):
            return
        begin, end = min(new), max(new)
        upto = [each for each in segments if each.base_offset <= end]
        found: dict[int, list[AbortedTransaction]] = {base: [] for base in new}

        def note(segment: Segment, completed: Sequence[CompletedTransaction]) -> None:
            if segment.base_offset in found:
                found[segment.base_offset] += [each.index_entry for each in completed if each.is_aborted]

        source = ProducerSource(
            self._files,
            self.directory,
            upto,
            segments[len(upto)].base_offset,
            0,
            self.passes_damage,
            {base: each.quiet_range for base, each in new.items()},
            None,
        )
        usable = [offset for offset in snapshot_offsets(names) if offset <= begin]
        with suppress(CorruptionError):  # left to those who read there
            source.rebuild(usable, store_found=False, on_completed=note)
        for base, each in new.items():
            each.replayed = tuple(found[base])

    def _producers_at_end(
        self,
        segments: list[Segment],
        last: WatchedSegment,
        names: Names,
        rules: TailRules,
        high_watermark: int,
    ) -> ProducerStates:
        """The producers' state at the log's end, from the newest snapshot that is certainly stored. Also sets
        the aborted transactions of the last segment."""
        newest = max(rules.recovery_point, last.base_offset)
        stored = AbortedTransactions()
        if newest > last.base_offset:
            try:
                stored = last.read_stored_transactions()
            except (CorruptionError, UnsupportedVersionError):
                newest = last.base_offset  # replay finds them again in the batches
        aborted = {each.last_offset: each for each in stored if each.last_offset < newest}

        def note(segment: Segment, completed: Sequence[CompletedTransaction]) -> None:
            if segment is last:
                aborted.update({done.last_offset: done.index_entry for done in completed if done.is_aborted})

        offsets = snapshot_offsets(names)
        producers = ProducerStates()
        producers.clear(last.next_offset)
        if offsets or not rules.is_clean:  # else there were no producers, as in recovery
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
        """Add the batches of the last look to the producers' state."""
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
    """Whether the log ends in a segment although others follow: durable data is damaged, or records in
    between are lost. Damage above the recovery point is left to those who read there. Recovery would cut it
    off, but this process does not know whether the writer has died, or is alive and has all that lies
    behind."""
    end = watched.next_offset
    if watched.fault is not None:
        return end < rules.recovery_point
    return end > next_base or (end < next_base and rules.is_dense)


class _ChangingError(CorruptionError):
    """The directory does not hold a valid log now, but may in a moment."""


class _ReplacingError(_ChangingError):
    """The writer is in the middle of a change."""


class _Looks:
    """The results of successive looks at a log. How long a look takes does not matter: this process may be
    stopped in the middle of one, or the writer in the middle of a change."""

    def __init__(self) -> None:
        self._count = 0
        self._last: object = None

    def agree(self, error: StorageError | CorruptionError, *, is_complete: bool) -> bool:
        """Whether an error is final: two complete looks in a row, during which no file came or went, ended
        with it; or there were too many looks."""
        self._count += 1
        found: object = None
        if is_complete and isinstance(error, StorageError):
            found = error.errno, error.filename
        elif is_complete and isinstance(error, CorruptionError) and not isinstance(error, _ReplacingError):
            found = error.reason, error.path, error.position, error.base_offset
        is_same, self._last = found is not None and found == self._last, found
        return is_same or self._count >= _MOST_LOOKS


def _settled(error: StorageError | CorruptionError) -> StorageError | CorruptionError:
    """The error for the user when nothing changes any more."""
    if not isinstance(error, _ChangingError):
        return error
    return CorruptionError(
        error.reason, path=error.path, position=error.position, base_offset=error.base_offset
    )
