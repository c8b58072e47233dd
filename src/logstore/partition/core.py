"""The state of a log and the steps that change it, each one disk first and then memory.

A change that fails leaves everything as it was, with one exception: where several steps must all be done
once the first is done (:meth:`LogCore._all_or_reopen`), a failure between them calls ``poison``, because
memory and disk then disagree.

Callers hold the log's lock for every method; the exception is ``view``, which anybody may take at any time.
Nothing here waits, schedules or flushes data: that is the business of :mod:`~logstore.partition.log`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import NamedTuple
from weakref import WeakSet

from logstore.config import TopicConfig
from logstore.errors import DiskFullError, OffsetOutOfRangeError, RecordTooLargeError, StorageError
from logstore.format.header import BatchHeader
from logstore.format.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from logstore.model import AppendOrigin, TopicPartition
from logstore.partition import sidecars
from logstore.partition.active import ActiveSegment, open_active
from logstore.partition.context import LogContext
from logstore.partition.indexes import MAX_RELATIVE_OFFSET
from logstore.partition.leader_epochs import LeaderEpochs
from logstore.partition.leftovers import (
    list_segment_files,
    remove_strays,
    snapshot_offsets,
    undo_replacement,
)
from logstore.partition.producer_replay import ProducerSource, add_to_plan
from logstore.partition.producer_state import ProducerAppend, RememberedBatch
from logstore.partition.recovery import LoadedLog
from logstore.partition.retention import SegmentFacts, plan_retention
from logstore.partition.segment import Segment
from logstore.partition.validate import PlannedAppend, check_reach
from logstore.partition.view import LogView, Truncations

MAX_OFFSET = 2**63 - 1
"""Of a log end: no record has it."""


class AppendResult(NamedTuple):
    """Where an append ended up."""

    base_offset: int
    last_offset: int
    timestamp_ms: int
    """The largest timestamp of the batches as stored."""
    is_duplicate: bool = False
    """Nothing was appended: these are the offsets that the same batch got the first time."""


def _check_below_last(planned: PlannedAppend) -> None:
    if planned.last_offset >= MAX_OFFSET:
        raise OffsetOutOfRangeError(f"offset {planned.last_offset} is beyond the last that a log can have")


class LogCore:
    """Segments, offsets, producers and epochs of one log."""

    def __init__(
        self,
        context: LogContext,
        directory: str,
        partition: TopicPartition,
        config: TopicConfig,
        loaded: LoadedLog,
        *,
        follows_end: bool,
        poison: Callable[[BaseException], None],
    ) -> None:
        self.context = context
        self.directory = directory
        self.partition = partition
        self.config = config
        self.segments = loaded.segments
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.durable_offset = loaded.recovery_point
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self._had_gaps = loaded.may_have_gaps
        self._are_epochs_stored = True
        """False while the file may have another history: the next append writes it first."""
        self._poison = poison
        self.follows_end = follows_end
        """Whether the high watermark is the log end, as on a single replica."""
        stored = context.home.high_watermark(partition) or 0
        self.high_watermark = max(min(stored, self.log_end_offset), self.log_start_offset)
        self._stored_high_watermark = self.high_watermark
        self._opened_end_offset = loaded.log_end_offset
        self.unflushed: list[Segment] = []
        """Sealed segments with data above the durable offset."""
        self.truncations = Truncations()
        """A flush that began before one says nothing about what came after."""
        self.last_snapshot_offset = -1
        self.replacement_count = 0
        """How often segments were replaced; it grows when the view shows it."""
        self._retired: WeakSet[Segment] = WeakSet()
        """Segments that are no part of the log any more, and under ``.deleted`` names still have readers."""
        self.view: LogView
        self.publish()

    @contextmanager
    def _all_or_reopen(self) -> Iterator[None]:
        """Steps that belong together: an error among them makes the log refuse changes until it is opened
        again, which reads from disk what is true."""
        try:
            yield
        except BaseException as error:
            self._poison(error)
            raise

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Ascending, never empty; the last one is active."""
        return self._segments

    @segments.setter
    def segments(self, segments: Sequence[Segment]) -> None:
        self._segments = tuple(segments)
        self._bases = tuple([segment.base_offset for segment in segments])

    @property
    def active(self) -> ActiveSegment:
        active = self._segments[-1]
        assert isinstance(active, ActiveSegment)
        return active

    def publish(self) -> None:
        """Show the present state to readers, in one assignment."""
        if self.follows_end:
            self.high_watermark = self.log_end_offset
        stable = high_watermark = self.high_watermark
        self.producers.on_high_watermark(high_watermark)
        unstable = self.producers.first_unstable_offset(high_watermark)
        if unstable is not None and unstable < stable:
            stable = unstable
        start = self.log_start_offset
        fields = (
            self._segments,
            self._bases,
            self._segments[-1].size_bytes,
            start,
            self.log_end_offset,
            high_watermark,
            stable if stable > start else start,
            self.durable_offset,
            self.truncations,
            self.truncations.count,
        )
        self.view = tuple.__new__(LogView, fields)  # once per append: a third of the cost of LogView(*fields)

    @property
    def known_high_watermark(self) -> int:
        """The high watermark as far as it is known, and so what is stored of it. Until a log that was opened
        grows, or somebody manages its high watermark, it may be one of several replicas: it is then where it
        was stored, however much further the log goes."""
        if not self.follows_end or self.log_end_offset > self._opened_end_offset:
            return self.high_watermark
        return max(min(self._stored_high_watermark, self.log_end_offset), self.log_start_offset)

    def manage_high_watermark(self) -> None:
        """The high watermark does not follow the end any more."""
        if self.follows_end:
            self.high_watermark = self.known_high_watermark
            self.follows_end = False
            self.publish()

    def forget_files(self) -> None:
        """Let go of all open files; a reader under way keeps what it uses until it is done."""
        self._forget_batches()
        for segment in (*self.segments, *self._retired):
            segment.leave_cache()
        for segment in self.segments:
            segment.forget_files()

    def lose_files(self) -> None:
        """The same where another log's files may take the names: nobody looks for them again."""
        for segment in (*self.segments, *self._retired):
            segment.lose_files()
        self.forget_files()

    def _forget_batches(self) -> None:
        """Free what is kept of batches that no reader will ask for again."""
        self.context.batches.drop([segment.number for segment in self.segments])

    # Appending

    def write(self, planned: PlannedAppend, origin: AppendOrigin, now_ms: int) -> AppendResult:
        """Write prepared batches at the end.

        Producers are checked before the segment rolls, so that a duplicate changes nothing at all. After the
        batches are in the file, aborted transactions must reach their index too.

        Raises:
            RecordTooLargeError: more than ``segment_bytes``.
            OffsetOutOfRangeError: the log has no offsets left.
            CorruptionError: the offsets span more than a segment can index.
            OutOfOrderError, ProducerFencedError, InvalidTransactionStateError: the producer's state refuses.
            StorageError: the write failed, and was undone.
        """
        producers = None
        if planned.has_producers:
            producers, duplicate = self._plan_producers(planned, origin, now_ms)
            if duplicate is not None:
                return AppendResult(
                    duplicate.base_offset, duplicate.last_offset, duplicate.timestamp_ms, True
                )
        base_offset, last_offset = planned.base_offset, planned.last_offset
        _check_below_last(planned)
        if planned.size_bytes > self.config.segment_bytes:
            raise RecordTooLargeError(
                f"{planned.size_bytes} bytes are more than segment_bytes ({self.config.segment_bytes})"
            )
        if self.should_roll(planned, now_ms):
            new_base_offset = max(base_offset, self.log_end_offset)
            check_reach(planned, new_base_offset)
            self.roll(new_base_offset, now_ms)
        epochs = self.epochs
        self._note_epochs(planned.headers)
        try:
            self.active.append(planned)
        except StorageError:
            self._take_back_epochs(epochs)
            raise
        if producers is not None:
            with self._all_or_reopen():
                self._finish_transactions(producers)
        self.log_end_offset = self.producers.map_end_offset = last_offset + 1
        self.publish()
        return AppendResult(base_offset, last_offset, planned.newest_ms)

    def adopt_segment(self, path: str, planned: PlannedAppend, now_ms: int) -> None:
        """Make a file of batches, which are durable there and placed behind the log end, the active segment.
        Afterwards it has no other name. The buffers of ``planned`` are not looked at.

        What is in front of it is made durable first: no crash leaves it behind a hole. The directory has it,
        durably, before its old name goes, and a crash in between leaves both.

        Raises:
            OutOfOrderError, ProducerFencedError: the producer's state refuses.
            OffsetOutOfRangeError: the log has no offsets left.
            CorruptionError: the offsets span more than a segment can index.
            StorageError: the disk refused, or gives no second name; nothing was changed.
        """
        base_offset, old = planned.base_offset, self.active
        assert base_offset == self.log_end_offset
        _check_below_last(planned)
        check_reach(planned, base_offset)
        producers, _ = self._plan_producers(planned, AppendOrigin.CLIENT, now_ms)
        assert producers is not None  # no duplicate: its sequence follows
        is_roll = old.base_offset != base_offset
        if is_roll:
            self.context.home.ensure_recovery_point(self.partition)
            with self._all_or_reopen():
                old.flush()
            self.store_snapshot(base_offset)
        epochs = self.epochs
        self._note_epochs(planned.headers)
        new = self.new_active(base_offset, now_ms)
        try:
            new.link(path)
            sealed = [old.seal()] if is_roll else []
        except StorageError:
            self._take_back_epochs(epochs)
            with self._all_or_reopen():
                new.unlink()
                if is_roll:
                    self._take_back(new)
            raise
        with self._all_or_reopen():
            new.take_name(planned.headers)
            self.segments = [*self.segments[:-1], *sealed, new]
            self.unflushed += sealed
            self.producers.apply(producers)
            self.log_end_offset = self.producers.map_end_offset = planned.last_offset + 1
            self.publish()
        with suppress(StorageError):  # a name too many is nothing to a log
            self.context.files.remove(path)

    def _plan_producers(
        self, planned: PlannedAppend, origin: AppendOrigin, now_ms: int
    ) -> tuple[ProducerAppend | None, RememberedBatch | None]:
        """Hold the batches against the producer state. The second value is a duplicate's first appearance."""
        append = self.producers.begin(origin, now_ms)
        for header, buffer in zip(planned.headers, planned.buffers, strict=True):
            if header.producer_id < 0:
                continue
            if header.is_control:
                add_to_plan(append, header, buffer, 0)
            elif (duplicate := append.add_data(header)) is not None:
                return None, duplicate
        return append, None

    def _finish_transactions(self, producers: ProducerAppend) -> None:
        for completed in producers.completed:
            if completed.is_aborted:
                self.active.append_aborted(completed.index_entry)
        self.producers.apply(producers)

    def _note_epochs(self, headers: Sequence[BatchHeader]) -> None:
        """Store an epoch durably before the first batch that carries it."""
        latest = self.epochs.latest
        known = latest.epoch if latest is not None else -1
        for header in headers:
            if header.partition_leader_epoch != known or header.magic != 2:
                break
        else:
            if self._are_epochs_stored:
                return
        changed = LeaderEpochs(self.epochs.entries)
        for header in headers:
            if header.magic < 2:
                changed.clear()
            elif header.partition_leader_epoch >= 0:
                changed.assign(header.partition_leader_epoch, header.base_offset)
        self.replace_epochs(changed)

    def _take_back_epochs(self, epochs: LeaderEpochs) -> None:
        """After a failure: nothing was written in those that are new."""
        if self.epochs is not epochs:
            self.epochs, self._are_epochs_stored = epochs, False

    def replace_epochs(self, epochs: LeaderEpochs) -> None:
        """Store a changed history, then use it."""
        if epochs.entries != self.epochs.entries or not self._are_epochs_stored:
            self._are_epochs_stored = False  # first: a failure leaves the old file, the new one, or who knows
            sidecars.write_epochs(self.context.files, self.directory, epochs)
            self._are_epochs_stored = True
            self.epochs = epochs

    # Rolling

    def should_roll(self, planned: PlannedAppend, now_ms: int) -> bool:
        """Kafka's rules: size, age, a full index, offsets out of reach."""
        active = self.active
        size_bytes = active.size_bytes
        if size_bytes > self.config.segment_bytes - planned.size_bytes:
            return True
        if size_bytes:
            age_ms = self._age_ms(planned.newest_ms, now_ms)
            if age_ms > self._limit_ms() - active.jitter_ms or active.indexes.is_full:
                return True
        return planned.last_offset - active.base_offset > MAX_RELATIVE_OFFSET

    def _age_ms(self, newest_ms: int, now_ms: int) -> int:
        active = self.active
        rolling_ms = active.rolling_timestamp_ms
        return newest_ms - rolling_ms if rolling_ms >= 0 else now_ms - active.created_ms

    def _limit_ms(self) -> int:
        config = self.config
        return min(config.segment_ms, config.max_compaction_lag_ms) if config.compacts else config.segment_ms

    def roll(self, base_offset: int, now_ms: int) -> None:
        """Begin a new segment.

        The new files are created, durably, before the old segment is sealed: a crash in between leaves an
        empty last segment, which is what a roll leaves anyway. If sealing fails the new files are removed.

        Where recovery cannot tell a gap from a loss, the old segment is flushed first: had a power cut taken
        its end, the records behind it would go on as if nothing had been between.
        """
        old = self.active
        if old.base_offset == base_offset:
            self._replace_empty_active(now_ms)
            return
        if base_offset < old.base_offset:
            raise OffsetOutOfRangeError(f"cannot roll to {base_offset}, below the active {old.base_offset}")
        self.context.home.ensure_recovery_point(self.partition)
        if self._had_gaps or self.config.compacts:
            self._had_gaps = True  # also under another policy
            with self._all_or_reopen():
                old.flush()
        new = self.new_active(base_offset, now_ms)
        try:
            new.create()
            sealed = old.seal()
        except StorageError:
            # A new segment that stays, or comes back after a power cut, would end the log at its base.
            with self._all_or_reopen():
                self._take_back(new)
            raise
        self.segments = [*self.segments[:-1], sealed, new]
        self.unflushed.append(sealed)
        self.producers.map_end_offset = base_offset
        self.store_snapshot(base_offset)

    def new_active(self, base_offset: int, now_ms: int) -> ActiveSegment:
        highest_jitter = min(self.config.segment_jitter_ms, self._limit_ms() - 1)
        return ActiveSegment(
            self.context.files,
            self.directory,
            base_offset,
            self.context.open_segments,
            created_ms=now_ms,
            index_limit_bytes=self.config.segment_index_bytes,
            index_interval_bytes=self.config.index_interval_bytes,
            jitter_ms=self.context.random.randint(0, highest_jitter) if highest_jitter > 0 else 0,
        )

    def _replace_empty_active(self, now_ms: int) -> None:
        """Rolling an empty segment to its own base gives it fresh files and settings."""
        fresh = self.new_active(self.active.base_offset, now_ms)
        fresh.create()
        self.segments = [*self.segments[:-1], fresh]

    def _take_back(self, new: ActiveSegment) -> None:
        """Remove what there is of a new segment. Where descriptors have run out, this needs none but for the
        directory's flush: the new segment's own is free for that."""
        new.forget_files()
        has_any = False
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if self.context.files.is_file(new.path_of(suffix)):
                self.context.files.remove(new.path_of(suffix))
                has_any = True
        if has_any:
            self.context.files.flush_directory(self.directory)

    # Producer snapshots

    def store_snapshot(self, offset: int) -> None:
        """Write the producers' state as of ``offset``, which is the log end or the base of the active
        segment. A snapshot inside a segment replaces the one before it there."""
        sidecars.write_snapshot(self.context.files, self.directory, offset, self.producers.snapshot_entries())
        bases = {segment.base_offset for segment in self.segments}
        names = list_segment_files(self.context.files, self.directory)
        for previous in snapshot_offsets(names):
            if previous != offset and previous not in bases:
                self.context.files.remove(sidecars.snapshot_path(self.directory, previous))
        self.last_snapshot_offset = offset

    def _remove_snapshots(self, low: int, high: int | None = None) -> None:
        """Remove the snapshots below ``low`` and, if given, above ``high``."""
        names = list_segment_files(self.context.files, self.directory)
        for offset in snapshot_offsets(names):
            if offset < low or (high is not None and offset > high):
                self.context.files.remove(sidecars.snapshot_path(self.directory, offset))

    # Removing from the front

    def plan_retention(self, now_ms: int) -> int:
        """How many segments the topic's limits let go."""
        ends = [*(segment.base_offset for segment in self.segments[1:]), self.log_end_offset]
        facts = [
            SegmentFacts(segment.base_offset, end, segment.size_bytes, segment.newest_ms)
            for segment, end in zip(self.segments, ends, strict=True)
        ]
        return plan_retention(
            facts,
            config=self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            now_ms=now_ms,
        )

    def delete_segments(self, count: int, now_ms: int) -> list[str]:
        """Remove the first ``count`` segments; returns the renamed files, which the caller removes later.

        The log start is durable before a file changes its name: a crash in between loses nothing that is
        above it, and brings nothing back that is below.
        """
        if count == len(self.segments):
            self.roll(self.log_end_offset, now_ms)
        gone, kept = self.segments[:count], self.segments[count:]
        self.raise_log_start(max(self.log_start_offset, kept[0].base_offset))
        with self._all_or_reopen():
            self.segments = kept
            self.unflushed = [segment for segment in self.unflushed if segment not in gone]
            self.publish()
            return self._rename_away(gone)

    def raise_log_start(self, offset: int) -> None:
        """Move the log start up, durably, and the epochs with it."""
        if offset <= self.log_start_offset:
            return
        self._store_log_start(offset)
        with self._all_or_reopen():
            self.log_start_offset = offset
            self.high_watermark = max(self.high_watermark, offset)
            self.publish()
            epochs = LeaderEpochs(self.epochs.entries)
            epochs.truncate_from_start(offset)
            self.replace_epochs(epochs)

    def _store_log_start(self, offset: int) -> None:
        """On a full disk, the segments that go make the room for saying so: with their indexes, which could
        be built anew."""
        home = self.context.home
        try:
            home.store_log_start(self.partition, offset)
        except DiskFullError:
            going = [segment for segment, after in pairwise(self.segments) if after.base_offset <= offset]
            flushed = [segment for segment in going if segment not in self.unflushed]
            if not sum(segment.remove_indexes() for segment in flushed):
                raise
            home.store_log_start(self.partition, offset)

    def _rename_away(self, gone: Sequence[Segment]) -> list[str]:
        renamed = self._retire(gone)
        self._remove_snapshots(self.segments[0].base_offset)
        self.context.files.flush_directory(self.directory)
        return renamed

    # Replacing

    def replace_segments(
        self, old: Sequence[Segment], base_offset: int, kinds: Sequence[str], *, keeps_markers: bool = False
    ) -> list[str]:
        """Put the ``.cleaned`` files of a segment with this base in the place of sealed segments that follow
        each other. ``kinds`` are the suffixes of its files, which are flushed, the log last. Returns the
        renamed files of those that were there, as :meth:`delete_segments` does.

        Retention may have taken the first of ``old`` meanwhile: the new segment then begins below the log
        start. If it took all of them there is no place for it, and nothing is changed but that its files are
        removed. Readers under way go on with the old ones: see :meth:`Segment.keep_open`.

        With ``keeps_markers`` all batches are there as before, with or without records: what snapshots say of
        producers stays true.

        What a crash leaves at each step is told in :mod:`~logstore.partition.leftovers`. Before the last
        rename to ``.swap`` the old segments count, and a failure undoes it; from there on the new one does.
        """
        there = [segment for segment in old if segment in self.segments]
        if not there:
            undo_replacement(self.context.files, self.directory)
            return []
        first = self.segments.index(there[0])
        assert self.segments[first : first + len(there)] == tuple(there)
        assert there[-1] is not self.segments[-1]
        flush_directory, files = self.context.files.flush_directory, self.context.files
        paths = [f"{self.directory}/{segment_file_name(base_offset, kind)}" for kind in kinds]
        remove_strays(files, self.directory, [path + CLEANED_SUFFIX for path in paths])
        flush_directory(self.directory)
        self._begin_swap(there, paths)
        with self._all_or_reopen():
            flush_directory(self.directory)
            renamed = self._retire(there)
            flush_directory(self.directory)
            for path in reversed(paths):  # the log first
                files.rename(path + SWAP_SUFFIX, path)
                if path == paths[-1]:
                    flush_directory(self.directory)
            if not keeps_markers:
                for segment in there:  # they may say what is open by markers that are gone
                    self._remove_snapshot_of(segment)
            flush_directory(self.directory)
            new = Segment(files, self.directory, base_offset, self.context.open_segments)
            new.size_bytes  # noqa: B018 - remembers the size now, before the file is ever renamed
            self.segments = [*self.segments[:first], new, *self.segments[first + len(there) :]]
            self.unflushed = [segment for segment in self.unflushed if segment not in there]
            self.context.batches.drop([segment.number for segment in there])
            self.publish()
            self.replacement_count += 1
        return renamed

    def _begin_swap(self, old: Sequence[Segment], paths: Sequence[str]) -> None:
        """Rename ``.cleaned`` to ``.swap``, the log last. A failure in front of that undoes it."""
        try:
            for segment in old:
                segment.keep_open()
            for path in paths:
                self.context.files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        except StorageError:
            for segment in old:
                segment.stop_keeping()
            with self._all_or_reopen():
                undo_replacement(self.context.files, self.directory)
            raise

    def keep_retired_open(self) -> None:
        """Let readers go on with segments that are no part of the log any more, when their files go."""
        for segment in list(self._retired):
            try:
                segment.keep_open()
            except StorageError as error:
                if error.errno != errno.ENOENT:  # else it is gone already
                    raise

    def forget_removed(self, paths: Collection[str]) -> None:
        """Let go of segments whose files were removed: open ones keep the disk from freeing them."""
        for segment in list(self._retired):
            if segment.path in paths:
                segment.leave_cache()

    def _retire(self, segments: Sequence[Segment]) -> list[str]:
        """Rename segments away whose readers go on under the new names. Such a name may be taken by one that
        had the same base before: that one's readers must not find the other's files."""
        bases = {segment.base_offset for segment in segments}
        for before in [each for each in self._retired if each.base_offset in bases]:
            before.lose_files()
        self._retired.update(segments)
        return [path for segment in segments for path in segment.rename_files(DELETED_SUFFIX)]

    def _remove_snapshot_of(self, segment: Segment) -> None:
        path = sidecars.snapshot_path(self.directory, segment.base_offset)
        if self.context.files.is_file(path):
            self.context.files.remove(path)

    # Removing from the end

    def truncate_to(self, offset: int, now_ms: int) -> list[str]:
        """Drop every batch whose last offset is at or above ``offset``, which becomes the log end. Returns
        renamed files as :meth:`delete_segments` does.

        The stored recovery point comes down first: were it above the cut after a crash, the missing end would
        look like damage. Where a batch is cut out whole, the offsets of its records below ``offset`` stay
        unused; a new segment then begins at ``offset``, so that its name keeps the log end.
        """
        cut_segments = [segment for segment in self.segments if segment.base_offset > offset]
        kept = self.segments[: len(self.segments) - len(cut_segments)]
        self.context.home.lower_recovery_point(self.partition, kept[-1].base_offset)
        self.context.home.lower_cleaner_offset(self.partition, offset)
        active = self._as_active(kept[-1], now_ms)
        with self._all_or_reopen():
            self.truncations.count += 1
            self._forget_batches()
            self.durable_offset = min(self.durable_offset, active.base_offset)
            self.segments = [*kept[:-1], active]
            self.unflushed = [segment for segment in self.unflushed if segment in self.segments]
            end = active.hide_from(offset)
            self._show_end(max(end, self.log_start_offset))
            renamed = self._rename_all(cut_segments)
            active.truncate_to(offset, now_ms)
            self._finish_truncation(offset)
            if end < offset and active.base_offset < offset:
                self.roll(offset, now_ms)
            self.publish()
            return renamed

    def _show_end(self, end: int) -> None:
        """Let readers see nothing behind ``end`` from now on, whatever becomes of the change under way."""
        self.log_end_offset = end
        self.high_watermark = min(self.high_watermark, end)
        self.durable_offset = min(self.durable_offset, end)
        self.publish()

    def _as_active(self, segment: Segment, now_ms: int) -> ActiveSegment:
        if isinstance(segment, ActiveSegment):
            return segment
        active = self.new_active(segment.base_offset, now_ms)
        open_active(active).use_contents(segment.size_bytes)
        segment.leave_cache()
        segment.disown_files()
        return active

    def _rename_all(self, segments: Sequence[Segment]) -> list[str]:
        """From the last to the first: a crash in between leaves a log without a hole."""
        renamed = []
        for segment in reversed(segments):
            renamed += self._retire([segment])
            self.context.files.flush_directory(self.directory)
        return renamed

    def _finish_truncation(self, offset: int) -> None:
        """Bring epochs, log start, producers and snapshots in line with a log that ends at ``offset``."""
        epochs = LeaderEpochs(self.epochs.entries)
        epochs.truncate_from_end(offset)
        self.replace_epochs(epochs)
        if self.log_start_offset > offset:
            self.context.home.store_log_start(self.partition, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self._remove_snapshots(self.segments[0].base_offset, offset)
        self.last_snapshot_offset = -1
        names = list_segment_files(self.context.files, self.directory)
        now_ms = self.context.clock.now_ms()
        source = ProducerSource(self.context.files, self.directory, self.segments, offset, now_ms)
        self.producers = source.rebuild(snapshot_offsets(names), store_found=False)

    def start_over(self, offset: int, log_start_offset: int | None, now_ms: int) -> list[str]:
        """Drop everything and go on at ``offset``. The new segment exists before the old ones go.

        The recovery point is below all of them then: one above would make a log of which a crash has left
        some look damaged.
        """
        lowest = min(self.segments[0].base_offset, offset)
        self.context.home.lower_recovery_point(self.partition, lowest)
        self.context.home.lower_cleaner_offset(self.partition, lowest)
        with self._all_or_reopen():
            return self._start_over(offset, offset if log_start_offset is None else log_start_offset, now_ms)

    def _start_over(self, offset: int, log_start_offset: int, now_ms: int) -> list[str]:
        self.truncations.count += 1
        self._forget_batches()
        self._show_end(self.log_start_offset)
        old = self.segments
        renamed = self._rename_all([segment for segment in old if segment.base_offset == offset])
        fresh = self.new_active(offset, now_ms)
        fresh.create()
        self.context.home.store_log_start(self.partition, log_start_offset)
        renamed += self._rename_all([segment for segment in old if segment.base_offset != offset])
        self._remove_snapshots(2**63 - 1)
        self.segments = [fresh]
        self.unflushed = []
        self.last_snapshot_offset = -1
        self.producers.clear(offset)
        self.replace_epochs(LeaderEpochs())
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.high_watermark = self.durable_offset = offset
        self.publish()
        return renamed

    # Epochs

    def assign_epoch(self, epoch: int) -> None:
        """A new leader epoch begins at the log end."""
        epochs = LeaderEpochs(self.epochs.entries)
        epochs.assign(epoch, self.log_end_offset)
        self.replace_epochs(epochs)

    def cut_epochs(self) -> None:
        """Forget the epochs that begin at or above the log end: nothing was written in them."""
        epochs = LeaderEpochs(self.epochs.entries)
        epochs.truncate_from_end(self.log_end_offset)
        self.replace_epochs(epochs)
