"""Compacts the logs of a directory in the background: decides which is next and how fast, and keeps errors.

:mod:`~logstore.partition.cleaning.compaction` does the compacting, and ensures that a log has only one
compaction at a time. This module calls it: from a few threads with the system clock, from the scheduler with
any other clock. Every cycle takes the dirtiest log that is due and not being cleaned. A log that cannot be
cleaned is tried again, less and less often, and never stops the others.

Retention is not done here: the directory enforces it for compacted topics as for all others, and it may run
at any moment of a compaction.

Lock: ``_lock`` guards all state. It is not held during a round, or while logs compute how dirty they are. No
lock of the directory is taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from logstore.arguments import shown
from logstore.clock import SystemClock
from logstore.errors import ClosedError, LogstoreError, RetriableError, UsageError
from logstore.logdir.cleaning import CleanerStatus, LogCleaning
from logstore.logdir.throttle import SharedThrottle
from logstore.model import TopicPartition
from logstore.partition.cleaning.dirtiness import Dirtiness, most_dirty_first
from logstore.partition.cleaning.reports import (
    CompactionProgress,
    CompactionReport,
    OnCompactionProgress,
)
from logstore.partition.log import Log
from logstore.partition.state.context import LogContext
from logstore.schedule import rest_at_exit
from logstore.warning import warn

_LONGEST_WAIT_MS: Final = 3_600_000


class LogCleaner:
    """Compacts the logs of a store in the background. Get it as :attr:`.Store.cleaner`.

    It starts with the first topic whose ``cleanup_policy`` contains ``compact``, unless
    ``log_cleaner_enable`` is false. It stops when the store is closed; a running compaction is then aborted
    and leaves nothing behind. A log that was opened alone (:meth:`Log.open`) has no cleaner: call
    :meth:`Log.compact`. All methods may be called from many threads.
    """

    def __init__(self, context: LogContext, logs: Callable[[], Iterable[Log]]) -> None:
        config = context.config
        self._context = context
        self._clock = context.clock
        self._has_threads = isinstance(context.clock, SystemClock)
        self._logs = logs
        self._backoff_ms = config.log_cleaner_backoff_ms
        self._map_bytes = config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads
        self._throttle = SharedThrottle(config.log_cleaner_io_max_bytes_per_second, context.clock)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)  # entered by its lock: see logstore.schedule
        self._cleanings: dict[TopicPartition, LogCleaning] = {}
        self._wake_count = 0
        self._is_started = False
        self._is_stopping = False
        self._threads: list[threading.Thread] = []
        rest_at_exit(self, LogCleaner._rest)

    # What users see

    def status(self) -> Mapping[TopicPartition, CleanerStatus]:
        """The state of every compacted log, by partition: how dirty it is, whether it is being compacted,
        what the last compaction did, and the last error.

        Cost: that of :meth:`Log.dirtiness` for each.
        """
        self._check_usable()
        found = [(log, _dirtiness_of(log)) for log in self._compacted_logs()]
        with self._lock:
            return {
                log.partition: self._cleaning_of_locked(log).status(
                    dirtiness, is_taken=log.writer.turn.is_taken
                )
                for log, dirtiness in found
            }

    def wake(self) -> None:
        """Look for logs to compact now, instead of after ``log_cleaner_backoff_ms``. Logs that failed still
        wait until ``retry_at_ms``."""
        self._check_usable()
        with self._lock:
            self._wake_locked()

    def _check_usable(self) -> None:
        self._context.fork_flag.check_usable(self._context.home.path, is_closed=self._is_stopping)

    def compact(
        self, log: Log, *, now: bool, dry_run: bool, on_progress: OnCompactionProgress | None
    ) -> CompactionReport:
        """Run :meth:`Log.compact` in the calling thread, at full speed. :meth:`status` shows its report.

        Raises:
            UsageError: ``log`` is not a log that is open for writing; and as :meth:`Log.compact`.
        """
        if not isinstance(log, Log):
            raise UsageError(f"log is {shown(log)}; it must be a Log, open for writing")
        report = log.compact(now=now, dry_run=dry_run, map_bytes=self._map_bytes, on_progress=on_progress)
        if not dry_run:
            with self._lock:
                self._cleaning_of_locked(log).succeed(report, self._clock.now_ms())
        return report

    # Beginning and end

    def start(self) -> None:
        """Start the cleaner unless it is disabled; if it runs already, look for logs to compact now."""
        if not self._context.config.log_cleaner_enable:
            return
        with self._lock:
            if not self._is_started and not self._is_stopping:
                self._is_started = True
                if self._has_threads:
                    self._start_threads_locked()
                else:
                    self._context.scheduler.every(self._backoff_ms, "clean logs", self._clean_all)
            self._wake_locked()

    def _start_threads_locked(self) -> None:
        # What the threads need is imported here. Ctrl-C in the middle of an import can leave the lock of all
        # imports taken: a thread that imports would then wait without end, and stop() for it.
        import logstore.partition.cleaning.compaction  # noqa: F401

        for number in range(self._context.config.log_cleaner_threads):
            thread = threading.Thread(target=self._run, name=f"logstore-cleaner-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the process may have no more threads
                warn("a thread of the log cleaner cannot be started: %s", error)
                self._is_started = number > 0  # without any, the next topic that compacts tries again
                return
            self._threads.append(thread)

    def _wake_locked(self) -> None:
        self._wake_count += 1
        self._changed.notify_all()
        if self._is_started and not self._has_threads:
            self._context.scheduler.after(0, "clean logs", self._clean_all)

    def stop(self) -> None:
        """Abort running compactions, wait for them to end, and begin nothing more. Their logs cannot be
        compacted by any caller afterwards: call this before you close the logs."""
        with self._lock:
            self._is_stopping = True
            self._changed.notify_all()
            busy = [cleaning.log for cleaning in self._cleanings.values() if cleaning.is_busy]
        for log in busy:
            log.writer.turn.end()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _rest(self) -> None:
        """Stop before the program ends, unless a parent process has the threads."""
        if any(thread.is_alive() for thread in self._threads):
            self.stop()

    # Cycles

    def _run(self) -> None:
        """The loop of each thread until :meth:`stop`. No error ends it earlier."""
        while not self._is_stopping:
            seen = self._wake_count
            try:
                if self._clean_next():
                    continue
            except BaseException as error:
                warn("the log cleaner goes on after %s: %s", type(error).__name__, error)
            with self._lock:
                if not self._is_stopping and self._wake_count == seen:
                    self._changed.wait(min(self._backoff_ms, _LONGEST_WAIT_MS) / 1000)

    def _clean_all(self) -> None:
        while self._clean_next():
            pass

    def _clean_next(self) -> bool:
        """Clean the log whose turn it is; returns whether there was one. Errors are remembered."""
        cleaning = self._take_dirtiest()
        if cleaning is None:
            return False
        report: CompactionReport | None = None
        failure: Exception | None = None
        try:
            report = self._clean(cleaning)
        except (ClosedError, RetriableError):
            pass  # the log was closed, or its end was cut: try again later
        except Exception as error:
            failure = error
        finally:
            self._end(cleaning, report, failure)
        return True

    def _clean(self, cleaning: LogCleaning) -> CompactionReport:
        log = cleaning.log

        def throttle(size_bytes: int) -> None:
            delay_ms = self._throttle.delay_ms(size_bytes)
            if delay_ms and self._has_threads:  # on a clock set by hand the sleep would never end
                log.writer.turn.sleep(delay_ms)

        def note_progress(progress: CompactionProgress) -> None:
            cleaning.progress = min(progress.done_bytes / max(progress.total_bytes, 1), 1.0)

        return log.compact(
            map_bytes=cleaning.map_bytes_of(self._map_bytes), throttle=throttle, on_progress=note_progress
        )

    def _end(self, cleaning: LogCleaning, report: CompactionReport | None, failure: Exception | None) -> None:
        with self._lock:
            cleaning.is_busy = False
            if failure is not None:
                self._fail_locked(cleaning, failure)
                return
            if report is not None:
                cleaning.succeed(report, self._clock.now_ms())
            if report is None or report.first_dirty_offset_after <= report.first_dirty_offset_before:
                cleaning.rest(self._clock.monotonic_ms() + self._backoff_ms)

    def _fail_locked(self, cleaning: LogCleaning, failure: Exception) -> None:
        cleaning.fail(failure, self._clock.now_ms(), self._clock.monotonic_ms(), self._backoff_ms)

    # Choosing

    def _take_dirtiest(self) -> LogCleaning | None:
        found = []
        for log in self._due_logs():
            try:
                found.append((log, log.dirtiness()))
            except ClosedError:
                continue
            except Exception as error:
                with self._lock:
                    self._fail_locked(self._cleaning_of_locked(log), error)
        with self._lock:
            for log in most_dirty_first(found):
                cleaning = self._cleaning_of_locked(log)
                if not (self._is_stopping or cleaning.is_busy or log.writer.turn.is_taken):
                    cleaning.begin()
                    return cleaning
        return None

    def _due_logs(self) -> list[Log]:
        """The logs that may be cleaned now. Forgets the state of logs that are gone."""
        logs = self._compacted_logs()
        monotonic_ms = self._clock.monotonic_ms()
        with self._lock:
            for partition in self._cleanings.keys() - {log.partition for log in logs}:
                del self._cleanings[partition]
            return [
                log
                for log in logs
                if not log.needs_reopen and self._cleaning_of_locked(log).is_due(monotonic_ms)
            ]

    def _compacted_logs(self) -> list[Log]:
        return [log for log in self._logs() if log.config.compacts and not log.is_closed]

    def _cleaning_of_locked(self, log: Log) -> LogCleaning:
        """The state of a log; a new one if the log was reopened, or created again under the same name."""
        cleaning = self._cleanings.get(log.partition)
        if cleaning is None or cleaning.log is not log:
            cleaning = self._cleanings[log.partition] = LogCleaning(log)
        return cleaning


def _dirtiness_of(log: Log) -> Dirtiness | None:
    with suppress(LogstoreError, MemoryError):
        return log.dirtiness()
    return None
