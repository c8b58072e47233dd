"""Making appended records durable: flushes, and checkpoints of how far they got.

Fsyncs run without the log's lock, so appends go on during a flush. A failed fsync poisons the log. One that a
signal handler has interrupted, as Ctrl-C does, is made again.
"""

from __future__ import annotations

import contextlib
import sys
from time import perf_counter
from typing import NamedTuple

from logstore.errors import ClosedError, NotOpenedError, RetriableError, StorageError
from logstore.model import Isolation, TopicPartition
from logstore.partition.segments.failed_flushes import is_interrupt
from logstore.partition.segments.segment import Segment
from logstore.partition.state.context import LogContext
from logstore.partition.writing.gathering import Gathering
from logstore.partition.writing.group_commit import GroupCommit
from logstore.partition.writing.guard import Guard, reentered
from logstore.schedule import Task
from logstore.turns import Latch

_RETRY_MS = 1_000  # between two background flushes of a file that cannot be opened
_EARLY_SHARE = 10  # of flush_ms, by which a log is flushed earlier if another one is flushed then


class _FlushPlan(NamedTuple):
    """What one flush makes durable: the segments to fsync, and the offset that is durable afterwards. If the
    truncation count has changed meanwhile, the offset does not hold."""

    segments: tuple[Segment, ...]
    target_offset: int
    truncation_count: int


class Durability:
    """Flushes and checkpoints of one log."""

    def __init__(
        self,
        context: LogContext,
        partition: TopicPartition,
        guard: Guard,
        gathering: Gathering,
    ) -> None:
        self._context = context
        self._partition = partition
        self._guard = guard
        self._fork_flag = context.fork_flag
        self._core = guard.core
        self._waits = guard.core.waits
        self._gathering = gathering
        self._is_hurrying = False
        self._coming: Task | None = None
        """The background flush that was scheduled last."""
        self.commit = GroupCommit(self._flush_all, self._core, barrier=context.home)
        """One fsync for all threads that wait for one."""

    # Flushing

    def flush(self) -> None:
        """See :meth:`.Log.flush`."""
        guard = self._guard
        if guard.is_closed or guard.failure is not None or self._fork_flag.is_forked:
            guard.check_writable()
        gathered = self._gathering.rows.row_count  # first: rows written meanwhile then count twice, not never
        self.commit.wait_until_durable(self._core.log_end_offset + gathered)

    def flush_within(self, seconds: float) -> None:
        """Like :meth:`flush`, but wait no longer than ``seconds``: the background flushes."""
        if self._context.scheduler.has_no_threads:
            self.flush()
            return
        with self._guard.own_lock(), self._guard as core:
            target = core.log_end_offset + self._gathering.rows.row_count
        is_over = Latch()
        reached: list[bool] = []

        def note(is_reached: bool) -> None:
            reached.append(is_reached)
            is_over.open()

        wait = self._waits.when(target, Isolation.DURABLE, note, lambda: self._core.view, None)
        if not wait.is_over:
            self.hurry()
            is_over.wait(seconds)
        if wait.cancel():
            raise RetriableError(
                f"{self._partition} is not durable up to {target} after {seconds:g} s; the flush goes on in "
                "the background"
            )
        if not reached[0]:
            with self._guard.lock:
                self._guard.check_writable()

    def hurry(self) -> None:
        """Flush in the background, now."""
        with self._guard.own_lock():
            if self._is_hurrying:
                return
            self._is_hurrying = True
            try:
                self._context.scheduler.after(
                    0, f"flush {self._partition}", self._hurried_flush, is_waiting=True
                )
            except BaseException:
                self._is_hurrying = False
                raise

    def _hurried_flush(self) -> None:
        self._is_hurrying = False
        if not self._guard.is_closed and self._guard.failure is None:
            with contextlib.suppress(ClosedError):  # closing flushes
                self.flush()

    def wait_if_due(self, end_offset: int) -> None:
        """Flush after an append that brought the unflushed records to ``flush_messages``. Called without the
        lock, so that appends of other threads share the fsync."""
        if end_offset - self._core.durable_offset >= self._core.config.flush_messages:
            self.commit.wait_until_durable(end_offset)

    def background_flush(self) -> None:
        self._core.is_flush_coming = False
        if not self._guard.is_closed and self._guard.failure is None:
            with contextlib.suppress(ClosedError):  # closing flushes
                try:
                    self.commit.wait_until_durable(self._core.log_end_offset)
                except NotOpenedError:
                    with self._guard.lock:
                        self.flush_soon_locked(_RETRY_MS)
                    raise
                if self._move_point_if_rolled():
                    self._store_checkpoints_soon()

    def flush_soon_locked(self, least_delay_ms: int = 0) -> None:
        """Schedule a background flush after ``flush_ms``, if anything is not durable."""
        core = self._core
        if not core.is_flush_coming and core.log_end_offset > core.durable_offset:
            core.is_flush_coming = True
            delay_ms = max(core.config.flush_ms, least_delay_ms)
            self._coming = self._context.scheduler.after(
                delay_ms,
                f"flush {self._partition}",
                self.background_flush,
                is_waiting=True,
                early_ms=delay_ms // _EARLY_SHARE,
            )

    def flush_sooner_locked(self) -> None:
        """``flush_ms`` is less than it was: what waits is flushed within the new time."""
        coming, self._core.is_flush_coming = self._coming, False
        self.flush_soon_locked()
        if coming is not None:
            coming.cancel()

    def _flush_all(self) -> None:
        """The flush of a group commit: everything appended so far. If gathered records cannot be written, the
        rest is made durable before the error is raised. Its callers have made sure that no forked child is
        here, which may never get the lock."""
        unwritten = None
        if self._guard.is_held_here():
            raise reentered(self._partition)
        with self._guard.lock:
            if self._guard.is_closed or self._guard.failure is not None:
                self._guard.check_writable()
            if self._gathering.rows.row_count:
                unwritten = self._write_gathered_locked()
            plan = self._plan_flush_locked()
        seconds = self.flush_files(plan)
        with self._guard.lock:
            self._publish_durable_locked(plan, seconds)
        if self._waits.interrupt is not None:
            self._waits.raise_interrupt()
        if unwritten is not None:
            raise unwritten

    def _write_gathered_locked(self) -> StorageError | None:
        """Write the gathered rows. Returns the error if the disk refuses."""
        with self._guard:
            try:
                self._gathering.drain_locked()
            except StorageError as error:
                self._guard.check_writable()  # if that made the log refuse changes, flush nothing
                return error
        return None

    def flush_now_locked(self) -> None:
        """Flush with the lock held throughout, so that no append comes in between."""
        plan = self._plan_flush_locked()
        self._publish_durable_locked(plan, self.flush_files(plan))

    def _plan_flush_locked(self) -> _FlushPlan:
        core = self._core
        is_behind = core.durable_offset < core.log_end_offset
        segments = (*core.unflushed, core.active) if is_behind else tuple(core.unflushed)
        return _FlushPlan(segments, core.log_end_offset, core.truncations.count)

    def flush_files(self, plan: _FlushPlan) -> float:
        """Fsync, without the lock, so that appends go on. Returns how many seconds that took.

        A failure poisons the log: the kernel may have dropped the pages and marked them clean, so that a
        second fsync would succeed and mean nothing. A file that cannot be opened because descriptors ran out
        just waits for the next flush."""
        started = perf_counter()
        handled = sys.exc_info()[1]
        for segment in plan.segments:
            try:
                self._flush_segment(segment, plan, is_first_try=True)
            except BaseException as error:
                if not is_interrupt(error, handled):
                    raise
                self._flush_interrupted(segment, plan, error)
        self._guard.check_owned()
        return perf_counter() - started

    def _flush_segment(self, segment: Segment, plan: _FlushPlan, *, is_first_try: bool) -> None:
        handled = sys.exc_info()[1]
        try:
            if self._core.new_name_count > self._core.durable_name_count:
                self._core.flush_names()
            segment.flush()
        except BaseException as error:
            if isinstance(error, StorageError):
                if self._was_removed(segment, plan.truncation_count):
                    return
                self._guard.check_usable()  # a closed log has no files any more
                with self._guard.lock:
                    self._core.counts.flush_failure_count += 1
            if not isinstance(error, NotOpenedError) and not (is_first_try and is_interrupt(error, handled)):
                self._guard.poison(error)
            raise

    def _flush_interrupted(self, segment: Segment, plan: _FlushPlan, interrupt: BaseException) -> None:
        """Flush a segment once more, and leave the interrupt for the end of the change: no flush has failed,
        so that one which succeeds now holds for everything."""
        try:
            self._flush_segment(segment, plan, is_first_try=False)
        except Exception as failure:
            raise interrupt from failure
        self._waits.interrupt = interrupt

    def _was_removed(self, segment: Segment, truncation_count: int) -> bool:
        """Whether retention or a truncation removed the segment meanwhile, or a durable one replaced it."""
        core = self._core
        return (
            segment.base_offset < core.segments[0].base_offset
            or truncation_count != core.truncations.count
            or segment.is_retired
        )

    def _publish_durable_locked(self, plan: _FlushPlan, seconds: float) -> None:
        """Note what a flush made durable. A segment that was sealed during the flush is not in the plan and
        must still be flushed: the flush may have begun before its last appends."""
        core = self._core
        if plan.segments:
            core.counts.note_flush(seconds)
        if plan.truncation_count != core.truncations.count:
            return
        core.unflushed = [segment for segment in core.unflushed if segment not in plan.segments]
        if plan.target_offset > core.durable_offset:
            core.durable_offset = plan.target_offset
            core.publish()
            if self._waits.is_watched:
                self._waits.notify(core.view)

    # Checkpoints

    def checkpoint(self) -> None:
        """See :meth:`.Log.checkpoint`."""
        self.prepare_checkpoint()
        self._context.home.store_checkpoints()

    def prepare_checkpoint(self) -> None:
        """See :meth:`.Log.prepare_checkpoint`."""
        core = self._core
        if core.durable_offset != core.log_end_offset or self._gathering.rows.row_count:
            self.flush()
        with self._guard.own_lock(), self._guard:
            self.checkpoint_locked()

    def clear_rest(self) -> None:
        """Clear what may lie behind the end, so that no append waits for it."""
        if not self._core.active.has_rest or self._guard.failure is not None:
            return
        with contextlib.suppress(ClosedError), self._guard.own_lock(), self._guard as core:
            if core.active.has_rest:
                self._context.home.check_held()  # another process may have appended there
                core.clear_rest()

    def checkpoint_locked(self) -> None:
        """Do what :meth:`flush` leaves out, and flush what was appended since. The lock is held to the end: a
        truncation in between would leave a recovery point above the log."""
        core = self._core
        core.view_of_clean_stop = None  # closing must close the time index again
        if self._gathering.rows.row_count:
            self._gathering.drain_locked()
        self.flush_now_locked()
        if core.active.has_rest:
            core.clear_rest()  # the next session takes what lies behind the end for unused
        core.settle()
        core.active.store_indexes(flush=True)
        if core.last_snapshot_offset != core.log_end_offset:
            core.store_snapshot(core.log_end_offset)
        self._context.home.set_ends(self._partition, core.log_end_offset, core.known_high_watermark)

    def checkpoint_if_rolled(self) -> None:
        """After a roll, move the stored recovery point past the sealed segments."""
        if self._move_point_if_rolled():
            self._context.home.store_checkpoints()

    def _move_point_if_rolled(self) -> bool:
        """Returns whether the recovery point has moved, in memory. No record gathers while the snapshots of
        the sealed segments are stored."""
        home = self._context.home
        with self._guard.lock:
            core = self._core
            if self._rolled_point_locked() is None or self._guard.is_closed:
                return False
            with self._guard:
                self._gathering.write_before_waiting_locked()
                point = self._rolled_point_locked()
                if point is None:
                    return False
                home.check_held()  # no flush may have come in front of this, for long
                core.settle(point)
                home.set_recovery_point(self._partition, point)
                return True

    def _rolled_point_locked(self) -> int | None:
        """Up to where all is durable, with its indexes: the base of the first segment that was not flushed
        since it was sealed, or of the active one. None if the recovery point is there; or if appends would
        wait for many snapshots, which are stored when no segment has begun for a moment."""
        core = self._core
        if core.unflushed and core.settles_slowly:
            return None
        base = (core.unflushed[0] if core.unflushed else core.active).base_offset
        point = self._context.home.recovery_point(self._partition)
        return base if point < base <= core.durable_offset else None

    def _store_checkpoints_soon(self) -> None:
        """Once for all logs that roll meanwhile: the file has a line for each log of the store, and others
        wait for their flushes behind this."""
        home = self._context.home
        if home.is_store_coming:
            return
        home.is_store_coming = True
        try:
            self._context.scheduler.after(0, "store checkpoints", home.store_coming, is_waiting=True)
        except BaseException:
            home.is_store_coming = False
            raise
