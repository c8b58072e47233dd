"""What the logs of a directory need from time to time: retention, checkpoints, forgetting idle producers.

Runs in the background by the scheduler of the directory, or when asked. Knows no topics. A failure in one log
leaves the others served.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from logstore.errors import ClosedError
from logstore.files import Files
from logstore.model import TopicPartition
from logstore.partition.log import Log
from logstore.partition.state.context import LogContext
from logstore.turns import WORTH_THREADS_SECONDS, flushed_at_a_time, take_if_free, take_turns


class Upkeep:
    """The repeated work on ``logs()``. ``lock`` is the one under which topics are deleted."""

    def __init__(self, context: LogContext, logs: Callable[[], list[Log]], lock: threading.RLock) -> None:
        self._context = context
        self._home = context.home
        self._logs = logs
        self._lock = lock

    def start(self) -> None:
        """Let the scheduler do all of it at its intervals."""
        every, config = self._context.scheduler.every, self._context.config
        every(config.log_retention_check_interval_ms, "retention", self.enforce_retention)
        every(config.log_flush_offset_checkpoint_interval_ms, "checkpoint", self.checkpoint)
        every(
            config.replica_high_watermark_checkpoint_interval_ms,
            "high watermarks",
            self.store_high_watermarks,
        )
        every(config.producer_id_expiration_check_interval_ms, "expire producers", self.expire_producers)

    def enforce_retention(self, *, dry_run: bool = False) -> dict[TopicPartition, int]:
        """Apply every topic's limits now. Returns the number of segments deleted (with ``dry_run``, that
        would be), for the partitions that have any."""
        counts: dict[TopicPartition, int] = {}

        def enforce(log: Log) -> None:
            count = log.enforce_retention(dry_run=dry_run)
            if count:
                counts[log.partition] = count

        for_each(enforce, self._logs())
        return counts

    def checkpoint(self) -> None:
        """Flush every log and store its recovery point: what the next open need not read."""
        try:
            for_each(self._checkpoint, self._logs(), at_a_time=flushed_at_a_time(self._context.files))
        finally:
            self._home.store_checkpoints()

    def _checkpoint(self, log: Log) -> None:
        if self._home.recovery_point(log.partition) != log.log_end_offset:
            log.prepare_checkpoint()

    def store_high_watermarks(self) -> None:
        """Store those that moved. Not while topics change or a partition is reopened, which may take long:
        the next time does as well, and flushes must not wait."""
        taken: list[bool] = []
        try:  # a topic that is deleted meanwhile must stay forgotten
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


def for_each(action: Callable[[Log], object], logs: Iterable[Log], *, at_a_time: int = 1) -> None:
    """:func:`take_turns` where a log whose topic was deleted meanwhile does not count."""

    def act(log: Log) -> None:
        try:
            action(log)
        except ClosedError:
            return

    take_turns(act, logs, at_a_time=at_a_time)


def flush_each(logs: Sequence[Log], files: Files) -> None:
    """Return when everything appended before the call is durable in all of the logs.

    Raises:
        StorageError: an fsync failed; the other logs were flushed all the same.
    """
    at_a_time = 1
    if _is_long(logs):  # mostly it is not, and the rest takes time
        waiting = [log for log in logs if not log.is_closed and log.durable_offset < log.log_end_offset]
        if _is_long(waiting):
            at_a_time = min(len(waiting), flushed_at_a_time(files))
    for_each(Log.flush, logs, at_a_time=at_a_time)


def _is_long(logs: Iterable[Log]) -> bool:
    """Whether flushing one after the other takes long, if it takes what the last times took."""
    return sum([log.last_flush_seconds for log in logs]) > WORTH_THREADS_SECONDS
