"""The writer of one log: its parts, and closing it.

:attr:`LogWriter.guard` decides whether the log may change, :attr:`~LogWriter.core` holds its state,
:attr:`~LogWriter.gathering` the single appends, and :attr:`~LogWriter.durability` flushes. Compaction,
erasing and checks work with these parts; :class:`~logstore.partition.log.Log` is their public face.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from logstore.config import TopicConfig
from logstore.errors import StorageError
from logstore.format.loops import GatheredRows
from logstore.model import Isolation, Role, TopicPartition
from logstore.partition.encoding.row_encoder import RowEncoder
from logstore.partition.reading.view import LogView
from logstore.partition.recovery.loaded import LoadedLog
from logstore.partition.segments.failed_flushes import forget_failed_flush, tell_failed_flush
from logstore.partition.state.context import LogContext
from logstore.partition.writing.appending import Appending
from logstore.partition.writing.core import LogCore
from logstore.partition.writing.durability import Durability
from logstore.partition.writing.gathering import Gathering
from logstore.partition.writing.guard import Guard
from logstore.partition.writing.removal import Removal
from logstore.partition.writing.replication import Replication
from logstore.partition.writing.turn import CompactionTurn
from logstore.partition.writing.waits import Done, Wait, Waits


class LogWriter:
    """The writer of one log. Its parts may be used from many threads, as each says."""

    def __init__(
        self,
        context: LogContext,
        directory: str,
        partition: TopicPartition,
        config: TopicConfig,
        loaded: LoadedLog,
    ) -> None:
        self.context = context
        self.directory = directory
        self.partition = partition
        self.recovery = loaded.report
        encoder = RowEncoder(context.config, config)
        rows = GatheredRows(encoder.rules, encoder.max_record_bytes)
        self.waits = Waits(context, partition)
        self.guard = Guard(
            context,
            directory,
            partition,
            self.waits,
            rows.close_gate,
            partial(LogCore, context, directory, partition, config, loaded, self.waits),
        )
        self.core = self.guard.core
        self.core.draw_jitter()
        self.gathering = Gathering(context, partition, self.guard, encoder, rows)
        self.durability = Durability(context, partition, self.guard, self.gathering)
        self.core.flush_soon = self.durability.flush_soon_locked
        self.removal = Removal(context, partition, self.guard, self.gathering, self.durability)
        self.appending = Appending(
            context, directory, self.guard, self.gathering, self.durability, self.removal
        )
        self._replication: Replication | None = None
        self.turn = CompactionTurn(partition)
        """Compactions and erasures take turns by it."""
        self.unsettled = None if loaded.is_settled else loaded
        """What was found that is not durable yet: :meth:`settle` comes first."""
        self.on_close: Callable[[], None] | None = None
        """Called once, after the log was closed."""

    @property
    def replication(self) -> Replication:
        """Made when it is first needed: most logs are no replicas. It has no state, so two threads may make
        one."""
        if self._replication is None:
            self._replication = Replication(self.context, self.guard, self.gathering, self.durability)
        return self._replication

    def settle(self) -> None:
        """After a recovery, make everything that was found and changed durable, and prepare the checkpoint: a
        crash right after needs no second recovery. Called before anybody else has the log, so without its
        lock. The names of new files become durable with the snapshot's. An empty log needs none: there is
        nothing to say in it.

        Raises:
            StorageError: the disk refused. The log cannot be used.
        """
        found, core = self.unsettled, self.core
        if found is None:
            return
        if not found.is_new:
            core.active.flush()
        core.active.store_indexes(flush=True)
        if not found.snapshots and core.log_end_offset == core.segments[0].base_offset:
            self.context.files.flush_directory(self.directory)
            core.last_snapshot_offset = core.log_end_offset
        else:
            core.store_snapshot(core.log_end_offset, found.snapshots)
        self.context.home.set_ends(self.partition, core.log_end_offset, core.known_high_watermark)
        if found.has_failed_flush:
            forget_failed_flush(self.context.files, self.directory)
        self.unsettled = None

    # What readers see

    def current_view(self) -> LogView:
        """The view for a read. Gathered records are written first, so that every thread reads its own
        appends. If the disk refuses, reading goes on without them; the next append and the next flush say
        why."""
        if self.guard.is_closed or self.context.fork_flag.is_forked:
            self.guard.check_usable()
        gathered = self.gathering.rows
        if gathered.row_count and self.guard.failure is None:
            with contextlib.suppress(StorageError), self.guard.own_lock(), self.guard:
                if not gathered.has_failed:  # without the lock it may also mean: being written
                    self.gathering.drain_locked()
        return self.core.view

    def published_view(self) -> LogView:
        """The view of what is written already; gathered records are left to gather."""
        self.guard.check_usable()
        return self.core.view

    def known_view(self) -> LogView:
        """The offsets, counting the records that still gather and are left to gather. Records that the disk
        refused do not count."""
        if self.guard.is_closed or self.context.fork_flag.is_forked:
            self.guard.check_usable()
        rows, core = self.gathering.rows, self.core
        if not rows.row_count:
            return core.view
        with self.guard.own_lock():
            view = core.view
            if rows.has_failed or self.guard.failure is not None:
                return view
            end = view.log_end_offset + rows.row_count
            if core.role is not Role.ALONE:
                return view._replace(log_end_offset=end)
            is_decided = view.last_stable_offset == view.high_watermark
            stable = end if is_decided else view.last_stable_offset
            return view._replace(log_end_offset=end, high_watermark=end, last_stable_offset=stable)

    def wait_for_growth(self, seen: LogView, timeout_ms: int) -> None:
        """Return when the log may have changed since ``seen``, or after the timeout."""
        self.waits.wait(lambda: self.core.view is seen and not self.guard.is_closed, timeout_ms)

    def when(
        self, offset: int, done: Done, *, isolation: Isolation, timeout: float | None, flush: bool
    ) -> Wait:
        """See :meth:`.Log.when`."""
        self.guard.check_usable()
        timeout_ms = None if timeout is None else max(round(timeout * 1000), 0)
        wait = self.waits.when(offset, isolation, done, lambda: self.core.view, timeout_ms)
        if flush and not wait.is_over:
            self.durability.hurry()
        return wait

    def on_change(self, callback: Callable[[], object]) -> Callable[[], None]:
        """See :meth:`.Log.on_change`."""
        self.guard.check_usable()
        return self.waits.on_change(callback)

    # Settings

    def roll(self) -> None:
        """See :meth:`.Log.roll`."""
        with self.guard.own_lock(), self.guard as core:
            self.gathering.drain_locked()
            core.roll(core.log_end_offset, self.context.clock.now_ms())
            core.publish()

    def reconfigure(self, config: TopicConfig) -> None:
        """See :meth:`.Log.reconfigure`."""
        with self.guard.own_lock(), self.guard as core:
            self.gathering.drain_locked()
            is_flushed_sooner = config.flush_ms < core.config.flush_ms
            core.config = config
            self.gathering.use(config)
            if is_flushed_sooner:
                self.durability.flush_sooner_locked()

    def expire_producers(self) -> int:
        """See :meth:`.Log.expire_producers`."""
        with self.guard.own_lock(), self.guard as core:
            expiration_ms = self.context.config.producer_id_expiration_ms
            return core.producers.remove_expired(self.context.clock.now_ms(), expiration_ms)

    def check_not_within(self, *, flushes: bool) -> None:
        """For calls whose other threads would wait for what this thread does. ``flushes``: also for a flush.

        Raises:
            UsageError: this thread changes or flushes the log, and is interrupted.
        """
        if self.guard.is_held_here() or self.guard.is_home_used_here():
            raise self.guard.reentered()
        if flushes:
            self.durability.commit.check_not_within()

    def check_writable(self) -> None:
        """See :meth:`.Log.check_writable`."""
        with self.guard.lock:
            self.guard.check_writable()

    # The end

    def close(self) -> None:
        """See :meth:`.Log.close`."""
        if (self.guard.is_closed and self.on_close is None) or self.context.fork_flag.is_forked:
            return
        self.check_not_within(flushes=False)
        self.turn.end()
        try:
            with self.guard.lock:
                if not self.guard.is_closed:
                    self._close_locked()
        finally:
            # without the lock: on_close waits for the background thread, which may be waiting for the lock
            on_close = self.on_close  # once: another thread may be closing, too
            if on_close is not None and self.guard.is_closed:  # else an interrupt came first
                on_close()
                self.on_close = None  # last: closing again finishes what an interrupt has left
        if self.waits.interrupt is not None:
            self.waits.raise_interrupt()

    def _close_locked(self) -> None:
        try:
            if self.guard.failure is None:
                self.gathering.drain_locked()
                if self.core.view is self.core.view_of_clean_stop:
                    self.guard.check_owned()
                else:
                    self.core.active.close_indexes()
                    self.durability.checkpoint_locked()  # which checks it, too
            else:
                self.guard.check_owned()
                self._check_durable_locked()
            if self.removal.waiting:
                self.removal.remove(list(self.removal.waiting))
        except BaseException as error:
            self.guard.poison(error)  # so that this does not count as a clean stop
            raise
        finally:
            self.guard.is_closed = True
            self.gathering.rows.close_gate()
            tell_failed_flush(self.context.files, self.directory)
            self.core.forget_files()
            self.waits.end()

    def _check_durable_locked(self) -> None:
        """
        Raises:
            ReopenRequiredError: something is not durable, and an earlier failure keeps it from becoming so.
        """
        view = self.core.view
        if view.durable_offset < view.log_end_offset or self.gathering.rows.row_count:
            raise self.guard.reopen_required(
                f"{self.partition} is closed, but records from offset {view.durable_offset} on "
                "may not survive a power cut; open it again to find out"
            )

    def write_gathered(self) -> None:
        """Write the appends that still gather, unless a failure or the end keeps the log from writing.

        Raises:
            StorageError: the disk refused; they gather on.
        """
        if self.gathering.rows.row_count and not self.guard.is_closed and self.guard.failure is None:
            with self.guard.own_lock(), self.guard:
                self.gathering.drain_locked()

    def abandon(self) -> None:
        """See :meth:`.Log.abandon`."""
        self.turn.end()
        with self.guard.lock, self.removal.lock:
            self.guard.is_closed = True
            self.gathering.rows.close_gate()  # last: a thread that opens the gate then checks is_closed
            self.core.lose_files()
        self.waits.end()
        self.waits.raise_interrupt()
