"""Opens a partition: turns the files of a clean stop, or of a crash, into a log that can be appended to.

The order follows Kafka's loader, with these differences:

* After a crash only the part above the stored recovery point is read, not the whole segment that holds it:
  with the recovery point, index entries and producer snapshot below it were made durable too.
* Damage is told from a torn tail. Above the recovery point a bad batch ends the log, and the bytes from there
  on are cut (and kept aside, see :mod:`~logstore.partition.recovery.aside`). Below it, durable data is lost
  or wrong: that is reported, and cut only with ``accept_loss``.
* Above a stored recovery point offsets follow each other without a gap, unless the topic is compacted: a gap
  means that something was lost or an offset changed, and the log ends there. (Other causes of a gap, a
  truncation inside a batch or a gap in the leader's log, move the recovery point past it at once.) Without a
  recovery point, as in a copied directory, gaps are taken for compaction's. If gaps do not mean loss, a
  segment is flushed before the next one begins: no segment can lose its end and be followed by another.
* Segments and indexes below the recovery point are not opened at all. A wrong index is noticed by the reader
  that uses it.

A crash during recovery leaves a directory that the next recovery treats the same way: segments behind a cut
are removed before the cut, everything is cut before it is indexed, indexed before it is flushed, and flushed
before the recovery point moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from logstore.config import TopicConfig
from logstore.errors import CorruptionError, LogstoreError, UnsupportedVersionError
from logstore.files import Files, Removals
from logstore.format.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from logstore.model import Role, TopicPartition
from logstore.partition.reading.view import Truncations
from logstore.partition.recovery.aside import keep_aside, keep_whole, set_aside
from logstore.partition.recovery.leftovers import SegmentFiles, clean_leftovers, list_files, without_deleted
from logstore.partition.recovery.loaded import LoadedLog, RecoveryReport
from logstore.partition.recovery.overflow import find_overflow, split_segment
from logstore.partition.recovery.tail import MOST_OFFSETS, Tail, index_tail
from logstore.partition.segments.active import ActiveSegment, open_active
from logstore.partition.segments.failed_flushes import has_failed_flush
from logstore.partition.segments.segment import OpenSegments, Segment
from logstore.partition.segments.walk import PIECE_BYTES
from logstore.partition.state import sidecars
from logstore.partition.state.context import LogContext
from logstore.partition.state.leader_epochs import LeaderEpochs
from logstore.partition.state.producer_replay import ProducerSource
from logstore.partition.state.producer_state import ProducerStates
from logstore.partition.state.sidecars import Stored, read_cuts, read_stored, write_cuts
from logstore.warning import inform, warn


@dataclass(slots=True)
class Loader:
    """Opens one partition directory. Use it once: :meth:`load`. The other methods are its steps."""

    files: Files
    directory: str
    config: TopicConfig
    cache: OpenSegments
    now_ms: int
    recovery_point: int
    is_dense: bool
    """Whether a gap in the offsets above the recovery point means loss. False after compaction, and for a
    directory without a recovery point, whose history is unknown."""
    log_start_offset: int | None
    """The offset from the checkpoint; None means the base in the first segment's name."""
    is_clean: bool
    accept_loss: bool = False
    on_loss: Callable[[int], None] = lambda end: None
    """Called before the log is cut at an offset below what was durable: see :func:`_store_loss`."""
    on_damage: Callable[[], None] = lambda: None
    """Called before more is cut than a write that was under way can have left."""
    has_recovery_point: bool = True
    """Whether a recovery point is stored. Without one it is unknown how much of the log was durable."""
    high_watermark: int | None = None
    """The stored high watermark."""
    report: RecoveryReport = field(init=False)
    epochs: LeaderEpochs = field(init=False)
    _stored: Stored = field(init=False)
    _found: SegmentFiles = field(init=False)
    _left: Files = field(init=False)
    """Removes files that were not part of the log."""
    _older_cuts: Removals | None = field(init=False, default=None)
    _is_closed: bool = field(init=False, default=False)
    """Whether there is the mark of a clean stop, even if the log turns out to be otherwise."""
    _is_settled: bool = field(init=False, default=False)
    """Whether nothing was found that is not durable."""
    _is_new: bool = field(init=False, default=False)
    _cut_offset: int = field(init=False, default=0)
    _file_size: int = field(init=False, default=0)
    """Of the last file that was looked at."""
    _is_torn: bool = field(init=False, default=False)
    """Whether the last file that was looked at ends within a batch."""
    _is_doubtful_cut: bool = field(init=False, default=False)
    """Whether cut bytes may have been durable."""
    _is_unwritten: bool = field(init=False, default=False)
    """Whether a flush has failed: readable data may not be on the disk and must be rewritten."""
    _quiet_ranges: dict[int, tuple[int, int]] = field(init=False, default_factory=dict)
    """The ranges that :class:`ProducerSource` need not read again, by segment."""
    _with_epochs: set[int] = field(init=False, default_factory=set)
    """The segments whose epochs are all noted."""

    def load(self, names: Sequence[str], stored: Stored) -> LoadedLog:
        """``names`` are those of the files in the directory; ``stored`` is what the small ones say.

        Raises:
            CorruptionError: data below the recovery point is damaged or missing.
            StorageError: a file could not be read or changed.
        """
        self.report, self._stored = RecoveryReport(was_clean=self.is_clean), stored
        self._is_closed = self.is_clean
        left, self._left = Removals.of(self.files)
        try:
            return self._load(names)
        finally:
            self._tell_deletion(left)

    def _load(self, names: Sequence[str]) -> LoadedLog:
        self._clean_leftovers(names)
        self._is_unwritten = has_failed_flush(self.files, self.directory, names)
        segments, log_end_offset = self._load_segments(self._found.bases)
        if self._stored.epochs is None and not self._was_all_read(segments):
            self._rebuild_epochs(segments)
        self._check_log_start(log_end_offset)
        log_start = max(self.log_start_offset or 0, segments[0].base_offset)
        if log_end_offset < log_start:
            segments, log_end_offset = self._start_over(segments, log_start)
        self._remove_deleted([base for base in self._found.bases if base < segments[0].base_offset])
        # In a log without records, the epoch of the last deleted record begins at the log end.
        self.epochs.keep_between(
            log_start if self.log_start_offset is not None else -1,
            log_end_offset + (log_end_offset == log_start),
        )
        if self.epochs.entries != (self._stored.epochs or ()):
            sidecars.write_epochs(self.files, self.directory, self.epochs)
        producers = self._load_producers(segments, log_end_offset)
        return LoadedLog(
            segments,
            log_start,
            log_end_offset,
            producers,
            self.epochs,
            self.report,
            self.is_clean or (self._is_settled and producers.snapshot_offset == log_end_offset),
            self._is_new,
            self.high_watermark,
            self._found.snapshots,
            self._is_unwritten,
            self._stored.role,
            self._stored.cuts,
        )

    def _clean_leftovers(self, names: Sequence[str] | None = None) -> None:
        durable_end = 0 if self.accept_loss else self.recovery_point
        self._found = clean_leftovers(
            self._left,
            self.directory,
            names,
            durable_end=durable_end,
            log_start=self.log_start_offset or 0,
        )
        self.report.lost_segments = self._found.lost

    def _tell_deletion(self, left: Removals) -> None:
        """Log one line about everything removed; a warning, if cut bytes may have been durable."""
        report, told = self.report, []
        if report.cut_bytes:
            names = [path.rpartition("/")[2] for path in report.kept_aside]
            kept = f"kept in {', '.join(names)}" if names else "all of them zero"
            told.append(f"cut {report.cut_bytes} bytes from offset {self._cut_offset} on, {kept}")
        for removals, what in (
            (self._older_cuts, "with the bytes of older cuts"),
            (left, "left by deletions, replacements and unfinished writes"),
        ):
            if removals is not None and removals.count:
                told.append(f"removed {removals.count} files, {removals.size_bytes} bytes, {what}")
        if told:
            tell = warn if self._is_doubtful_cut else inform
            tell("%s: opening %s", self.directory, "; ".join(told))

    def _check_log_start(self, log_end_offset: int) -> None:
        """Forget a log start beyond the end, unless a crash explains it: a crash may lose the last of the
        deleted records. Otherwise its file is damaged, and trusting it would remove the whole log."""
        start = self.log_start_offset
        if self.is_clean and start is not None and start > log_end_offset:
            warn("ignoring a log start of %d: the log ends at %d (%s)", start, log_end_offset, self.directory)
            self.log_start_offset = None

    # Segments

    def _load_segments(self, bases: list[int]) -> tuple[list[Segment], int]:
        """The segments and the log end offset. Starts again after a segment had to be split."""
        while True:
            overflowed = find_overflow(self.files, bases, self._sealed) if len(bases) > 1 else None
            if overflowed is None:
                try:
                    return self._load_clean(bases) or self._recover(bases)
                except _OverflowError as error:
                    overflowed = int(error.args[0])
            split_segment(self.files, self.directory, overflowed)
            self.report.split_segments += 1
            self._clean_leftovers()
            bases = self._found.bases

    def _sealed(self, base: int) -> Segment:
        return Segment(self.files, self.directory, base, self.cache)

    def _load_clean(self, bases: list[int]) -> tuple[list[Segment], int] | None:
        """Open the active segment after a clean stop, reading only its last few kilobytes. None if the log
        does not end at the recovery point: then it was not a clean stop."""
        if self.is_clean and bases:
            self._forget_read()
            active = open_active(self._new_active(bases[-1]))
            ended_at = self.recovery_point if self.has_recovery_point else None
            end, fault = self._index_tail(active, max(self.recovery_point, bases[-1]), ended_at=ended_at)
            if fault is None and end == self.recovery_point:
                return [*map(self._sealed, bases[:-1]), active], end
        self.is_clean = self.report.was_clean = False
        return None

    def _recover(self, bases: list[int]) -> tuple[list[Segment], int]:
        """Check everything above the recovery point and cut the log at the first bad batch."""
        self._forget_read()
        found = bases
        bases = without_deleted(found, self.log_start_offset or 0)
        if not bases:
            return self._begin()
        first = max(sum(base <= self.recovery_point for base in bases) - 1, 0)
        segments = [self._sealed(base) for base in bases[:first]]
        if segments and bases[first] == self.recovery_point:
            segments[-1] = self._finish_seal(bases[first - 1])
        for number, base in enumerate(bases[first:], first):
            active = open_active(self._new_active(base))
            rest = bases[number + 1 :]
            reach = rest[0] if rest else base + MOST_OFFSETS
            ended_at = None if rest or not self.has_recovery_point else self.recovery_point
            end, fault = self._index_tail(active, max(self.recovery_point, base), reach, ended_at)
            self.report.recovered_segments += 1
            if not rest and fault is None and end == self.recovery_point and self._is_durable(active):
                self._is_settled = active.has_rest = True
                return [*segments, active], end
            if fault is not None or not rest or not self._continues(end, rest[0]):
                self._check_loss(active, end, fault)
                if end < min(self.recovery_point, self.log_start_offset or 0):
                    return self._recover_below_start(found, end)
                self._cut_offset = end
                if rest or (fault is not None and not self._is_torn):
                    self.on_damage()
                self._set_aside(rest)
                self._cut(active, is_torn_end=self.has_recovery_point and end >= self.recovery_point)
                self._write_anew(active)
                return [*segments, active], end
            self._write_anew(active)
            segments.append(active.seal())
            segments[-1].flush()
        raise AssertionError("a log has at least one segment")

    def _is_durable(self, active: ActiveSegment) -> bool:
        """Whether a log that ends at its recovery point is as the checkpoint has left it. The cut of a file
        that ends there already (:meth:`_cut`) can then wait until something is appended."""
        return (
            self.has_recovery_point
            and not self._is_unwritten
            and not active.is_shared
            and active.indexes.are_stored
            and self._file_size == active.size_bytes
        )

    def _recover_below_start(self, bases: list[int], end: int) -> tuple[list[Segment], int]:
        """What was durable is lost, that is accepted, and all that is left lies below the log start: as
        where a backup from before a deletion took the directory's place. It is the log from now on."""
        warn(
            "%s: ignoring the log start of %d, since the log that is left ends at %d",
            self.directory,
            self.log_start_offset,
            end,
        )
        self.log_start_offset = None
        self.report.recovered_segments = 0
        segments, log_end_offset = self._recover(bases)
        self._rebuild_epochs(segments)
        return segments, log_end_offset

    def _remove_deleted(self, bases: list[int]) -> None:
        """Remove the files of the segments that were left out. Retention and erasures look for records to
        remove in the log, and these are not in it."""
        for base in bases:
            self._remove_files(self._sealed(base), self._left)
        if bases:
            self.files.flush_directory(self.directory)

    def _finish_seal(self, base: int) -> Segment:
        """The segment in front of one that begins at the recovery point, with complete indexes. A crash
        during a roll may have left its last index entries unwritten or unflushed, while a checkpoint right
        before the roll says that there is nothing to read. Damaged records are left to their readers. Its
        leader epochs are not noted: the history already has later ones. If the disk cannot make the indexes
        durable, that is an error, because no later recovery would complete them."""
        active = open_active(self._new_active(base))
        epochs, self.epochs = self.epochs, LeaderEpochs(self.epochs.entries)
        try:
            _, fault = self._index_tail(active, self.recovery_point)
        except LogstoreError:
            return self._sealed(base)
        finally:
            self.epochs = epochs
            self._with_epochs.discard(base)
        if fault is not None:
            return self._sealed(base)
        if self._is_unwritten:
            active.indexes.distrust_files()
        sealed = active.seal()
        sealed.flush()
        return sealed

    def _continues(self, end: int, next_base: int) -> bool:
        """Whether a segment that ends at ``end`` may be followed by one at ``next_base``."""
        return end == next_base or (end < next_base and not self.is_dense)

    def _begin(self) -> tuple[list[Segment], int]:
        """Begin with an empty segment."""
        base = self.log_start_offset or 0
        if self.recovery_point > base and not self.accept_loss:
            raise CorruptionError(
                f"data up to offset {self.recovery_point} was durable, but there is no segment. Restore the "
                "files, or reopen with accept_loss=True to start with an empty log",
                path=self.directory,
                base_offset=base,
            )
        if self.recovery_point > base:
            self.on_loss(base)
        segment = self._new_active(base)
        segment.create(flush=self.is_clean)  # else settle() flushes the directory
        self._is_new = True
        self.recovery_point = min(self.recovery_point, base)
        self.report.recovered_segments += 1
        return [segment], base

    def _check_loss(self, segment: ActiveSegment, end: int, fault: CorruptionError | None) -> None:
        """
        Raises:
            CorruptionError: the log ends below its recovery point, and the loss is not accepted.
        """
        if end >= self.recovery_point or self.accept_loss:
            return
        reason = str(fault.reason) if fault is not None else "the file ends early"
        raise CorruptionError(
            f"data up to offset {self.recovery_point} was durable, but the log can only be read up to {end}: "
            f"{reason}. Restore the file, or reopen with accept_loss=True to cut the log there",
            path=segment.path,
            position=segment.size_bytes,
            base_offset=end,
        )

    def _cut(self, segment: ActiveSegment, *, is_torn_end: bool) -> None:
        """Cut the file behind its last good batch. The cut bytes are kept aside first: all of them if they
        may have been durable, else up to :data:`~.aside.MAX_KEPT_BYTES`.

        A file that ends there already is cut too. On disk, its last block may hold whole batches behind the
        end that the power cut left. The next writer's records replace them; but if a second power cut keeps
        the new size and not the new bytes, the old batches would be back. Cutting makes the system write
        zeros.
        """
        if self._file_size > segment.size_bytes:
            self.report.cut_bytes += self._file_size - segment.size_bytes
            self._older_cuts, counted = Removals.of(self.files)
            keep, files = (keep_aside, counted) if is_torn_end else (keep_whole, self.files)
            kept = keep(files, self.directory, segment.base_offset, segment.log_file, segment.size_bytes)
            self._is_doubtful_cut |= kept is not None and not is_torn_end
            if kept is not None:
                self.report.kept_aside.append(kept)
        if self._cut_offset < self.recovery_point:
            self.on_loss(self._cut_offset)
        segment.cut_to_size()

    def _set_aside(self, bases: list[int]) -> None:
        """Take the segments behind a cut out of the log, because their records no longer follow on anything.
        The last one goes first: a crash in between leaves no hole."""
        for base in reversed(bases):
            segment = self._sealed(base)
            if segment.size_bytes:
                self.report.cut_bytes += segment.size_bytes
                self._is_doubtful_cut = True
                self.report.kept_aside.append(set_aside(self.files, self.directory, base))
            self._remove_files(segment, self.files)
            self.files.flush_directory(self.directory)

    def _remove_files(self, segment: Segment, files: Files) -> None:
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            if files.is_file(segment.path_of(suffix)):
                files.remove(segment.path_of(suffix))

    def _write_anew(self, segment: ActiveSegment) -> None:
        if self._is_unwritten:
            segment.rewrite()

    def _start_over(self, segments: list[Segment], log_start: int) -> tuple[list[Segment], int]:
        """Start again at the log start, because the log ends below it: all its records were deleted."""
        active = self._new_active(log_start)
        active.create()
        self._is_new = True
        for segment in segments:
            self._remove_files(segment, self._left)
        self.files.flush_directory(self.directory)
        self.epochs.clear()
        return [active], log_start

    # One segment

    def _new_active(self, base: int) -> ActiveSegment:
        return ActiveSegment(
            self.files,
            self.directory,
            base,
            self.cache,
            config=self.config,
            created_ms=self.now_ms,
        )

    def _index_tail(
        self,
        segment: ActiveSegment,
        keep_below: int,
        reach: int | None = None,
        ended_at: int | None = None,
    ) -> tuple[int, CorruptionError | None]:
        """Check and index the part above ``keep_below``: see :func:`.tail.index_tail`. Sets the segment's
        size to the end of the last good batch; returns the offset after it, and the error that stopped the
        walk before the file's end."""
        tail, fault, scanned_bytes, quiet_range, self._file_size = index_tail(
            segment,
            partial(
                Tail,
                segment,
                self.epochs,
                self.recovery_point,
                is_dense=self.is_dense,
                is_closed=self._is_closed,
            ),
            keep_below,
            are_indexes_sound=self.is_clean,
            reach=reach,
            ended_at=ended_at,
        )
        self.report.scanned_bytes += scanned_bytes
        if tail.overflows:
            raise _OverflowError(segment.base_offset)
        segment.use_contents(tail.position, tail.first_timestamp_ms)
        self._quiet_ranges[segment.base_offset] = quiet_range
        if quiet_range[0] == 0:
            self._with_epochs.add(segment.base_offset)
        self._is_torn = tail.is_torn
        return tail.end_offset, fault

    # Epochs

    def _forget_read(self) -> None:
        """Go back to what is stored, before the segments are read from the first one on."""
        self.epochs = LeaderEpochs(self._stored.epochs or ())
        self._with_epochs.clear()
        self._quiet_ranges.clear()

    def _was_all_read(self, segments: list[Segment]) -> bool:
        """Whether every batch of the log was just read, and its epoch noted."""
        return all(segment.base_offset in self._with_epochs for segment in segments)

    def _rebuild_epochs(self, segments: list[Segment]) -> None:
        """Rebuild the missing epoch history from the batches. Cost: all headers of the log are read."""
        self.epochs.clear()
        for segment in segments:
            for piece in segment.walk(0, segment.size_bytes, check=False, piece_bytes=PIECE_BYTES):
                self.epochs.note([header for _, header in piece.batches])

    # Producers

    def _load_producers(self, segments: list[Segment], log_end: int) -> ProducerStates:
        """Load the newest good snapshot and replay the batches above it.

        Replay also completes the transaction indexes above the recovery point, so after a crash it begins at
        or below that, or at the first segment: only its snapshot knows the producers of deleted batches.
        Without any snapshot an empty log has no producers and needs none; after a clean stop there were none,
        or a broker older than snapshots wrote the log."""
        offsets, floor = self._found.snapshots, segments[0].base_offset
        replay_from = log_end if self.is_clean else self._cut_transactions(segments, log_end)
        if not offsets and (self.is_clean or log_end == floor):
            producers = ProducerStates()
            producers.clear(log_end)
            producers.snapshot_offset = log_end if log_end == floor else -1
            return producers
        newest = min(max(replay_from, floor), log_end)
        for stale in [offset for offset in offsets if not floor <= offset <= newest]:
            self.files.remove(sidecars.snapshot_path(self.directory, stale))
            offsets.remove(stale)
        role = self._stored.role
        source = ProducerSource(
            self.files,
            self.directory,
            segments,
            log_end,
            self.now_ms,
            self.accept_loss,
            self._quiet_ranges,
            None if role is Role.ALONE else sidecars.replicated_below(role, self.high_watermark, 0, log_end),
        )
        return source.rebuild(offsets, store_found=True)

    def _cut_transactions(self, segments: list[Segment], log_end: int) -> int:
        """Drop the entries of the transaction indexes above the recovery point and the log end; returns from
        where replay must write them again. A damaged index is removed whole."""
        replay_from = self.recovery_point
        for number, segment in enumerate(segments, 1):
            if segment.base_offset not in self._found.with_aborted:
                continue
            if number == len(segments) or segments[number].base_offset > self.recovery_point:
                try:
                    segment.read_transaction_index().truncate_to(min(self.recovery_point, log_end))
                except (CorruptionError, UnsupportedVersionError):  # an unknown version is garbage too
                    self.files.remove(segment.path_of(TRANSACTION_INDEX_SUFFIX))
                    replay_from = min(replay_from, segment.base_offset)
        return replay_from


class _OverflowError(Exception):
    """The segment of this base has offsets out of reach of its indexes: it must be split."""


def _store_loss(context: LogContext, directory: str, partition: TopicPartition, end: int) -> None:
    """Let the checkpoints promise nothing behind ``end``, durably: before the log is cut there, and others'
    records are called durable. The recovery point comes last. A crash in front of it leaves the loss to be
    reported, and accepted, again."""
    home, cuts = context.home, Truncations(read_cuts(context.files, directory))
    home.note_loss()
    cuts.count += 1
    cuts.note(end)
    write_cuts(context.files, directory, cuts.cuts)
    if (home.log_start(partition) or 0) > end:
        home.store_log_start(partition, None)
    home.lower_cleaner_offset(partition, end)
    home.lower_high_watermark(partition, end)
    home.lower_recovery_point(partition, end)


def load_log(
    context: LogContext,
    directory: str,
    partition: TopicPartition,
    config: TopicConfig,
    *,
    is_clean: bool,
    accept_loss: bool = False,
    is_foreign: bool = False,
) -> LoadedLog:
    """Load a partition's directory, and recover it if needed.

    Above the recovery point a log that was never compacted has no gaps, so a gap there is damage. This is not
    assumed if the log ``is_foreign`` (a broker wrote it, under unknown settings).

    Raises:
        CorruptionError: durable data is damaged or missing.
        StorageError: the disk refused.
    """
    home = context.home
    names = list_files(context.files, directory)
    stored = read_stored(context.files, directory, frozenset(names))
    offsets = home.stored(partition, config, stored.role)
    may_have_gaps = offsets.may_have_gaps or is_foreign
    loader = Loader(
        files=context.files,
        directory=directory,
        config=config,
        cache=context.open_segments,
        now_ms=context.clock.now_ms(),
        recovery_point=offsets.recovery_point or 0,
        is_dense=offsets.recovery_point is not None and not may_have_gaps,
        log_start_offset=offsets.log_start,
        is_clean=is_clean,
        accept_loss=accept_loss,
        on_loss=partial(_store_loss, context, directory, partition),
        on_damage=home.note_damage,
        has_recovery_point=offsets.recovery_point is not None,
        high_watermark=offsets.high_watermark,
    )
    loaded = loader.load(names, stored)
    loaded.may_have_gaps = may_have_gaps
    if home.has_lost:  # the cut is noted there
        loaded.cuts = read_cuts(context.files, directory)
    if loaded.log_start_offset < (offsets.log_start or 0):  # it was ignored as damaged
        home.store_log_start(partition, None)
    loaded.leader_epoch = max(loaded.epochs.latest_epoch, 0)
    # A crash may have taken the end: other records may take its offsets.
    if loaded.role is not Role.ALONE:
        home.lower_high_watermark(partition, loaded.log_end_offset)
        return loaded
    is_first = loaded.is_new and offsets.recovery_point is None
    if (home.is_copy or not loaded.report.was_clean) and not is_first:  # records that were read may be gone
        latest = max([loaded.leader_epoch, *(entry.epoch for entry in stored.epochs or ())])
        if latest >= home.leader_epoch or not home.has_begun_epoch:
            loaded.leader_epoch = home.epoch_after_crash(latest)
    loaded.leader_epoch = max(loaded.leader_epoch, home.leader_epoch)
    return loaded
