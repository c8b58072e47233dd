"""The lock, the failure state and the durability of a log that is open for writing.

What an append or a truncation does is the business of the classes built on this one
(:mod:`~logstore.partition.writing.appending`, :mod:`~logstore.partition.log`); here is what they share: how a
change is guarded, how readers see it, and how it becomes durable.

Locks: ``_lock`` guards every change of the log and serialises writers. The exception are single appends about
which all is ordinary: while the gate of ``_gathered`` is open, rows are added to it without the lock. An
append that holds the lock opens it, and whoever takes the lock for a change closes it. Readers never take the
lock: they work on an immutable view that is replaced in one assignment after the disk was changed. ``_grown``
is notified after each append. Fsyncs run outside ``_lock``, so appends go on during a flush; and while
files are removed: ``_removing`` is held for that, and comes behind ``_lock`` where both are.

A change that fails leaves the log as it was. One that stops half-way (an fsync that failed, an error after
the log was written but before what belongs to it) makes the log refuse all further changes until it is
reopened; reading goes on.
"""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

from logstore.clock import SystemClock
from logstore.config import TopicConfig
from logstore.errors import (
    ClosedError,
    FencedError,
    LogstoreError,
    NotOpenedError,
    ReopenRequiredError,
    StorageError,
)
from logstore.format.loops import GatheredRows
from logstore.model import Role, TopicPartition
from logstore.partition.encoding.row_encoder import RowEncoder
from logstore.partition.reading.readable import ReadableLog
from logstore.partition.reading.view import LogView
from logstore.partition.recovery.loader import LoadedLog, RecoveryReport
from logstore.partition.segments.failed_flushes import tell_failed_flush
from logstore.partition.segments.segment import Segment
from logstore.partition.state.context import LogContext
from logstore.partition.writing.core import LogCore, bytes_of
from logstore.partition.writing.group_commit import GroupCommit
from logstore.partition.writing.turn import CompactionTurn
from logstore.schedule import Task

_NEVER_MS = 2**62
_RETRY_MS = 1_000  # between two tries of the background to flush what cannot be opened


class _Change:
    """What is around a change, with the lock held. After an unexpected error the log refuses changes."""

    __slots__ = ("_log",)

    def __init__(self, log: WritableLog) -> None:
        self._log = log

    def __enter__(self) -> LogCore:
        log = self._log
        log._gathered.close_gate()
        if log._is_closed or log._failure is not None:
            log._check_writable_locked()
        return log._core

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._log._poison_if_unexpected(error)


class _FlushPlan(NamedTuple):
    """What one flush makes durable: the segments to fsync, and the offset that is durable afterwards unless
    the log is truncated meanwhile (which the count tells)."""

    segments: tuple[Segment, ...]
    target_offset: int
    truncation_count: int


class WritableLog(ReadableLog):
    """What every change of a log stands on. All methods may be called from many threads."""

    def __init__(
        self,
        context: LogContext,
        directory: str,
        partition: TopicPartition,
        config: TopicConfig,
        loaded: LoadedLog,
        *,
        role: Role = Role.ALONE,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.directory = directory
        self.partition = partition
        self.recovery: RecoveryReport = loaded.report
        """What opening found and did."""
        self._context = context
        self._fork_flag = context.fork_flag
        self._now_ms = context.clock.now_ms
        self._given_now_ms = None if type(context.clock) is SystemClock else context.clock.now_ms
        """None: whoever can ask the machine's clock by himself does."""
        self._lock = threading.RLock()
        self._grown_lock = threading.RLock()
        self._grown = threading.Condition(self._grown_lock)  # entered by its lock: see logstore.schedule
        self._waiting_count = 0
        self._changing = _Change(self)
        self._core = LogCore(context, directory, partition, config, loaded, role=role, poison=self._poison)
        self._core.draw_jitter()
        self._view_of_clean_stop = self._core.view if loaded.report.was_clean else None
        """If it is still the present one, closing has nothing to store: that was done by the last close."""
        self._encoder = RowEncoder(context.config, config)
        self._gathered = GatheredRows(self._encoder.rules, self._encoder.max_record_bytes)
        self._linger_pending = False
        self._linger_task = Task(f"write {partition}", self._linger, None)
        self._linger_due_ms = -1
        """Before it no row has lingered for its time."""
        self._gate_until_ms = _NEVER_MS
        """By the wall clock: when an append must write the rows that are there."""
        self._owes_help = False
        self._flush_pending = False
        self._failure: BaseException | None = None
        self._is_closed = False
        self._to_remove: list[str] = []
        self._removing = threading.Lock()
        self._compacting = CompactionTurn(partition)
        self._commit = GroupCommit(self._flush_all, lambda: self._core.durable_offset)
        self._on_close = on_close
        latest = self._core.epochs.latest
        self._leader_epoch = latest.epoch if latest is not None else 0

    # Guards

    def _own_lock(self) -> threading.RLock:
        """The lock, which goes in front of ``_changing`` in a ``with`` statement. The interpreter releases it
        there by itself: an interrupt cannot come first, as it can in a function of ours."""
        if self._is_closed or self._fork_flag.is_forked:
            self._check_usable()  # first: in a forked child the lock may be held for ever
        return self._lock

    def _check_usable(self) -> None:
        if self._is_closed or self._fork_flag.is_forked:  # each append asks, and more than once
            self._fork_flag.check_usable(self.partition, is_closed=self._is_closed)

    def _check_writable_locked(self) -> None:
        self._check_usable()
        if isinstance(self._failure, FencedError):
            raise FencedError(str(self._failure))
        if self._failure is not None:
            tell_failed_flush(self._context.files, self.directory)
            raise self._reopen_required(
                f"{self.partition} must be reopened before it is written again "
                f"(topic.reopen({self.partition.partition}), or close and open it)"
            )

    def _reopen_required(self, what: str) -> ReopenRequiredError:
        failure = self._failure
        why = str(failure) or type(failure).__name__  # Ctrl-C says nothing
        return ReopenRequiredError(
            getattr(failure, "errno", None), f"{what}, because of: {why}", self.directory
        )

    def _poison(self, error: BaseException) -> None:
        self._failure = error
        self._gathered.close_gate()  # last: whoever opens it looks at the failure afterwards

    def _poison_if_unexpected(self, error: BaseException) -> None:
        """After an error with the lock held. One of ours means that the change was refused or undone, unless
        it poisoned the log itself; anything else may have struck half-way. The directory's lock, once lost,
        stays lost."""
        if not isinstance(error, LogstoreError) or type(error) is FencedError:
            self._poison(error)

    def _current_view(self) -> LogView:
        """What was gathered is written first, so that everybody reads what he appended. If the disk refuses,
        reading goes on without it; the next append and the next flush say why."""
        self._check_usable()
        if self._gathered.row_count and self._failure is None:
            with contextlib.suppress(StorageError), self._own_lock(), self._changing:
                if not self._gathered.has_failed:  # which before we had the lock says: or is being written
                    self._drain_locked()
        return self._core.view

    def _published_view(self) -> LogView:
        self._check_usable()
        return self._core.view

    def _notify(self) -> None:
        if self._waiting_count:
            with self._grown_lock:
                self._grown.notify_all()

    def _wait_for_growth(self, seen: LogView, timeout_ms: int) -> None:
        with self._grown_lock:
            self._waiting_count += 1
            try:
                if self._core.view is seen and not self._is_closed:
                    self._grown.wait(timeout_ms / 1000)
            finally:
                self._waiting_count -= 1

    # Durability

    def flush(self) -> None:
        """Return when everything appended before the call is durable. One fsync serves all who wait.

        Raises:
            StorageError: the fsync failed. Nothing further is acknowledged until the log is reopened.
        """
        with self._own_lock(), self._changing as core:
            target = core.log_end_offset + self._gathered.row_count
        self._commit.wait_until_durable(target)

    @property
    def last_flush_seconds(self) -> float:
        """What the last fsync took; 0 before the first."""
        return self._commit.flush_seconds

    def _background_flush(self) -> None:
        self._flush_pending = False
        if not self._is_closed and self._failure is None:
            with contextlib.suppress(ClosedError):  # closing flushes
                try:
                    self._commit.wait_until_durable(self._core.log_end_offset)
                except NotOpenedError:
                    with self._lock:
                        self._flush_soon_locked(_RETRY_MS)
                    raise
                self._checkpoint_if_rolled()

    def _flush_soon_locked(self, least_delay_ms: int = 0) -> None:
        """Let the background flush what is not durable, after ``flush_ms``."""
        core = self._core
        if not self._flush_pending and core.log_end_offset > core.durable_offset:
            self._flush_pending = True
            delay_ms = max(core.config.flush_ms, least_delay_ms)
            self._context.scheduler.after(
                delay_ms, f"flush {self.partition}", self._background_flush, is_waiting=True
            )

    def _flush_all(self) -> None:
        """What one group commit does: flush all that is appended now. If what was gathered cannot be written,
        the rest is made durable before that is said."""
        unwritten = None
        with self._own_lock(), self._changing:
            try:
                self._drain_locked()
            except StorageError as error:
                unwritten = error
            self._check_writable_locked()
            plan = self._plan_flush_locked()
        self._flush_files(plan)
        with self._lock:
            self._publish_durable_locked(plan)
        if unwritten is not None:
            raise unwritten

    def _flush_now_locked(self) -> None:
        plan = self._plan_flush_locked()
        self._flush_files(plan)
        self._publish_durable_locked(plan)

    def _plan_flush_locked(self) -> _FlushPlan:
        core = self._core
        is_behind = core.durable_offset < core.log_end_offset
        segments = (*core.unflushed, core.active) if is_behind else tuple(core.unflushed)
        return _FlushPlan(segments, core.log_end_offset, core.truncations.count)

    def _flush_files(self, plan: _FlushPlan) -> None:
        """Fsync; without the lock, so that appends go on. A failure poisons the log: the kernel may have
        dropped the pages and marked them clean, so that a second fsync would succeed and mean nothing. A file
        that cannot be opened, for want of descriptors, has only to wait for the next flush."""
        for segment in plan.segments:
            try:
                self._core.flush_names()
                segment.flush()
            except BaseException as error:
                if isinstance(error, StorageError):
                    if self._was_removed(segment, plan.truncation_count):
                        continue
                    self._check_usable()  # a log that was let go has no files any more
                if not isinstance(error, NotOpenedError):
                    self._poison(error)
                raise
        self._check_owned()

    def _check_owned(self) -> None:
        """Nothing is acknowledged that another writer of the directory may not have met: whoever opens it
        from now on finds what was flushed.

        Raises:
            FencedError: the directory's lock was lost. The log refuses all further changes.
        """
        try:
            self._context.home.check_held()
        except FencedError as error:
            self._poison(error)
            raise

    def _was_removed(self, segment: Segment, truncation_count: int) -> bool:
        """Whether retention or a truncation took the segment meanwhile, or a durable one its place."""
        core = self._core
        return (
            segment.base_offset < core.segments[0].base_offset
            or truncation_count != core.truncations.count
            or segment.is_retired
        )

    def _publish_durable_locked(self, plan: _FlushPlan) -> None:
        """Note what a flush made durable. A segment that was sealed while it was flushed is not in the plan,
        and stays to be flushed: the flush may have begun before its last appends."""
        core = self._core
        if plan.truncation_count != core.truncations.count:
            return
        core.unflushed = [segment for segment in core.unflushed if segment not in plan.segments]
        if plan.target_offset > core.durable_offset:
            core.durable_offset = plan.target_offset
            core.publish()
            self._notify()

    def checkpoint(self) -> None:
        """Flush, make indexes and producer state durable, and store the recovery point: what the next open
        need not read. Stores do it in the background; call it to bound the time of a recovery."""
        self.prepare_checkpoint()
        self._context.home.store_checkpoints()

    def prepare_checkpoint(self) -> None:
        """Everything of :meth:`checkpoint` but storing the recovery point, which its directory does for all
        of its logs at once."""
        self.flush()
        with self._own_lock(), self._changing:
            self._checkpoint_locked()

    def _checkpoint_locked(self) -> None:
        """What :meth:`flush` did not do, and what was appended since. With the lock to the end: a truncation
        in between would leave a recovery point above the log."""
        core = self._core
        self._view_of_clean_stop = None  # closing has to end the time index again
        self._drain_locked()
        self._flush_now_locked()
        core.settle()
        core.active.store_indexes(flush=True)
        if core.last_snapshot_offset != core.log_end_offset:
            core.store_snapshot(core.log_end_offset)
        self._context.home.set_recovery_point(self.partition, core.log_end_offset)
        self._context.home.set_high_watermark(self.partition, core.known_high_watermark)

    def _checkpoint_if_rolled(self) -> None:
        """After a roll, move the stored recovery point past the sealed segments. Nothing gathers while what
        belongs to them is stored."""
        home = self._context.home
        with self._lock:
            core = self._core
            base = core.active.base_offset
            is_due = home.recovery_point(self.partition) < base <= core.durable_offset
            if not is_due or self._is_closed:
                return
            with self._changing:
                self._write_before_waiting_locked()
                if core.unflushed:  # sealed since the flush: its indexes may not be durable
                    return
                core.settle()
                home.set_recovery_point(self.partition, base)
        home.store_checkpoints()

    # Files of removed segments

    def _schedule_removal(self, paths: list[str]) -> None:
        self._to_remove += paths
        self._view_of_clean_stop = None  # it is not the present one any more, and would keep them open
        delay_ms = self._core.config.file_delete_delay_ms
        self._context.scheduler.after(
            delay_ms, f"remove files of {self.partition}", lambda: self._remove(paths)
        )

    def _remove(self, paths: list[str]) -> None:
        """Remove what is left of them. What the disk refuses to remove is tried again when the log is closed,
        and by the next open."""
        failure: StorageError | None = None
        with self._removing:
            for path in [path for path in paths if path in self._to_remove]:
                try:
                    if self._context.files.is_file(path):
                        self._context.files.remove(path)
                    self._to_remove.remove(path)
                except StorageError as error:
                    failure = failure or error
        with self._lock:
            self._core.forget_removed(paths)
        if failure is not None:
            raise failure

    # State

    @property
    def is_closed(self) -> bool:
        """Whether it can no longer be used."""
        return self._is_closed

    def check_writable(self) -> None:
        """
        Raises:
            ReopenRequiredError: a failure made the log refuse changes until it is opened again.
            ClosedError, ForkedError: it cannot be used at all.
        """
        with self._lock:
            self._check_writable_locked()

    @property
    def written_high_watermark(self) -> int:
        """The high watermark without what is still gathering, as far as it is known; for checkpoints."""
        return self._core.known_high_watermark

    @property
    def written_bytes(self) -> int:
        """Bytes of the ``.log`` files, without what is still gathering."""
        return bytes_of(self._core.segments)

    @property
    def needs_reopen(self) -> bool:
        """Whether a failure made the log refuse changes until it is opened again."""
        return self._failure is not None

    def _drain(self) -> None:
        with self._own_lock(), self._changing:
            self._drain_locked()

    def _write_before_waiting_locked(self) -> None:
        """In front of a change that waits for the disk: a kill must not take what gathers meanwhile. A disk
        that refuses it says so to the next append and the next flush."""
        gathered = self._gathered
        has_failed = gathered.has_failed
        try:
            self._drain_locked()
        except StorageError:
            gathered.has_failed = has_failed

    @abstractmethod
    def _linger(self) -> None:
        """Write what single appends have gathered, when its time has come."""

    @abstractmethod
    def _drain_locked(self) -> None:
        """Write what single appends have gathered. On an error it stays gathered."""
