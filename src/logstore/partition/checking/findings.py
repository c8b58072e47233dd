"""The findings of a check, and the report that holds them.

Values only. :mod:`~logstore.partition.checking.verify` makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from logstore.errors import CorruptionError, LogstoreError
from logstore.model import TopicPartition

MAX_KEPT_FINDINGS: Final = 1000
"""How many problems a report holds, and how many notes of each kind. This bounds its memory."""

_SHOWN_NOTES = 10
"""Notes of one kind in the text of a report: a log that was just compacted has hundreds of leftovers."""


class FindingKind(Enum):
    """What is wrong, or worth knowing."""

    BATCH = "batch"
    """A batch whose checksum or structure is wrong, or bytes that are not a batch."""
    RECORDS = "records"
    """A batch whose checksum is right, but whose records do not decode, or contradict its header."""
    OFFSETS = "offsets"
    """Batches whose offsets are not in order."""
    GAP = "gap"
    """Offsets that no batch has. A problem if the log must not have gaps there, otherwise a note."""
    MISSING_SEGMENT = "missing segment"
    LEADER_EPOCH = "leader epoch"
    """A batch whose leader epoch is not the one in the epoch history."""
    SIZE = "size"
    """A file that is shorter or longer than the writer left it."""
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"
    SNAPSHOT = "producer snapshot"
    PRODUCERS = "producers"
    """The producers' state in memory does not agree with the batches."""
    CHECKPOINT = "checkpoint"
    """A checkpoint file that does not parse, or has an impossible offset."""
    METADATA = "metadata"
    UNREADABLE = "unreadable"
    """The disk refused to read a file."""
    NOT_OPENED = "not opened"
    """A partition that could not be opened for writing."""
    TORN_END = "torn end"
    """Only a note: bytes after the last whole batch, above what was durable."""
    MISSING_INDEX = "missing index"
    """Only a note: an index file that is not there."""
    SPARSE_INDEX = "sparse index"
    """Only a note: batches without an index entry for longer than the index interval."""
    WIDE_INDEX_ENTRY = "wide index entry"
    """Only a note: an index entry that leads to the right place, but not as logstore writes it."""
    LATE_TRANSACTION = "late transaction"
    """Only a note: a transaction that was left open."""
    LEFTOVER = "leftover"
    """Only a note: a file that no log uses."""
    UNFINISHED = "unfinished"
    """Only a note: the writer stopped in the middle of a step, or is still in it. The next open for writing
    finishes it."""
    CHANGED = "changed"
    """Only a note: the log was truncated, or its beginning deleted, repeatedly while it was checked."""


_RESTORE = (
    "The records are damaged on disk: restore the file from a copy, or read the records before and behind "
    "them; reopen(accept_loss=True) would cut the log here."
)
_REBUILT = "No record is lost: remove the file while the store is closed, and it is rebuilt from the log."

_NEXT_STEPS: Final = {
    FindingKind.BATCH: _RESTORE,
    FindingKind.RECORDS: "It was written like that: check the program that wrote it. fetch() has the bytes.",
    FindingKind.OFFSETS: _RESTORE,
    FindingKind.GAP: (
        "If the log was not truncated or replicated there, records were lost: compare it with a copy."
    ),
    FindingKind.MISSING_SEGMENT: "Restore the segment's files from a copy.",
    FindingKind.LEADER_EPOCH: (
        "The records are right, but a follower might cut its log at a wrong offset. Restore the file."
    ),
    FindingKind.SIZE: "Something other than logstore changed the file: restore it from a copy.",
    FindingKind.OFFSET_INDEX: _REBUILT,
    FindingKind.TIME_INDEX: _REBUILT,
    FindingKind.TRANSACTION_INDEX: (
        "Readers of committed data may see aborted records, or stop: restore the file from a copy."
    ),
    FindingKind.SNAPSHOT: "No record is lost: remove it while the store is closed; an older one is used.",
    FindingKind.PRODUCERS: "Close the store and open it again: the state is then read from the log.",
    FindingKind.CHECKPOINT: "The next checkpoint replaces it; a crash before that costs more reading.",
    FindingKind.METADATA: "Restore the file from a copy.",
    FindingKind.UNREADABLE: "Check the disk and its errors, and copy what can be read to another disk.",
    FindingKind.NOT_OPENED: (
        "Restore its files and call reopen(); reopen(accept_loss=True) cuts the log where it is damaged."
    ),
    FindingKind.TORN_END: "An append is under way, or the next open for writing cuts it off and keeps it.",
    FindingKind.MISSING_INDEX: "It is built from the log when it is next used.",
    FindingKind.SPARSE_INDEX: "Reads there are right but slower: due to other settings or another writer.",
    FindingKind.WIDE_INDEX_ENTRY: "Reads are right; brokers before Kafka 4.0 write such entries.",
    FindingKind.LATE_TRANSACTION: "Readers of committed data wait for its end: append_end_marker() ends it.",
    FindingKind.LEFTOVER: "It is removed later, or by the next open for writing; .torn- files stay for you.",
    FindingKind.UNFINISHED: "Nothing is lost: the next open for writing finishes it, if the writer does not.",
    FindingKind.CHANGED: "Verify again when the log is not being changed.",
}


Place = tuple[FindingKind, str, int | None, int | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that a check found."""

    kind: FindingKind
    path: str
    """The file, or the directory."""
    reason: str
    """What is wrong, in words."""
    position: int | None = None
    """Where in the file, in bytes."""
    base_offset: int | None = None
    """The first affected record; None if there is none or it is not known."""
    last_offset: int | None = None

    @property
    def next_step(self) -> str:
        """What to do about it."""
        return _NEXT_STEPS[self.kind]

    @property
    def place(self) -> Place:
        """Equal if two passes find the same problem. The reason may differ in a log that grows."""
        return self.kind, self.path, self.position, self.base_offset

    def __str__(self) -> str:
        where = [self.path]
        if self.position is not None:
            where.append(f"position {self.position}")
        if self.base_offset is not None:
            where.append(f"offset {self.base_offset}")
        if self.last_offset is not None and self.last_offset != self.base_offset:
            where.append(f"to {self.last_offset}")
        return f"{self.kind.value}: {self.reason} ({', '.join(where)}). {self.next_step}"


def not_opened_finding(directory: str, error: LogstoreError) -> Finding:
    """That a partition could not be opened, and why: at the place that the error names, if it names one."""
    if not isinstance(error, CorruptionError) or error.path is None:
        return Finding(kind=FindingKind.NOT_OPENED, path=directory, reason=str(error))
    return Finding(
        kind=FindingKind.NOT_OPENED,
        path=error.path,
        reason=error.reason,
        position=error.position,
        base_offset=error.base_offset,
        last_offset=error.last_offset,
    )


class VerifyProgress(NamedTuple):
    """The progress of a check; passed to the ``on_progress`` of the ``verify`` methods after each piece."""

    partition: TopicPartition
    """The partition that is being checked."""
    done_bytes: int
    """Bytes of ``.log`` files that were checked, in all partitions together."""
    total_bytes: int
    """The size of these files at the beginning. ``done_bytes`` may exceed it if a log grows or is checked
    again."""


OnVerifyProgress = Callable[[VerifyProgress], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """What was checked and what was found. True if there is no problem: ``assert log.verify()``."""

    problems: tuple[Finding, ...] = ()
    """The first 1,000 problems."""
    notes: tuple[Finding, ...] = ()
    """Findings that are not wrong but worth knowing: the first 1,000 of each kind."""
    problem_count: int = 0
    """The number of all problems, including those not listed."""
    partition_count: int = 1
    segment_count: int = 0
    batch_count: int = 0
    """Sound batches."""
    record_count: int = 0
    """Records in sound batches."""
    log_bytes: int = 0
    """Bytes of ``.log`` files that were read."""
    duration_ms: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether there is no problem."""
        return not self.problem_count

    def __bool__(self) -> bool:
        return self.is_sound

    def __str__(self) -> str:
        verdict = "sound" if self.is_sound else _counted(self.problem_count)
        lines = [
            f"{verdict}: {self.record_count} records in {self.batch_count} batches, {self.segment_count} "
            f"segments, {self.partition_count} partitions; {self.log_bytes} bytes in {self.duration_ms} ms"
        ]
        lines += [f"  {problem}" for problem in self.problems]
        if self.problem_count > len(self.problems):
            lines.append(f"  and {_counted(self.problem_count - len(self.problems), 'more ')}")
        return "\n".join([*lines, *self._note_lines()])

    def _note_lines(self) -> Iterator[str]:
        """The lines of the notes, grouped by kind, a few of each."""
        for kind in dict.fromkeys(note.kind for note in self.notes):
            notes = [note for note in self.notes if note.kind is kind]
            yield from (f"  note: {note}" for note in notes[:_SHOWN_NOTES])
            if len(notes) > _SHOWN_NOTES:
                yield f"  and {len(notes) - _SHOWN_NOTES} more notes of the kind {kind.value}"

    def __repr__(self) -> str:
        kinds = ", ".join(dict.fromkeys(problem.kind.value for problem in self.problems))
        found = f"{_counted(self.problem_count)}: {kinds}" if self.problem_count else "sound"
        return f"<VerifyReport {found}; {self.batch_count} batches, {self.log_bytes} bytes>"

    def _repr_html_(self) -> str:
        """The view in a notebook: the counts and the findings."""
        from logstore.showing import show_report, table_of_findings  # few programs get here

        return show_report(
            self,
            "VerifyReport: " + ("sound" if self.is_sound else _counted(self.problem_count)),
            problems=table_of_findings("problem", self.problems, self.problem_count),
            notes=table_of_findings("note", self.notes, len(self.notes)),
        )


def _counted(count: int, what: str = "") -> str:
    return f"{count} {what}problem{'' if count == 1 else 's'}"


@dataclass(slots=True)
class Findings:
    """A report under construction."""

    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    problem_count: int = 0
    partition_count: int = 1
    segment_count: int = 0
    batch_count: int = 0
    record_count: int = 0
    log_bytes: int = 0
    _note_counts: dict[FindingKind, int] = field(default_factory=dict)

    def problem(self, finding: Finding) -> None:
        self.problem_count += 1
        if len(self.problems) < MAX_KEPT_FINDINGS:
            self.problems.append(finding)

    def keep_problems_of(self, places: Collection[Place]) -> None:
        """Drop problems that an earlier pass did not find in the same place, for example because files were
        just replaced. Damage stays in its place: a damaged file is never replaced."""
        if self.problem_count <= MAX_KEPT_FINDINGS:
            self.problems = [each for each in self.problems if each.place in places]
            self.problem_count = len(self.problems)

    def note(self, finding: Finding) -> None:
        count = self._note_counts[finding.kind] = self._note_counts.get(finding.kind, 0) + 1
        if count <= MAX_KEPT_FINDINGS:  # of each kind: many leftovers must not hide a gap
            self.notes.append(finding)

    def report(self, duration_ms: int) -> VerifyReport:
        return VerifyReport(
            problems=tuple(self.problems),
            notes=tuple(self.notes),
            problem_count=self.problem_count,
            partition_count=self.partition_count,
            segment_count=self.segment_count,
            batch_count=self.batch_count,
            record_count=self.record_count,
            log_bytes=self.log_bytes,
            duration_ms=duration_ms,
        )


def join_reports(reports: Iterable[VerifyReport], duration_ms: int) -> VerifyReport:
    """One report of several partitions."""
    whole = Findings(partition_count=0)
    for report in reports:
        for problem in report.problems:
            whole.problem(problem)
        for note in report.notes:
            whole.note(note)
        whole.problem_count += report.problem_count - len(report.problems)
        whole.partition_count += report.partition_count
        whole.segment_count += report.segment_count
        whole.batch_count += report.batch_count
        whole.record_count += report.record_count
        whole.log_bytes += report.log_bytes
    return whole.report(duration_ms)
