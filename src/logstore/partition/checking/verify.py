"""Checking a log without changing it: every batch, every index entry, and what is kept beside them.

A check works on :class:`LogFacts`, what a log must hold by its writer's memory or by its checkpoints, and
reads the files itself. So it runs beside appends, on a directory that another process writes, and on one that
could not be opened. Damage becomes a finding, never an exception.

A problem is reported only if two complete looks, one after the other, find it in the same place: what a look
finds because the log was changed under it is gone, or elsewhere, at the next one. How long a look takes does
not matter, so neither does a slow disk, or a machine that sleeps in between.

Memory: a piece of the log (256 KiB, or one batch if that is larger, and its records if they are compressed),
the index files of one segment, a producer snapshot, and the report. Time: docs/verify.md has the rates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from logstore.clock import Clock
from logstore.files import File, Files
from logstore.format.header import MAGIC, NO_EPOCH, BatchHeader
from logstore.model import TopicPartition
from logstore.partition.checking.files import StoredCheckpoints, check_partition_files
from logstore.partition.checking.findings import (
    Finding,
    FindingKind,
    Findings,
    OnVerifyProgress,
    Place,
    VerifyProgress,
    VerifyReport,
)
from logstore.partition.checking.producers import TRANSACTION_TIMEOUT_MS, ProducerCheck
from logstore.partition.checking.segment import SegmentCheck, SegmentToCheck
from logstore.partition.recovery.leftovers import Names, snapshot_offsets
from logstore.partition.segments.walk import ReadAt
from logstore.partition.state.leader_epochs import LeaderEpochs
from logstore.partition.state.producer_state import ProducerState

if TYPE_CHECKING:
    from logstore.partition.reading.readable import ReadableLog

EVERYTHING: Final = 2**63 - 1
"""A ``trusted_end`` above all offsets."""

_LOOKS = 4
"""At most so many, of which the last two are compared. One look suffices where it finds nothing."""

_PAUSE_S = 0.01
"""Between two looks that do not agree: whoever changes the log may get on."""

OnStep = Callable[[int], None]
"""Told of each step of a check, with the bytes that it read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFacts:
    """What a log must hold."""

    files: Files
    directory: str
    segments: Sequence[SegmentToCheck]
    log_bytes: int
    """Of the .log files."""
    names: Names
    """The files of the directory that belong to segments."""
    log_start_offset: int
    log_end_offset: int | None
    """None: what the files say."""
    recovery_point: int
    trusted_end: int
    """Below it everything is durable and must be right, indexes and snapshots too: EVERYTHING for what a
    writer has open or closed cleanly, else the recovery point."""
    dense_from: int | None
    """From here on a gap means loss; None: never."""
    notes_gaps: bool
    """Whether a gap is worth a note: not where compaction leaves them."""
    index_interval_bytes: int
    index_limit_bytes: int
    deleted_below: int = 0
    """Below it somebody has deleted the log, by the stored log start."""
    swapped: frozenset[str] = frozenset()
    """The names of those files that count as segments already and have not got their plain names yet."""
    epochs: LeaderEpochs | None
    """None: unknown."""
    epochs_complete_to: int = EVERYTHING
    """From there on batches may have newer epochs: a writer stores those with its next checkpoint."""
    producers: Mapping[int, ProducerState] | None
    """As they are in memory; None: nobody has them."""
    late_producers: Sequence[int] | None = ()
    """Whose transactions should have ended; None: what the batches say."""
    findings: Sequence[Finding] = ()
    """What is wrong with these facts themselves."""
    stamp: object
    """Another one when something that was there may be there no more."""


def verify_log(source: Callable[[], LogFacts], clock: Clock, on_step: OnStep | None = None) -> VerifyReport:
    """Check a log as ``source`` describes it at the moment. What ``source`` raises, as where the log is gone
    by now, ends the check."""
    started_ms = clock.monotonic_ms()
    before: Collection[Place] | None = None
    for look in range(_LOOKS):
        facts = source()
        check = LogCheck(facts, now_ms=clock.now_ms())
        for step_bytes in check.steps():
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
            reason="the log was truncated or compacted, or its beginning deleted, meanwhile",
        )
    )


def verify_alone(log: ReadableLog, on_progress: OnVerifyProgress | None) -> VerifyReport:
    """What :meth:`ReadableLog.verify` does: the log, and the checkpoint files beside it."""
    context = log._context
    checkpoints = StoredCheckpoints(context.files, context.home.path)

    def source() -> LogFacts:
        facts = log._facts(checkpoints)
        return replace(facts, findings=[*facts.findings, *checkpoints.findings])

    steps = None
    if on_progress is not None:
        steps = ProgressSteps(on_progress, source().log_bytes)
        steps.partition = log.partition
    return verify_log(source, context.clock, steps)


class ProgressSteps:
    """Adds up the steps of a check for somebody who wants to know."""

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
        """``now_ms``: 0 where nobody asks for transactions that are late."""
        self.facts = facts
        self._now_ms = now_ms
        self.findings = Findings()
        self.reader_of = reader_of or (lambda file: file.read_at)
        self._wanted = [segment for segment in facts.segments if not _is_deleted(segment, facts)]
        self.end_offset = self._wanted[0].base_offset if self._wanted else facts.log_start_offset
        """After the last batch that was met."""
        self.is_behind_damage = False
        """Batches in front of this place could not be read."""
        self.has_ended = False
        """What follows is no part of the log, or not yet."""
        self.epochs = EpochCheck(facts.epochs, facts.log_start_offset, facts.epochs_complete_to)
        self._bases = frozenset(segment.base_offset for segment in facts.segments)
        self._snapshots = snapshot_offsets(facts.names)
        last = facts.trusted_end if facts.log_end_offset is None else facts.log_end_offset
        self.producers = ProducerCheck(
            self.findings,
            facts.files,
            facts.directory,
            self.end_offset,
            [offset for offset in self._snapshots if offset <= min(last, facts.trusted_end)],
        )

    def steps(self) -> Iterator[int]:
        """Do it, piece by piece; yields the bytes of the log that were read."""
        for finding in self.facts.findings:
            self.findings.problem(finding)
        check_partition_files(self.facts, self.findings)
        self._check_start()
        yield from self.segment_steps()
        if self.has_ended:
            self.producers.meet_snapshots(min(self.end_offset, self.facts.trusted_end))
        else:
            self._check_end()
        self._check_loss()
        late = self.facts.late_producers
        if late is None:
            late = self.producers.late(self._now_ms, TRANSACTION_TIMEOUT_MS)
        for producer_id in late:
            self._note(FindingKind.LATE_TRANSACTION, f"that of producer {producer_id} is open for long")

    def segment_steps(self) -> Iterator[int]:
        """Check the segments alone."""
        for segment in self._wanted:
            if not self.has_ended:
                yield from SegmentCheck(self, segment).steps()

    # Segments

    def begin_segment(self, base_offset: int, path: str) -> None:
        """The next batches are those of the segment with this base offset."""
        start = self.end_offset
        if start < base_offset and not self.is_behind_damage:
            self._meet_gap(start, base_offset, path)
        if not self.has_ended:
            self.end_offset = base_offset
        self.is_behind_damage = False

    def _meet_gap(self, start: int, stop: int, path: str) -> None:
        """Between two segments. A truncation inside of a batch leaves one; so does a segment that was lost,
        but that leaves its producer snapshot, or the beginning of its leader's epoch."""
        self.producers.is_complete = False
        offsets = f"offsets {start} to {stop - 1} are in no segment"
        if start >= self.facts.trusted_end and self.is_dense_at(stop):
            self._end_in_front_of(f"{offsets}, above the recovery point", path, start)
            return
        if self.is_dense_at(stop):
            kind, reason = FindingKind.GAP, f"{offsets}, above the recovery point"
        elif self.facts.notes_gaps and self._was_segment(start, stop):
            kind, reason = FindingKind.MISSING_SEGMENT, f"{offsets}, but other files say that there was one"
        else:
            if self.facts.notes_gaps:
                self.findings.note(Finding(kind=FindingKind.GAP, path=path, reason=offsets))
            return
        self.findings.problem(
            Finding(kind=kind, path=path, base_offset=start, last_offset=stop - 1, reason=reason)
        )

    def _end_in_front_of(self, reason: str, path: str, end: int) -> None:
        """A power cut took the end of a segment which nobody had flushed, and left the next one: the log ends
        there for whoever opens it, and what is behind is kept aside."""
        self.has_ended, self.end_offset = True, end
        self.findings.note(Finding(kind=FindingKind.TORN_END, path=path, base_offset=end, reason=reason))

    def _was_segment(self, start: int, stop: int) -> bool:
        if any(start <= offset < stop and offset not in self._bases for offset in self._snapshots):
            return True
        # Who deletes the log's beginning moves the beginning of an epoch with it: that tells of nothing.
        start = max(start, self.facts.log_start_offset)
        entries = self.facts.epochs.entries if self.facts.epochs is not None else ()
        return any(start < entry.start_offset < stop for entry in entries)

    def is_dense_at(self, offset: int) -> bool:
        """Whether a gap right below ``offset`` means loss."""
        return self.facts.dense_from is not None and offset > self.facts.dense_from

    # Both ends

    def _check_start(self) -> None:
        facts = self.facts
        if not facts.segments:
            if facts.recovery_point > facts.log_start_offset:
                self._lose(FindingKind.MISSING_SEGMENT, "there is no segment")
            return
        base = facts.segments[0].base_offset
        entries = facts.epochs.entries if facts.epochs is not None else ()
        if entries and entries[0].start_offset < min(base, facts.log_start_offset):
            if facts.deleted_below >= base:
                self._note(
                    FindingKind.UNFINISHED, f"the log was made to begin at {base}, but its epochs not yet"
                )
                return
            self._lose(
                FindingKind.MISSING_SEGMENT,
                f"the history of leader epochs begins at {entries[0].start_offset}, which nobody deleted, "
                f"but the first segment at {base}",
            )

    def _check_end(self) -> None:
        """All segments were walked to their ends."""
        facts = self.facts
        wanted = facts.log_end_offset
        if self.is_behind_damage:
            return
        if wanted is not None and self.end_offset != wanted:
            self._lose(
                FindingKind.OFFSETS,
                f"the last batch ends with {self.end_offset - 1}; the log with {wanted - 1}",
            )
        last = facts.epochs.latest if facts.epochs is not None else None
        if wanted is not None and last is not None and last.start_offset > wanted:
            self._lose(
                FindingKind.LEADER_EPOCH,
                f"epoch {last.epoch} begins at {last.start_offset}, behind the log end {wanted}",
            )
        self.producers.finish(self.end_offset, facts.producers)

    def _check_loss(self) -> None:
        if self.end_offset < self.facts.recovery_point and not self.is_behind_damage and self.facts.segments:
            self._lose(
                FindingKind.OFFSETS,
                f"everything below offset {self.facts.recovery_point} was durable; the log ends at "
                f"{self.end_offset}",
            )

    def _lose(self, kind: FindingKind, reason: str) -> None:
        self.findings.problem(Finding(kind=kind, path=self.facts.directory, reason=reason))

    def _note(self, kind: FindingKind, reason: str) -> None:
        self.findings.note(Finding(kind=kind, path=self.facts.directory, reason=reason))


def _is_deleted(segment: SegmentToCheck, facts: LogFacts) -> bool:
    """Whether nobody can read it any more: recovery does not look at it either."""
    return segment.next_base is not None and segment.next_base <= facts.log_start_offset


class EpochCheck:
    """Holding the leader epochs of batches against the history."""

    def __init__(
        self, history: LeaderEpochs | None, log_start_offset: int, complete_to: int = EVERYTHING
    ) -> None:
        self.epoch = -1
        """Of all batches up to :attr:`valid_to`; another one must be looked at."""
        self.valid_to = -1
        self._history = history
        self._log_start_offset = log_start_offset
        self._complete_to = complete_to
        self._latest = -1

    def meet(self, header: BatchHeader) -> str | None:
        """What is wrong with the batch's epoch."""
        epoch = header.partition_leader_epoch
        if epoch < NO_EPOCH:
            return f"leader epoch {epoch}"
        if header.magic < MAGIC or epoch < 0:
            return None
        if self._history is None:
            return self._meet_unknown(epoch)
        entries = self._history.entries
        if header.base_offset >= self._complete_to and epoch > (entries[-1].epoch if entries else NO_EPOCH):
            return self._meet_unknown(epoch)
        if not entries:
            is_deleted = header.last_offset < self._log_start_offset  # the history of that is not kept
            return None if is_deleted else f"leader epoch {epoch}; the history has none"
        covering = self._history.epoch_for_offset(header.last_offset)
        if covering is None:  # below the log start, where nobody remembers
            return (
                None if epoch <= entries[0].epoch else f"leader epoch {epoch} in front of {entries[0].epoch}"
            )
        if covering != epoch:
            return f"leader epoch {epoch}; the history says {covering}"
        begins = self._history.epoch_for_offset(header.base_offset)
        if begins is not None and begins != epoch:
            return f"the history begins leader epoch {epoch} inside of the batch"
        following = [entry.start_offset for entry in entries if entry.epoch > epoch]
        self.epoch, self.valid_to = epoch, (following[0] if following else EVERYTHING) - 1
        return None

    def _meet_unknown(self, epoch: int) -> str | None:
        """Without a history, epochs must not fall."""
        before, self._latest = self._latest, max(self._latest, epoch)
        return f"leader epoch {epoch} behind {before}" if epoch < before else None
