"""What the cleaner knows about one log: the current round, how the last one ended, when to try again.

Values and their rules; no threads and no files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from logstore.config import LEAST_CLEANER_MAP_BYTES
from logstore.errors import without_frames
from logstore.model import TopicPartition
from logstore.partition.cleaning.dirtiness import Dirtiness
from logstore.partition.cleaning.reports import CompactionReport
from logstore.partition.log import Log
from logstore.warning import warn

CleanerState = Literal["idle", "cleaning", "waiting to retry"]

LONGEST_RETRY_MS: Final = 3_600_000
"""The longest wait before the next attempt, however often a log has failed."""

_MAX_WARNINGS = 10  # about one log, until it is cleaned again


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanerStatus:
    """The state of one compacted log. Times are milliseconds since the epoch."""

    partition: TopicPartition
    state: CleanerState
    """``idle``: it is not dirty enough, or its turn will come."""
    progress: float | None
    """From 0 to 1 while the log is being compacted: the progress of the present round. A log with more keys
    than fit in memory takes several rounds."""
    dirtiness: Dirtiness | None
    """The present dirtiness. None if it cannot be determined; the next attempt then fails with the reason."""
    last_report: CompactionReport | None
    """The report of the last compaction since the log was opened, by the cleaner or by
    :meth:`.Store.compact`."""
    last_report_ms: int | None
    last_error: Exception | None
    """The error of the last attempt; None if it succeeded."""
    last_error_ms: int | None
    failed_attempt_count: int
    """How many attempts in a row have failed."""
    retry_at_ms: int | None
    """When the next attempt may start; None if there is nothing to wait for."""

    @property
    def dirty_ratio(self) -> float:
        """The dirty share of the log's clean and cleanable bytes, 0 to 1."""
        return self.dirtiness.ratio if self.dirtiness is not None else 0.0

    @property
    def cleanable_bytes(self) -> int:
        """Bytes that wait to be compacted, and can be now."""
        return self.dirtiness.cleanable_bytes if self.dirtiness is not None else 0


def retry_delay_ms(failed_count: int, backoff_ms: int) -> int:
    """How long to wait after ``failed_count`` failures in a row: twice as long each time, up to an hour."""
    longest_ms = max(backoff_ms, LONGEST_RETRY_MS)
    return min(backoff_ms << min(failed_count - 1, 63), longest_ms)


class LogCleaning:
    """One log and its rounds. The cleaner's lock guards all of it."""

    __slots__ = (
        "_failed_count",
        "_last_error",
        "_last_error_ms",
        "_last_report",
        "_last_report_ms",
        "_memory_failed_count",
        "_not_before_ms",
        "_retry_at_ms",
        "_warned",
        "is_busy",
        "log",
        "progress",
    )

    def __init__(self, log: Log) -> None:
        self.log = log
        self.is_busy = False
        """Whether a thread of the cleaner has taken the log."""
        self.progress = 0.0
        self._last_report: CompactionReport | None = None
        self._last_report_ms: int | None = None
        self._last_error: Exception | None = None
        self._last_error_ms: int | None = None
        self._failed_count = 0
        self._memory_failed_count = 0
        self._not_before_ms: int | None = None
        self._retry_at_ms: int | None = None
        self._warned: set[str] = set()

    def is_due(self, monotonic_ms: int) -> bool:
        """Whether a round may begin."""
        return not self.is_busy and (self._not_before_ms is None or self._not_before_ms <= monotonic_ms)

    def map_bytes_of(self, share_bytes: int) -> int:
        """The memory for the next attempt: ``share_bytes``, halved for each time that memory ran out. It
        stays small after a success: with a map too large for the machine, every second attempt would fail."""
        return max(share_bytes >> self._memory_failed_count, LEAST_CLEANER_MAP_BYTES)

    def begin(self) -> None:
        self.is_busy = True
        self.progress = 0.0

    def rest(self, until_ms: int) -> None:
        """Leave the log alone for a while: the round changed nothing, so another one now would not either."""
        self._not_before_ms = until_ms

    def succeed(self, report: CompactionReport, now_ms: int) -> None:
        self._last_report, self._last_report_ms = report, now_ms
        self._last_error = self._last_error_ms = self._retry_at_ms = self._not_before_ms = None
        self._failed_count = 0
        self._warned.clear()

    def fail(self, error: Exception, now_ms: int, monotonic_ms: int, backoff_ms: int) -> None:
        """Remember the error, and log a warning unless the same one was logged already."""
        self._failed_count += 1
        self._memory_failed_count += isinstance(error, MemoryError)
        delay_ms = retry_delay_ms(self._failed_count, backoff_ms)
        self._last_error, self._last_error_ms = without_frames(error), now_ms
        self._not_before_ms = monotonic_ms + delay_ms
        self._retry_at_ms = now_ms + delay_ms
        told = f"{type(error).__name__}: {error}"
        if told not in self._warned and len(self._warned) < _MAX_WARNINGS:
            self._warned.add(told)
            warn("%s could not be compacted, and is tried again: %s", self.log.partition, told)

    def status(self, dirtiness: Dirtiness | None, *, is_taken: bool) -> CleanerStatus:
        """``is_taken``: the log is being compacted, by the cleaner or by a caller."""
        state: CleanerState = "idle"
        if is_taken:
            state = "cleaning"
        elif self._last_error is not None:
            state = "waiting to retry"
        return CleanerStatus(
            partition=self.log.partition,
            state=state,
            progress=self.progress if self.is_busy and is_taken else None,
            dirtiness=dirtiness,
            last_report=self._last_report,
            last_report_ms=self._last_report_ms,
            last_error=self._last_error,
            last_error_ms=self._last_error_ms,
            failed_attempt_count=self._failed_count,
            retry_at_ms=self._retry_at_ms,
        )
