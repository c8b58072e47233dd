"""Reads old durable data again, slowly and in the background, because disks silently lose bits.

One pass goes over the sealed segments below the recovery point of every log, and checks what
:meth:`Log.verify` checks of a segment. It works in steps of the scheduler: each reads some pieces, bounded in
bytes and in time, and the next one follows when the rate allows it. Its position is kept only in memory. It
changes nothing, holds no lock, and leaves the system's cache as it finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from logstore.large_files import read_aside
from logstore.model import TopicPartition
from logstore.partition.checking.facts_of_writer import facts_to_scrub
from logstore.partition.checking.findings import VerifyReport
from logstore.partition.checking.verify import LogCheck
from logstore.partition.log import Log
from logstore.partition.state.context import LogContext
from logstore.warning import warn

STEP_MS: Final = 100
"""The longest time of a step, and the least time from the beginning of one to the next: flushes, which run in
the same thread, wait no longer than this."""
_MAX_WARNINGS = 10  # about one log in one pass


class Scrubber:
    """The passes over the logs of one directory. All of it runs in the scheduler's thread."""

    def __init__(self, context: LogContext, logs: Callable[[], list[Log]]) -> None:
        self.found: dict[TopicPartition, VerifyReport] = {}
        """The partitions in which the last check found damage."""
        self._context = context
        self._logs = logs
        self._steps: Iterator[int] = iter(())

    def start(self) -> None:
        """Schedule the passes, if the settings enable them."""
        interval_ms = self._context.config.scrub_interval_ms
        if interval_ms >= 0:
            self._context.scheduler.after(interval_ms, "scrub", self._begin)

    def _begin(self) -> None:
        self._steps = self._pass()
        self._continue()

    def _continue(self) -> None:
        """Do one step, and schedule the next one; or after a pause the next pass."""
        config, clock = self._context.config, self._context.clock
        rate = config.scrub_bytes_per_second
        deadline_ms = clock.monotonic_ms() + STEP_MS
        done_bytes = 0
        after = self._context.scheduler.after
        while done_bytes * 1000 < rate * STEP_MS and clock.monotonic_ms() < deadline_ms:
            step_bytes = next(self._steps, None)
            if step_bytes is None:
                after(config.scrub_interval_ms, "scrub", self._begin)
                return
            done_bytes += step_bytes
        after(max(done_bytes * 1000 // rate, STEP_MS), "scrub", self._continue)

    def _pass(self) -> Iterator[int]:
        logs = self._logs()
        for partition in self.found.keys() - {log.partition for log in logs}:
            del self.found[partition]
        for log in logs:
            try:
                yield from self._scrub(log)
            except Exception as error:  # also if memory ran out: the other logs are still scrubbed
                warn("%s could not be scrubbed: %s: %s", log.partition, type(error).__name__, error)

    def _scrub(self, log: Log) -> Iterator[int]:
        """Scrub one log. Findings are dropped if the log is cut, closed or deleted meanwhile."""
        if log.is_closed or log.needs_reopen:
            return
        started_ms = self._context.clock.monotonic_ms()
        facts = facts_to_scrub(log.writer)
        check = LogCheck(facts, lambda file: lambda position, size: read_aside(file, position, size))
        for step_bytes in check.segment_steps():
            yield step_bytes
            if log.is_closed:
                return
        report = check.findings.report(self._context.clock.monotonic_ms() - started_ms)
        if report.is_sound:
            self.found.pop(log.partition, None)
        elif not log.is_closed and not log.needs_reopen and facts_to_scrub(log.writer).stamp == facts.stamp:
            self.found[log.partition] = report
            for problem in report.problems[:_MAX_WARNINGS]:
                warn("scrubbing found damage in %s: %s", log.partition, problem)
