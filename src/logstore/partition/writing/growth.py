"""The growth of a log: batches at the end of its active segment, and new segments.

A change that fails leaves everything as it was, with one exception: see
:mod:`~logstore.partition.writing.core`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import NamedTuple, NoReturn

from logstore.errors import OffsetOutOfRangeError, RecordTooLargeError, RetriableError, StorageError
from logstore.format.batch import NewBatch, place_batch
from logstore.format.header import BatchHeader
from logstore.format.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
)
from logstore.model import AppendOrigin, TopicPartition
from logstore.partition.encoding.planning import check_reach
from logstore.partition.encoding.row_encoder import place_batches
from logstore.partition.segments.active import ActiveSegment
from logstore.partition.segments.indexes import MAX_RELATIVE_OFFSET
from logstore.partition.segments.planned import PlannedAppend
from logstore.partition.state.leader_epochs import LeaderEpochs
from logstore.partition.state.producer_replay import add_to_plan
from logstore.partition.state.producer_state import ProducerAppend, RememberedBatch
from logstore.partition.writing.log_state import LogState

MAX_OFFSET = 2**63 - 1
"""The largest log end offset; no record has it."""

_CHECK_AGAIN_MS = 10
"""A write checks that the directory is still ours, if the last one to do so was so long ago. Another writer
needs longer than that to open a directory, and its appends must not be overwritten."""


class _MustWaitError(RetriableError):
    """The change must wait for an fsync, but this thread may not wait. Nothing was changed."""


class AppendResult(NamedTuple):
    """The offsets that an append got."""

    base_offset: int
    last_offset: int
    timestamp_ms: int
    """The largest timestamp of the batches as stored."""
    is_duplicate: bool = False
    """True if nothing was appended: the same batch is there already, at these offsets."""


def beyond_last(partition: TopicPartition, offset: int) -> OffsetOutOfRangeError:
    """The error of an append that would need this offset."""
    return OffsetOutOfRangeError(
        f"offset {offset} is beyond the largest offset of a log; {partition} is full for good: append to "
        "another partition or topic"
    )


class LogGrowth(LogState):
    """The appending half of a log's core."""

    flush_soon: Callable[[], None]
    """Schedules a flush in the background. Set by the writer, whose parts know each other."""
    is_flush_coming = False
    """Whether one is scheduled."""
    interrupt: BaseException | None = None
    """What came while the system wrote, for the end of the append."""
    harmless: BaseException | None = None
    """An error that leaves nothing half-way, whatever its type."""
    unbegun: BaseException | None = None
    """One that came before a write had changed anything."""

    # Appending

    def append(self, batches: Sequence[NewBatch], now_ms: int) -> AppendResult:
        """Place encoded batches at the log end and write them, a segment's worth at a time. Raises what
        :meth:`write` does."""
        result = self._write_batches(batches, now_ms)
        self.after_append()
        return result

    def append_gathered(self, batches: Sequence[NewBatch], now_ms: int, clear: Callable[[], object]) -> None:
        """The same for rows that have gathered. They are cleared when they are written, also if a signal
        handler has raised an error since; and before anybody is told, who may ask where the log ends."""
        end_offset = self.log_end_offset
        try:
            self._write_batches(batches, now_ms)
        finally:
            if self.log_end_offset != end_offset:
                clear()
        self.after_append()

    def _write_batches(self, batches: Sequence[NewBatch], now_ms: int) -> AppendResult:
        if len(batches) == 1:
            header = place_batch(batches[0], self.log_end_offset, self.leader_epoch)
            return self.write(PlannedAppend(batches, [header]), AppendOrigin.CLIENT, now_ms)
        result: AppendResult | None = None
        segment_bytes = self.config.segment_bytes
        for planned in place_batches(batches, self.log_end_offset, self.leader_epoch, segment_bytes):
            written = self.write(planned, AppendOrigin.CLIENT, now_ms)
            result = written if result is None else written._replace(base_offset=result.base_offset)
        assert result is not None
        return result

    def append_planned(self, planned: PlannedAppend, origin: AppendOrigin, now_ms: int) -> AppendResult:
        """Write batches that have their offsets already. Raises what :meth:`write` does."""
        result = self.write(planned, origin, now_ms)
        self.after_append()
        return result

    def note_gathering(self) -> None:
        """Rows begin to gather: the next reader writes them."""
        if self.waits.watchers is not None:
            self.waits.note_gathering()

    def after_append(self) -> None:
        """Wake the threads that wait for records, and schedule the flush. Raises what came while the system
        wrote."""
        if self.waits.is_watched:
            self.waits.notify(self.view)
        if not self.is_flush_coming:
            self.flush_soon()
        if self.interrupt is not None:
            self.harmless, self.interrupt = self.interrupt, None
            raise self.harmless

    def write(self, planned: PlannedAppend, origin: AppendOrigin, now_ms: int) -> AppendResult:
        """Write prepared batches at the end; :meth:`after_append` follows.

        Producers are checked before the segment rolls, so that a duplicate changes nothing at all. Once the
        batches are in the file, aborted transactions must reach their index too.

        Raises:
            RecordTooLargeError: more than ``segment_bytes``, and not copied from a leader.
            OffsetOutOfRangeError: the log has no offsets left.
            CorruptionError: the offsets span more than a segment can index.
            OutOfOrderError, ProducerFencedError, InvalidTransactionStateError: the producer's state refuses.
            StorageError: the write failed, and was undone; or see :meth:`.LostEnds.check_told`.
            FencedError: the directory's lock was lost.
        """
        producers = None
        if planned.has_producers:
            producers, duplicate = self._plan_producers(planned, origin, now_ms)
            if duplicate is not None:
                return AppendResult(
                    duplicate.base_offset, duplicate.last_offset, duplicate.timestamp_ms, True
                )
        base_offset, last_offset = planned.base_offset, planned.last_offset
        home = self.context.home
        if not 0 <= now_ms - home.checked_ms < _CHECK_AGAIN_MS:
            self._check_held(now_ms)
        if home.untold_ends:
            self.context.lost_ends.check_told(self.partition)
        if last_offset >= MAX_OFFSET:
            raise beyond_last(self.partition, planned.last_offset)
        is_copied = origin is AppendOrigin.REPLICATION  # the setting may have been larger when it was written
        if planned.size_bytes > self.config.segment_bytes and not is_copied:
            raise RecordTooLargeError(
                f"{planned.size_bytes} bytes are more than segment_bytes ({self.config.segment_bytes})"
            )
        if self.should_roll(planned, now_ms):
            new_base_offset = max(base_offset, self.log_end_offset)
            check_reach(planned, new_base_offset)
            self.roll(new_base_offset, now_ms)
        active = self.active
        if active.has_rest or active.is_shared:
            active.own_file()
            self.clear_rest()
        before, size_bytes = (self.epochs, self._are_epochs_stored), active.size_bytes
        started = perf_counter()
        try:
            self._note_epochs(planned.headers)
            interrupt = active.append(planned)
            seconds = perf_counter() - started
            if interrupt is not None:
                self.interrupt = interrupt
            if producers is not None:
                self._finish_transactions(producers)
            self.log_end_offset = self.producers.map_end_offset = last_offset + 1
            self.publish()
        except BaseException as error:
            if not isinstance(error, StorageError) or active.size_bytes != size_bytes:
                self._poison(error)  # half-way, by whatever error: a signal handler may raise any
                raise
            self.counts.write_failure_count += 1
            self._take_back_epochs(before)
            raise
        self.counts.note_write(planned.headers, planned.size_bytes, seconds)
        return tuple.__new__(AppendResult, (base_offset, last_offset, planned.newest_ms, False))

    def _check_held(self, now_ms: int) -> None:
        home = self.context.home
        try:
            home.check_held()
        except BaseException as error:
            self.unbegun = error
            raise
        home.checked_ms = now_ms

    def adopt_segment(self, path: str, planned: PlannedAppend, now_ms: int) -> None:
        """Turn a file into the active segment. Its batches are durable and continue at the log end.
        Afterwards the file has no other name. The buffers of ``planned`` are not read.

        The caller has made everything in front of it durable, so no crash leaves a hole there. The new name
        is durable in the directory before the old name goes; a crash in between leaves both.

        Raises:
            OutOfOrderError, ProducerFencedError: the producer's state refuses.
            OffsetOutOfRangeError: the log has no offsets left.
            CorruptionError: the offsets span more than a segment can index.
            StorageError: the disk refused, or gives no second name; or see :meth:`.LostEnds.check_told`.
                Nothing was changed.
        """
        base_offset, old = planned.base_offset, self.active
        if self.context.home.untold_ends:
            self.context.lost_ends.check_told(self.partition)
        assert base_offset == self.log_end_offset
        if planned.last_offset >= MAX_OFFSET:
            raise beyond_last(self.partition, planned.last_offset)
        check_reach(planned, base_offset)
        producers, _ = self._plan_producers(planned, AppendOrigin.CLIENT, now_ms)
        assert producers is not None  # no duplicate: its sequence follows
        is_roll = old.base_offset != base_offset
        if is_roll:
            self.context.home.ensure_recovery_point(self.partition)
            self.clear_rest()
            self.store_snapshot(base_offset)
        before = self.epochs, self._are_epochs_stored
        self._note_epochs(planned.headers)
        new = self.new_active(base_offset, now_ms)
        started = perf_counter()
        try:
            new.link(path)
            sealed = [old.seal()] if is_roll else []
        except StorageError:
            self._take_back_epochs(before)
            with self._all_or_reopen():
                if is_roll:
                    self._take_back(new)
                new.unlink()  # last: indexes without a log look like a lost segment
            raise
        with self._all_or_reopen():
            new.take_name(planned.headers)
            self.segments = [*self.segments[:-1], *sealed, new]
            self.unflushed += sealed
            self.producers.apply(producers)
            self.log_end_offset = self.producers.map_end_offset = planned.last_offset + 1
            self.publish()
        self.counts.note_write(planned.headers, planned.size_bytes, perf_counter() - started)
        with suppress(StorageError):  # the log can live with an extra name
            self.context.files.remove(path)

    def clear_rest(self) -> None:
        """Make sure that no power cut brings back what a failed append, or another power cut, left: called
        before other records take its place. Only after such a failure does it wait for the disk. A roll needs
        it not: as long as the cut of the sealed segment is not durable, nothing behind it is, and recovery
        drops what overlaps.

        Raises:
            StorageError: the file could not be cut or flushed. After a failed flush the log must be reopened.
            RetriableError: a flush is needed, but :attr:`may_wait` is false (:attr:`has_put_off`).
        """
        active = self.active
        if active.cut_rest():
            if not self.may_wait:
                self._put_off("cannot write before the end of a failed write is gone from the disk")
            with self._all_or_reopen():
                active.flush_cut()

    def _put_off(self, reason: str) -> NoReturn:
        self.has_put_off = True
        raise _MustWaitError(f"{self.partition} {reason}")

    def _plan_producers(
        self, planned: PlannedAppend, origin: AppendOrigin, now_ms: int
    ) -> tuple[ProducerAppend | None, RememberedBatch | None]:
        """Check the batches against the producer state. The second value is the stored batch of a
        duplicate."""
        append = self.producers.begin(origin, now_ms)
        for header, buffer in zip(planned.headers, planned.buffers, strict=True):
            if header.producer_id < 0:
                continue
            if planned.marker is not None:
                is_abort, coordinator_epoch = planned.marker
                append.add_marker(header, is_abort=is_abort, coordinator_epoch=coordinator_epoch)
            elif header.is_control:
                add_to_plan(append, header, buffer, 0)
            elif (duplicate := append.add_data(header)) is not None:
                return None, duplicate
        return append, None

    def _finish_transactions(self, producers: ProducerAppend) -> None:
        """The batches are in the file: do what belongs to them, or the log must be reopened."""
        try:
            for completed in producers.completed:
                if completed.is_aborted:
                    self.active.append_aborted(completed.index_entry)
            self.producers.apply(producers)
        except BaseException as error:
            self._poison(error)
            raise

    def _note_epochs(self, headers: Sequence[BatchHeader]) -> None:
        """Note new epochs before the first batch that carries them is written.

        An epoch that only follows the earlier ones is stored with the next checkpoint, before the recovery
        point passes its batch: until then a recovery reads the batch and finds the epoch there. So an append
        waits for no fsync. Any other change cannot be recovered from the batches and is stored first. So is
        the current history, if a failure may have left epochs in the file that never came.
        """
        if self._is_epoch_file_unknown:
            self.replace_epochs(self.epochs)
        known = self.epochs.latest_epoch
        for header in headers:
            if header.partition_leader_epoch != known or header.magic != 2:
                break
        else:
            return
        self.context.home.store_leader_epoch()
        entries = self.epochs.entries
        changed = LeaderEpochs(entries)
        for header in headers:
            if header.magic < 2:
                changed.clear()
            elif header.partition_leader_epoch >= 0:
                changed.assign(header.partition_leader_epoch, header.base_offset)
        if changed.entries[: len(entries)] != entries:
            self.replace_epochs(changed)
        elif changed.entries != entries:
            self.epochs, self._are_epochs_stored = changed, False

    def _take_back_epochs(self, before: tuple[LeaderEpochs, bool]) -> None:
        """Go back to the epochs before a failed append: nothing was written in the new ones."""
        was_written = self._are_epochs_stored and self.epochs is not before[0]
        self.epochs, self._are_epochs_stored = before
        if was_written:
            self._are_epochs_stored, self._is_epoch_file_unknown = False, True

    # Rolling

    def should_roll(self, planned: PlannedAppend, now_ms: int) -> bool:
        """Kafka's rules: size, age, a full index, offsets out of reach."""
        active = self.active
        size_bytes = active.size_bytes
        if size_bytes:
            if size_bytes > self.config.segment_bytes - planned.size_bytes:
                return True
            rolling_ms = active.rolling_timestamp_ms
            age_ms = planned.newest_ms - rolling_ms if rolling_ms >= 0 else now_ms - active.created_ms
            if age_ms > self._limit_ms() - active.jitter_ms or active.indexes.is_full:
                return True
        return planned.last_offset - active.base_offset > MAX_RELATIVE_OFFSET

    def _limit_ms(self) -> int:
        config = self.config
        limit_ms = config.segment_ms
        if limit_ms > config.max_compaction_lag_ms and config.compacts:
            return config.max_compaction_lag_ms
        return limit_ms

    def roll(self, base_offset: int, now_ms: int) -> None:
        """Begin a new segment.

        The new files are created before the old segment is sealed: a crash in between leaves an empty last
        segment, as a roll does anyway. If sealing fails, the new files are removed. A roll does not wait for
        the disk. The names become durable with the next flush, before any record in the files counts as
        durable: a power cut that takes the names takes the records behind them. The producers' snapshot is
        written after that, before the recovery point passes the old segment.

        If recovery cannot tell a gap from a loss, the old segment is flushed first: otherwise a power cut
        could take its end, and the records behind it would go on as if nothing were missing.

        Raises:
            RetriableError: this flush is needed, but :attr:`may_wait` is false (:attr:`has_put_off`).
            FencedError: the lock of the directory was lost.
        """
        self.context.home.check_held()  # there may be no append or flush in front of this, for long
        old = self.active
        if old.base_offset == base_offset:
            self._replace_empty_active(now_ms)
            return
        if base_offset < old.base_offset:
            raise OffsetOutOfRangeError(f"cannot roll to {base_offset}, below the active {old.base_offset}")
        self._prepare_roll(old, base_offset)
        new = self.new_active(base_offset, now_ms)
        try:
            new.create(flush=False)
            sealed = old.seal()
        except StorageError:
            # If the new segment stayed, or came back after a power cut, the log would end at its base.
            with self._all_or_reopen():
                self._take_back(new)
            raise
        self.segments = [*self.segments[:-1], sealed, new]
        self.unflushed.append(sealed)
        self.new_name_count += 1
        self.producers.map_end_offset = base_offset
        self.note_coming_snapshot(base_offset)

    def _prepare_roll(self, old: ActiveSegment, base_offset: int) -> None:
        has_gaps = self._had_gaps or self.config.compacts
        is_deleted = self.log_start_offset >= base_offset  # all in front: a recovery will not read it
        must_wait = has_gaps or is_deleted or not self.context.home.is_point_stored(self.partition)
        if must_wait and not self.may_wait:
            self._put_off("cannot roll before its last segment is flushed")
        if is_deleted:  # only the snapshot knows its producers then
            self.store_snapshot(base_offset)
        self.context.home.ensure_recovery_point(self.partition)
        if has_gaps:
            self._had_gaps = True  # also under another policy
            with self._all_or_reopen():
                self.flush_names()
                old.flush()

    def draw_jitter(self) -> None:
        """Draw the jitter of the opened segment: logs opened together would otherwise roll together."""
        self.active.jitter_ms = self._new_jitter_ms()

    def _new_jitter_ms(self) -> int:
        highest = min(self.config.segment_jitter_ms, self._limit_ms() - 1)
        return self.context.random.randint(0, highest) if highest > 0 else 0

    def new_active(self, base_offset: int, now_ms: int) -> ActiveSegment:
        return ActiveSegment(
            self.context.files,
            self.directory,
            base_offset,
            self.context.open_segments,
            config=self.config,
            created_ms=now_ms,
            jitter_ms=self._new_jitter_ms(),
        )

    def _replace_empty_active(self, now_ms: int) -> None:
        """Roll an empty segment to its own base: it gets fresh files and settings. If that fails, the old one
        stays, and writes indexes of its own again."""
        self.active.indexes.distrust_files()
        fresh = self.new_active(self.active.base_offset, now_ms)
        fresh.create()
        self.segments = [*self.segments[:-1], fresh]

    def _take_back(self, new: ActiveSegment) -> None:
        """Remove the files of a new segment. When descriptors have run out, only flushing the directory needs
        one, and the new segment has just freed its own."""
        new.forget_files()
        has_any = False
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if self.context.files.is_file(new.path_of(suffix)):
                self.context.files.remove(new.path_of(suffix))
                has_any = True
        if has_any:
            self.context.files.flush_directory(self.directory)
