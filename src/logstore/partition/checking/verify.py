"""Checks a log without changing it: every batch, every index entry, and the files beside them.

A check works on :class:`LogFacts`, what a log must hold by its writer's memory or by its checkpoints, and
reads the files itself. So it runs beside appends, on a directory that another process writes, and on one that
could not be opened. Damage becomes a finding, never an exception.

A problem is reported only if two complete passes in a row find it in the same place. A finding caused by a
change of the log during the pass is gone, or elsewhere, in the next one. The duration of a pass does not
matter, so a slow disk or a machine that sleeps in between does no harm.

Memory: a piece of the log (256 KiB, or one batch if that is larger, and its records if they are compressed),
the index files of one segment, a producer snapshot, and the report. Time: docs/verify.md has the rates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator

from logstore.clock import Clock
from logstore.files import File
from logstore.model import TopicPartition
from logstore.partition.checking.checked_log import CheckedLog
from logstore.partition.checking.facts import LogFacts
from logstore.partition.checking.files import check_partition_files
from logstore.partition.checking.findings import (
    Finding,
    FindingKind,
    Findings,
    OnVerifyProgress,
    Place,
    VerifyProgress,
    VerifyReport,
)
from logstore.partition.checking.producers import TRANSACTION_TIMEOUT_MS
from logstore.partition.checking.segment import SegmentCheck
from logstore.partition.segments.walk import ReadAt

_LOOKS = 4
"""The most passes; the last two are compared. One pass is enough if it finds nothing."""

_PAUSE_S = 0.01
"""The pause between two passes that differ, so that the change under way can go on."""

OnStep = Callable[[int], None]
"""Called after each step of a check, with the number of bytes it read."""


def verify_log(
    source: Callable[[], LogFacts],
    clock: Clock,
    on_step: OnStep | None = None,
    *,
    segments_alone: bool = False,
) -> VerifyReport:
    """Check a log as ``source`` describes it at the moment, or with ``segments_alone`` only its segments. An
    exception in ``source``, for example because the log is gone, ends the check."""
    started_ms = clock.monotonic_ms()
    before: Collection[Place] | None = None
    for look in range(_LOOKS):
        facts = source()
        check = LogCheck(facts, now_ms=clock.now_ms())
        for step_bytes in check.segment_steps() if segments_alone else check.steps():
            if on_step is not None:
                on_step(step_bytes)
        findings = check.findings
        if not findings.problem_count:
            break
        found = {problem.place for problem in findings.problems}
        if found == before and source().stamp == facts.stamp:
            break
        if look == _LOOKS - 1:
            findings.keep_problems_of(before or ())
            _note_change(facts, findings)
        elif before is not None:
            time.sleep(_PAUSE_S)
        before = found
    return findings.report(clock.monotonic_ms() - started_ms)


def _note_change(facts: LogFacts, findings: Findings) -> None:
    findings.note(
        Finding(
            kind=FindingKind.CHANGED,
            path=facts.directory,
            reason="the log was truncated or compacted, or its beginning deleted, during the check",
        )
    )


class ProgressSteps:
    """Adds up the steps of a check and calls ``on_progress``."""

    def __init__(self, on_progress: OnVerifyProgress, total_bytes: int) -> None:
        self.partition: TopicPartition
        self._on_progress = on_progress
        self._total_bytes = total_bytes
        self._done_bytes = 0

    def __call__(self, step_bytes: int) -> None:
        self._done_bytes += step_bytes
        self._on_progress(VerifyProgress(self.partition, self._done_bytes, self._total_bytes))


class LogCheck:
    """One pass over a log."""

    def __init__(
        self, facts: LogFacts, reader_of: Callable[[File], ReadAt] | None = None, *, now_ms: int = 0
    ) -> None:
        """``now_ms``: the time for finding late transactions; 0 finds none."""
        self._facts = facts
        self._now_ms = now_ms
        self._log = CheckedLog(facts, reader_of)
        self.findings = self._log.findings

    def steps(self) -> Iterator[int]:
        """Run the check piece by piece; yields the number of log bytes read."""
        for finding in self._facts.findings:
            self.findings.problem(finding)
        check_partition_files(self._facts, self.findings)
        self._check_start()
        yield from self.segment_steps()
        log = self._log
        if log.has_ended:
            log.producers.meet_snapshots(min(log.end_offset, self._facts.trusted_end))
        else:
            self._check_end()
        self._check_loss()
        late = self._facts.late_producers
        if late is None:
            late = log.producers.late(self._now_ms, TRANSACTION_TIMEOUT_MS)
        for producer_id in late:
            self._note(FindingKind.LATE_TRANSACTION, f"producer {producer_id} left it open for too long")

    def segment_steps(self) -> Iterator[int]:
        """Check the segments alone."""
        for segment in self._log.segments:
            if not self._log.has_ended:
                yield from SegmentCheck(self._log, segment).steps()

    # Both ends

    def _check_start(self) -> None:
        facts = self._facts
        if not facts.segments:
            if facts.recovery_point > facts.log_start_offset:
                self._lose(FindingKind.MISSING_SEGMENT, "there is no segment")
            return
        base = facts.segments[0].base_offset
        entries = facts.epochs.entries if facts.epochs is not None else ()
        if entries and entries[0].start_offset < min(base, facts.log_start_offset):
            if facts.deleted_below >= base:
                self._note(FindingKind.UNFINISHED, f"the log now begins at {base}, but its epochs not yet")
                return
            self._lose(
                FindingKind.MISSING_SEGMENT,
                f"the history of leader epochs begins at {entries[0].start_offset}, which was not deleted, "
                f"but the first segment at {base}",
            )

    def _check_end(self) -> None:
        """Check the log end, after all segments were walked to their ends."""
        facts, log = self._facts, self._log
        wanted = facts.log_end_offset
        if log.is_behind_damage:
            return
        if wanted is not None and log.end_offset != wanted:
            self._lose(
                FindingKind.OFFSETS,
                f"the last batch ends with {log.end_offset - 1}; the log with {wanted - 1}",
            )
        last = facts.epochs.entries[-1] if facts.epochs is not None and facts.epochs.entries else None
        if wanted is not None and last is not None and last.start_offset > wanted:
            self._lose(
                FindingKind.LEADER_EPOCH,
                f"epoch {last.epoch} begins at {last.start_offset}, behind the log end {wanted}",
            )
        log.producers.finish(log.end_offset, facts.producers)

    def _check_loss(self) -> None:
        facts, log = self._facts, self._log
        if log.end_offset < facts.recovery_point and not log.is_behind_damage and facts.segments:
            self._lose(
                FindingKind.OFFSETS,
                f"everything below offset {facts.recovery_point} was durable; the log ends at "
                f"{log.end_offset}",
            )

    def _lose(self, kind: FindingKind, reason: str) -> None:
        self.findings.problem(Finding(kind=kind, path=self._facts.directory, reason=reason))

    def _note(self, kind: FindingKind, reason: str) -> None:
        self.findings.note(Finding(kind=kind, path=self._facts.directory, reason=reason))
