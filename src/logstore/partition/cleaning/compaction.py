"""Compacts one log: keeps the latest record for each key.

A compaction consists of rounds. Each round fills an offset map from the dirty part of the log, as far as the
memory allows. It then goes over all segments from the first to the end of the mapped part: neighbours are
written into one segment, batch by batch without the superseded records, and the new segment replaces the old
ones. Then the cleaner's offset is stored, and the next round goes on behind it.

Readers and appends go on: the old segments do not change, and the log's lock is taken only for each swap.
Every batch is checked before it counts or is copied. Damage ends the compaction, and the segments that it was
about to replace stay as they are. The same is true if the log is closed or its topic deleted, if its end is
cut, or if a callback raises. Segments replaced before that stay replaced and are consistent; the next
compaction begins at the stored offset.

Before the first round the whole log is made durable, with its producers' state as of its end: markers and
batches that go are then below the recovery point, and no recovery needs them.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence

from logstore.errors import ClosedError, CorruptionError, RetriableError, StorageError, UsageError
from logstore.format.batch import decode_batch, records_section
from logstore.format.control import ControlType, decode_control_record
from logstore.format.header import CONTROL_BIT, HEADER_BYTES, MAGIC, BatchHeader, decode_header
from logstore.format.index import AbortedTransactions
from logstore.format.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from logstore.format.offset_map import SEED_BYTES, OffsetMap, bytes_for
from logstore.model import NO_TIMESTAMP_MS, Bytes
from logstore.partition.cleaning.cleaned_batches import (
    BatchCleaner,
    CleanedTransactions,
    CleaningCounts,
    CleaningRules,
    last_of_producers,
)
from logstore.partition.cleaning.cleaned_group import CountedOutput, GroupCopy
from logstore.partition.cleaning.cleaned_segment import CleanedSegment
from logstore.partition.cleaning.dirtiness import CleanableFacts, Dirtiness, plan_cleaning
from logstore.partition.cleaning.grouping import GroupingFacts, plan_groups
from logstore.partition.cleaning.joined_batches import JoiningRules, Output
from logstore.partition.cleaning.reports import (
    CompactionProgress,
    CompactionReport,
    OnCompactionProgress,
    Throttle,
)
from logstore.partition.cleaning.rewriting import Rewriting
from logstore.partition.cleaning.source import Source, SourcePiece, sources_below
from logstore.partition.encoding.planning import compression_level, largest_batch_bytes
from logstore.partition.reading.view import LogView
from logstore.partition.segments.segment import Segment
from logstore.partition.writing.writer import LogWriter
from logstore.warning import inform

# What is dirty ----------------------------------------------------------------------------------------------


def find_dirtiness(log: LogWriter, view: LogView, *, rolls: bool = False) -> Dirtiness:
    """What may be cleaned of the log in this view; with ``rolls``, as if its active segment were sealed.
    Cost: if a lag is set, it reads at most the largest timestamp and one batch header of each dirty sealed
    segment."""
    context, end = log.context, view.log_end_offset
    segments = [
        CleanableFacts(
            segment.base_offset,
            view.next_base(number),
            view.size_of(number),
            segment.newest_ms,
            _oldest_of(segment),
        )
        for number, segment in enumerate(view.segments)
    ]
    if rolls:
        segments.append(CleanableFacts(end, end, 0, lambda: NO_TIMESTAMP_MS, lambda: NO_TIMESTAMP_MS))
    return plan_cleaning(
        segments,
        config=log.core.config,
        log_start_offset=view.log_start_offset,
        log_end_offset=view.log_end_offset,
        last_stable_offset=view.last_stable_offset,
        stored_offset=context.home.cleaner_offset(log.partition),
        now_ms=context.clock.now_ms(),
    )


def _oldest_of(segment: Segment) -> Callable[[], int]:
    def oldest_ms() -> int:
        header = segment.read_at(0, HEADER_BYTES)
        return decode_header(header).max_timestamp_ms if header else NO_TIMESTAMP_MS

    return oldest_ms


def _marker_of(buffer: Bytes, at: int, header: BatchHeader) -> ControlType | None:
    """ABORT or COMMIT; None for any other control batch, and for one that compaction has emptied."""
    if not header.record_count:
        return None
    kind = decode_control_record(decode_batch(buffer, at, header)[0]).control_type
    return kind if kind is ControlType.ABORT or kind is ControlType.COMMIT else None


class Compaction(Rewriting):
    """One call of :meth:`Log.compact`. Used once, by the thread that has the log's turn."""

    def __init__(
        self,
        log: LogWriter,
        *,
        now: bool,
        dry_run: bool,
        map_bytes: int,
        throttle: Throttle | None,
        on_progress: OnCompactionProgress | None,
    ) -> None:
        super().__init__(log)
        self._is_urgent = now
        self._is_dry_run = dry_run
        self._map_bytes = map_bytes
        self._throttle = throttle
        self._on_progress = on_progress
        self._counts = CleaningCounts()
        self._round_count = self._key_count = self._done_bytes = self._total_bytes = 0
        self._read_bytes = self._kept_bytes = self._written_bytes = self._saved_segments = 0
        self._replaced_count = self._removed_count = 0

    def run(self) -> CompactionReport:
        """Run all rounds, and count what they did."""
        counts = self._log.core.counts
        try:
            report = self._run()
        except (ClosedError, RetriableError, UsageError):
            raise  # the log is gone or changed meanwhile, or the call was wrong: nothing has failed
        except Exception:
            counts.compaction_failure_count += 1
            raise
        if report.round_count and not self._is_dry_run:
            counts.note_compaction(report.read_bytes, report.written_bytes, report.elapsed_ms / 1000)
        return report

    def _run(self) -> CompactionReport:
        clock = self._context.clock
        started_ms = clock.monotonic_ms()
        view, dirtiness = self._prepare()
        self._truncation_count = view.truncation_count
        size_bytes = sum(view.size_of(number) for number in range(len(view.segments)))
        segment_count = len(view.segments)
        dirty, is_wanted = dirtiness.first_dirty_offset, self._is_wanted(view, dirtiness)
        del view  # it would keep the files of replaced segments open
        if is_wanted:
            try:
                dirty = self._clean(dirtiness)
            finally:
                self._tell_deletion()
        return CompactionReport(
            partition=self._log.partition,
            is_dry_run=self._is_dry_run,
            round_count=self._round_count,
            key_count=self._key_count,
            first_dirty_offset_before=dirtiness.first_dirty_offset,
            first_dirty_offset_after=dirty,
            segment_count_before=segment_count,
            segment_count_after=segment_count - self._saved_segments,
            size_bytes_before=size_bytes,
            size_bytes_after=size_bytes - self._read_bytes + self._kept_bytes,
            read_bytes=self._read_bytes,
            kept_bytes=self._kept_bytes,
            written_bytes=self._written_bytes,
            read_batch_count=self._counts.read_batches,
            kept_batch_count=self._counts.kept_batches,
            rewritten_batch_count=self._counts.rewritten_batches,
            joined_batch_count=self._counts.joined_batches,
            read_record_count=self._counts.read_records,
            kept_record_count=self._counts.kept_records,
            kept_tombstone_count=self._counts.kept_tombstones,
            removed_tombstone_count=self._counts.removed_tombstones,
            removed_marker_count=self._counts.removed_markers,
            removed_keyless_count=self._counts.removed_keyless,
            removed_aborted_count=self._counts.removed_aborted,
            elapsed_ms=clock.monotonic_ms() - started_ms,
        )

    def _tell_deletion(self) -> None:
        """Log one line, even for a compaction that ended early: the replaced records are gone."""
        if self._replaced_count and not self._is_dry_run:
            inform(
                "%s: compaction removed %d records, %d bytes: superseded, aborted, or old tombstones",
                self._log.partition,
                self._removed_count,
                self._read_bytes - self._kept_bytes,
            )

    def _prepare(self) -> tuple[LogView, Dirtiness]:
        """Roll if needed, find what to clean, and if there is something, make everything durable."""
        log, rolls = self._log, self._is_urgent and self._is_dry_run
        with log.guard.own_lock(), log.guard as core:
            if not core.config.compacts:
                raise UsageError(f"{log.partition} is not compacted: cleanup_policy must contain compact")
            log.gathering.drain_locked()
            if self._is_urgent and not rolls and core.active.size_bytes:
                core.roll(core.log_end_offset, self._context.clock.now_ms())
                core.publish()
            view = core.view
        dirtiness = find_dirtiness(log, view, rolls=rolls)
        if self._is_dry_run or not self._is_wanted(view, dirtiness):
            return view, dirtiness
        log.durability.checkpoint()
        view = core.view
        return view, find_dirtiness(log, view)

    def _is_wanted(self, view: LogView, dirtiness: Dirtiness) -> bool:
        if not self._is_urgent:
            return dirtiness.is_eligible
        return any(source.size_bytes for source in self._sources(view, dirtiness.first_uncleanable_offset))

    def _sources(self, view: LogView, end: int) -> list[Source]:
        return sources_below(view, end, rolls=self._is_urgent and self._is_dry_run)

    # Rounds

    def _clean(self, dirtiness: Dirtiness) -> int:
        """Run round after round up to the end. Returns the offset up to which the log is then clean.

        The cleaner's offset is stored before the first batch goes: from then on the log may have gaps.
        """
        dirty, end = dirtiness.first_dirty_offset, dirtiness.first_uncleanable_offset
        home, partition = self._context.home, self._log.partition
        if dirtiness.is_stored_offset_wrong or home.cleaner_offset(partition) is None:
            self._store_offset(dirty)
        map_bytes = min(self._map_bytes, bytes_for(end - dirty))  # there are no more keys than offsets
        # A secret seed, so that keys cannot be chosen to collide: this generator's output is never shown.
        offsets = OffsetMap(map_bytes, self._context.random.randbytes(SEED_BYTES))
        while True:
            dirty, is_full = self._round(offsets, dirty, end)
            if not is_full or self._is_dry_run:
                return dirty
            offsets.clear()

    def _round(self, offsets: OffsetMap, dirty: int, end: int) -> tuple[int, bool]:
        """Fill the map from ``dirty`` on and clean the mapped part. Returns where that ends, and whether the
        map was full before ``end``."""
        self._check()
        view = self._core.view
        self._round_count += 1
        self._done_bytes = 0
        sources = self._sources(view, end)
        waiting = [source for source in sources if source.next_base_offset > dirty]
        self._total_bytes = sum(source.size_bytes for source in [*sources, *waiting])
        aborted = self._aborted_in(view)
        mapped_end, is_full = self._fill(offsets, waiting, CleanedTransactions(aborted, dirty), dirty, end)
        self._key_count += offsets.count
        sources = self._sources(view, mapped_end)
        del view, waiting  # see below
        rules = self._rules(mapped_end)
        cleaner = BatchCleaner(offsets, CleanedTransactions(aborted), rules, self._counts)
        joining = JoiningRules(mapped_end, self._join_limit_bytes(), rules.producers, rules.level_of)
        facts = [self._grouping_of(source) for source in sources]
        groups = [sources[group.start : group.stop] for group in plan_groups(facts, config=self._core.config)]
        groups.reverse()
        sources.clear()  # a replaced segment is then referred to by readers only, and its files are closed
        while groups:
            self._clean_group(groups.pop(), cleaner, joining)
        self._store_offset(mapped_end)
        return mapped_end, is_full

    def _rules(self, end: int) -> CleaningRules:
        config = self._core.config
        with self._log.guard.lock:
            producers = last_of_producers(self._core.producers.active_producers())
        return CleaningRules(
            end,
            self._context.clock.now_ms(),
            config.delete_retention_ms,
            producers,
            lambda codec: compression_level(config, codec),
        )

    def _join_limit_bytes(self) -> int:
        return min(self._context.config.batch_bytes, largest_batch_bytes(self._core.config))

    def _grouping_of(self, source: Source) -> GroupingFacts:
        segment, files = source.segment, self._context.files
        sizes = []
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            size_bytes = 0
            with contextlib.suppress(StorageError):  # no such file, or the segment was just deleted
                size_bytes = files.size_bytes(segment.path_of(suffix))
            sizes.append(size_bytes)
        return GroupingFacts(segment.base_offset, source.next_base_offset, source.size_bytes, *sizes)

    def _store_offset(self, offset: int) -> None:
        """Store the cleaner's offset, under the lock: a truncation lowers it and must not be overtaken."""
        if self._is_dry_run:
            return
        with self._log.guard.own_lock(), self._log.guard:
            self._check()
            self._log.gathering.write_before_waiting_locked()
            self._context.home.store_cleaner_offset(self._log.partition, offset)

    def _aborted_in(self, view: LogView) -> AbortedTransactions:
        """All aborted transactions in the indexes. Each index is read once in a round."""
        found = AbortedTransactions()
        for segment in view.segments:
            with self._watching(segment):
                index = segment.read_transaction_index()
            try:
                found = found.joined(index.entries)
            except CorruptionError as error:
                raise error.located(index.path) from None
        return found

    # The map

    def _fill(
        self,
        offsets: OffsetMap,
        sources: Sequence[Source],
        transactions: CleanedTransactions,
        dirty: int,
        end: int,
    ) -> tuple[int, bool]:
        """Put the keys from ``dirty`` to ``end`` into the map. Returns the offset up to which it knows all
        keys, and whether it is full. It also ends early before a batch that reaches across ``end``."""
        met = dirty
        for source in sources:
            for piece in self._reading(source, dirty):
                for at, header in piece.batches:
                    if header.last_offset < dirty:
                        continue
                    if header.next_offset > end:
                        begins_behind = header.base_offset >= end and header.magic == MAGIC
                        return self._known(offsets, end if begins_behind else met), False
                    try:
                        is_taken = self._put(offsets, transactions, piece.buffer, at, header, dirty)
                    except CorruptionError as error:
                        raise source.place(error, piece, at, header) from None
                    if not is_taken:
                        return max(offsets.latest_offset + 1, dirty), True
                    met = header.next_offset
            met = min(source.next_base_offset, end)
        return self._known(offsets, max(met, dirty)), False

    def _known(self, offsets: OffsetMap, end: int) -> int:
        """Tell the map that it knows everything below ``end``: gaps must not hold up the next round."""
        if end > 0:
            offsets.advance_to(end - 1)
        return end

    def _put(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        buffer: Bytes,
        at: int,
        header: BatchHeader,
        dirty: int,
    ) -> bool:
        """Put the keys of a batch into the map; returns whether all of them had room. Aborted and control
        records are left out."""
        if header.attributes & CONTROL_BIT:
            kind = _marker_of(buffer, at, header)
            if kind is not None:
                transactions.meet_marker(header, kind)
        elif header.magic != MAGIC:
            records = [record for record in decode_batch(buffer, at, header) if record.offset >= dirty]
            keys = [record.key for record in records]
            if offsets.put_keys(keys, [record.offset for record in records]) < len(keys):
                return False
        elif not transactions.meet_data(header) and header.record_count:
            section, start, stop = records_section(buffer, at, header)
            count = header.record_count
            where = header.base_offset, header.last_offset_delta, dirty
            if offsets.put_section(section, start, stop, count, *where) < count:
                return False
        offsets.advance_to(header.last_offset)
        return True

    # Groups

    def _clean_group(self, group: Sequence[Source], cleaner: BatchCleaner, rules: JoiningRules) -> None:
        """Write some neighbours into one segment, and replace them by it."""
        copy = GroupCopy(
            group,
            cleaner,
            rules,
            read=lambda source, end: self._reading(source, end=end),
            begin=lambda: self._begin_output(group),
            wrote=self._step,
        )
        try:
            with self._watching(group[-1].segment):  # its transaction index is read too
                copy.run()
            if isinstance(copy.output, CleanedSegment):
                self._replace(group, copy.output)
        except BaseException:
            if isinstance(copy.output, CleanedSegment):
                self._discard(copy.output)
            raise
        source_bytes = sum(source.size_bytes for source in group)
        self._read_bytes += source_bytes
        self._kept_bytes += source_bytes if copy.output is None else copy.output.size_bytes
        self._written_bytes += 0 if copy.output is None else copy.output.written_bytes
        self._saved_segments += len(group) - 1
        self._replaced_count += copy.output is not None
        self._removed_count = self._counts.read_records - self._counts.kept_records

    def _begin_output(self, group: Sequence[Source]) -> Output:
        if self._is_dry_run:
            return CountedOutput()
        source_bytes = sum(source.size_bytes for source in group)
        return self._new_segment(group[0].segment.base_offset, source_bytes)

    def _replace(self, group: Sequence[Source], output: CleanedSegment) -> None:
        with self._watching(group[-1].segment):
            modified_ms = group[-1].segment.modified_ms
        kinds = output.finish(modified_ms)
        log = self._log
        with log.guard.own_lock(), log.guard as core:
            self._check()
            old = [source.segment for source in group]
            log.gathering.write_before_waiting_locked()
            log.removal.schedule_locked(core.replace_segments(old, output.base_offset, kinds))
            log.waits.notify(log.core.view)

    # Steps

    def _reading(self, source: Source, offset: int = 0, end: int | None = None) -> Iterator[SourcePiece]:
        """The pieces of a source, from one that begins at or below ``offset``, up to position ``end``."""
        with self._watching(source.segment):
            pieces = source.pieces(source.segment.position_before(offset), end)
        while True:
            with self._watching(source.segment):
                piece = next(pieces, None)
            if piece is None:
                return
            self._done_bytes += piece.end
            self._step(piece.end)
            yield piece

    @contextlib.contextmanager
    def _watching(self, segment: Segment) -> Iterator[None]:
        """Turn an error in reading the segment into a RetriableError if it comes from a change of the log."""
        try:
            yield
        except (CorruptionError, StorageError) as error:
            self._check()
            is_gone = segment not in self._core.view.segments
            if is_gone and isinstance(error, StorageError) and error.errno == errno.ENOENT:
                raise self._changed("its beginning was deleted") from error
            raise

    def _step(self, step_bytes: int) -> None:
        """Check whether to go on, throttle, and report progress, after some bytes were read or written.

        Raises:
            ClosedError, RetriableError: the log is being closed, or was truncated meanwhile.
        """
        self._check()
        if self._throttle is not None and step_bytes:
            self._throttle(step_bytes)
        if self._on_progress is not None and step_bytes:
            total_bytes = max(self._total_bytes, self._done_bytes)
            self._on_progress(
                CompactionProgress(self._log.partition, self._round_count, self._done_bytes, total_bytes)
            )

    def _end_was_cut(self) -> RetriableError:
        return self._changed("its end was cut")

    def _changed(self, what: str) -> RetriableError:
        return RetriableError(f"{self._log.partition} was compacted while {what}; call again")
