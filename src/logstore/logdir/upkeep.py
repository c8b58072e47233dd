"""The regular work on a directory's logs: retention, checkpoints, forgetting idle producers.

The directory's scheduler runs it in the background; callers may run it too. Knows no topics. A failure in one
log does not affect the others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from logstore.errors import ClosedError
from logstore.files import Files
from logstore.logdir.reserve import Reserve
from logstore.model import TopicPartition
from logstore.partition.log import Log
from logstore.partition.state.context import LogContext
from logstore.turns import WORTH_THREADS_SECONDS, flushed_at_a_time, take_if_free, take_turns

_SLICE_MS: Final = 50
_TAKEN_TOGETHER: Final = 64
"""Logs of a slice between two looks at the clock."""


class Upkeep:
    """The regular work on ``logs()``. ``lock`` is the lock under which topics are deleted."""

    def __init__(
        self,
        context: LogContext,
        logs: Callable[[], list[Log]],
        lock: threading.RLock,
        reserve: Reserve,
    ) -> None:
        self._context = context
        self._home = context.home
        self._logs = logs
        self._lock = lock
        self._retention = _Round(context, "retention", logs, Log.enforce_retention)
        self._reserve = reserve
        self._checkpoints = _Round(context, "checkpoint", logs, self._checkpoint, self._end_checkpoints)

    def start(self, *, was_clean: bool) -> None:
        """Schedule all of it at its intervals."""
        config = self._context.config
        watermarks_ms = config.replica_high_watermark_checkpoint_interval_ms
        self._context.scheduler.begin(
            [
                (config.log_retention_check_interval_ms, "retention", self._retention.begin),
                (config.log_flush_offset_checkpoint_interval_ms, "checkpoint", self._checkpoints.begin),
                (watermarks_ms, "high watermarks", self.store_high_watermarks),
                (config.producer_id_expiration_check_interval_ms, "expire producers", self.expire_producers),
            ],
            once={} if was_clean else {"clear ends": self.clear_ends},
        )

    def clear_ends(self) -> None:
        """Clear what a power cut may have left behind the ends of logs, before anybody appends there."""

        def clear(log: Log) -> None:
            log.writer.durability.clear_rest()

        for_each(clear, self._logs(), at_a_time=flushed_at_a_time(self._context.files))

    def enforce_retention(self, *, dry_run: bool = False) -> dict[TopicPartition, int]:
        """Apply every topic's limits now. Returns the number of segments deleted (with ``dry_run``, that
        would be), for the partitions that have any."""
        counts: dict[TopicPartition, int] = {}

        def enforce(log: Log) -> None:
            count = log.enforce_retention(dry_run=dry_run)
            if count:
                counts[log.partition] = count

        for_each(enforce, self._logs(), at_a_time=1 if dry_run else flushed_at_a_time(self._context.files))
        return counts

    def checkpoint(self) -> None:
        """Flush every log and store its recovery point, below which the next open reads nothing."""
        try:
            for_each(self._checkpoint, self._logs(), at_a_time=flushed_at_a_time(self._context.files))
        finally:
            self._home.store_checkpoints()

    def _end_checkpoints(self) -> None:
        self._home.store_checkpoints()
        if self._reserve.may_exist:
            self._reserve.keep()

    def _checkpoint(self, log: Log) -> None:
        if self._home.recovery_point(log.partition) != log.log_end_offset:
            log.prepare_checkpoint()

    def store_high_watermarks(self) -> None:
        """Store the high watermarks that moved. Skipped while topics change or a partition is reopened, which
        may take long: the next run stores them, and flushes in this thread must not wait."""
        taken: list[bool] = []
        try:  # the lock, because a topic that is deleted meanwhile must stay forgotten
            if not take_if_free(self._lock.acquire, taken):
                return
            changed = [
                log
                for log in self._logs()
                if self._home.high_watermark(log.partition) != log.written_high_watermark
            ]
            for log in changed:
                self._home.set_high_watermark(log.partition, log.written_high_watermark)
        finally:
            if taken:
                self._lock.release()
        if changed:
            self._home.store_high_watermarks()

    def expire_producers(self) -> None:
        """Forget producers that were idle for ``producer_id_expiration_ms``."""
        for_each(Log.expire_producers, self._logs())


class _Round:
    """One action for every log in the background, a slice at a time: the same thread runs the flushes that
    others wait for, and thousands of logs take seconds."""

    def __init__(
        self,
        context: LogContext,
        name: str,
        logs: Callable[[], list[Log]],
        action: Callable[[Log], object],
        end: Callable[[], None] | None = None,
    ) -> None:
        """``end`` is called when all logs have had their turn, even if some have failed."""
        self._context = context
        self._name = name
        self._logs = logs
        self._action = action
        self._end = end
        self._left: deque[Log] = deque()
        self._failure: Exception | None = None

    def begin(self) -> None:
        """Begin a round, unless the last one goes on."""
        if not self._left:
            self._left.extend(self._logs())
            self._go_on()

    def _go_on(self) -> None:
        """
        Raises:
            Exception: the error of the first log that has failed, when the round is over.
        """
        clock, left = self._context.clock, self._left
        until_ms = clock.monotonic_ms() + _SLICE_MS
        at_a_time = flushed_at_a_time(self._context.files)
        while left and clock.monotonic_ms() <= until_ms:
            several = [left.popleft() for _ in range(min(_TAKEN_TOGETHER, len(left)))]
            try:
                for_each(self._action, several, at_a_time=at_a_time)
            except Exception as error:
                self._failure = self._failure or error
        if left:
            self._continue_later()
            return
        failure, self._failure = self._failure, None
        if self._end is not None:
            self._end()
        if failure is not None:
            raise failure

    def _continue_later(self) -> None:
        try:
            self._context.scheduler.after(0, self._name, self._go_on)
        except BaseException:
            self._left.clear()  # the next round begins anew
            raise


def for_each(
    action: Callable[[Log], object], logs: Iterable[Log], *, at_a_time: int = 1, flushes: bool = True
) -> None:
    """:func:`take_turns`, ignoring logs that were closed meanwhile, such as those of deleted topics.
    ``flushes``: the action may wait for a flush of the log.

    Raises:
        UsageError: the call comes from a signal handler, a finalizer or a callback that has interrupted a
            change of one of the logs, or its flush. Other threads would wait for that, and this thread for
            them.
    """
    logs = list(logs)
    if at_a_time > 1:
        for log in logs:
            log.writer.check_not_within(flushes=flushes)
    take_turns(action, logs, at_a_time=at_a_time, ignored=(ClosedError,))


def flush_each(logs: Sequence[Log], files: Files) -> None:
    """Make everything appended before the call durable in all of the logs.

    Raises:
        StorageError: an fsync failed; the other logs were flushed anyway.
    """
    at_a_time = 1
    if len(logs) > 1 and _is_long(logs):  # usually false; what follows takes time
        waiting = [log for log in logs if _is_behind(log)]
        if _is_long(waiting):
            at_a_time = min(len(waiting), flushed_at_a_time(files))
    for_each(Log.flush, logs, at_a_time=at_a_time)


def _is_behind(log: Log) -> bool:
    try:
        return not log.is_closed and log.durable_offset < log.log_end_offset
    except ClosedError:
        return False  # meanwhile, as by the deletion of its topic


def _is_long(logs: Iterable[Log]) -> bool:
    """Whether flushing one after the other takes long, judged by the last flush of each log."""
    return sum([log.last_flush_seconds for log in logs]) > WORTH_THREADS_SECONDS
