"""Checks the small files of a partition, and the other files in its directory."""

from __future__ import annotations

from logstore.errors import CorruptionError, LogstoreError, is_denied
from logstore.files import Files, read_small_file
from logstore.format.checkpoint import decode_epoch_checkpoint, decode_offset_checkpoint
from logstore.format.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from logstore.model import TopicPartition
from logstore.partition.checking.facts import LogFacts
from logstore.partition.checking.findings import Finding, FindingKind, Findings
from logstore.partition.recovery.aside import TORN_MARK
from logstore.partition.state.home import (
    CLEANER_OFFSETS_NAME,
    HIGH_WATERMARKS_NAME,
    LEADER_EPOCH_NAME,
    LOG_STARTS_NAME,
    LOST_ENDS_NAMES,
    MAX_CHECKPOINT_BYTES,
    RECOVERY_POINTS_NAME,
)
from logstore.partition.state.leader_epochs import LeaderEpochs
from logstore.partition.state.sidecars import EPOCHS_NAME, MAX_EPOCHS_BYTES, METADATA_NAME, read_topic_id

_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def check_partition_files(facts: LogFacts, findings: Findings) -> None:
    """Check names, leftovers and the topic's id. The epoch file was already read for the facts."""
    try:
        entries = facts.files.list_directory(facts.directory)
    except LogstoreError as error:
        if is_denied(error):
            raise
        is_told = any(each.kind is FindingKind.NOT_OPENED for each in facts.findings)
        if not is_told or facts.files.is_directory(facts.directory):
            findings.problem(Finding(kind=FindingKind.UNREADABLE, path=facts.directory, reason=str(error)))
        return
    names = {entry.name for entry in entries if not entry.is_directory}
    bases = {segment.base_offset for segment in facts.segments}
    for name in sorted(names):
        parsed = facts.names.get(name)
        is_left = TORN_MARK in name or name.endswith(TEMPORARY_SUFFIX)
        if name in facts.swapped:
            _note(facts, findings, FindingKind.UNFINISHED, name, "it is about to get its plain name")
        elif is_left or (parsed is not None and parsed.state):
            _note_leftover(facts, findings, name)
        elif parsed is not None and parsed.suffix in _INDEX_SUFFIXES and parsed.base_offset not in bases:
            _meet_orphan(facts, findings, name, parsed.base_offset, names)
    try:
        read_topic_id(facts.files, facts.directory)
    except LogstoreError as error:
        if is_denied(error):
            raise
        findings.problem(
            Finding(kind=FindingKind.METADATA, path=f"{facts.directory}/{METADATA_NAME}", reason=str(error))
        )


def _note_leftover(facts: LogFacts, findings: Findings, name: str) -> None:
    _note(facts, findings, FindingKind.LEFTOVER, name, "no log uses it")


def _note(facts: LogFacts, findings: Findings, kind: FindingKind, name: str, reason: str) -> None:
    findings.note(Finding(kind=kind, path=f"{facts.directory}/{name}", reason=reason))


def _meet_orphan(facts: LogFacts, findings: Findings, name: str, base: int, names: set[str]) -> None:
    """Report an index without its log: the log was just deleted, a file is about to be renamed to it, a power
    cut took the log's name from a new segment, or it is lost."""
    log_name = segment_file_name(base, LOG_SUFFIX)
    if not names.isdisjoint((log_name, log_name + DELETED_SUFFIX, log_name + TEMPORARY_SUFFIX)):
        _note_leftover(facts, findings, name)
        return
    if base >= facts.trusted_end:
        reason = "a segment was begun but has no log: none of it was durable"
        _note(facts, findings, FindingKind.UNFINISHED, name, reason)
        return
    findings.problem(
        Finding(
            kind=FindingKind.MISSING_SEGMENT,
            path=f"{facts.directory}/{log_name}",
            base_offset=base,
            reason=f"there is no such file, but {name} is there",
        )
    )


def read_epoch_file(files: Files, directory: str) -> tuple[LeaderEpochs | None, list[Finding]]:
    """The stored history of leader epochs, None if it is missing or unreadable, and the problems with it."""
    path = f"{directory}/{EPOCHS_NAME}"
    try:
        data = read_small_file(files, path, MAX_EPOCHS_BYTES)
        return (LeaderEpochs(decode_epoch_checkpoint(data)) if data else None), []
    except LogstoreError as error:
        if is_denied(error):
            raise
        reason = error.reason if isinstance(error, CorruptionError) else str(error)
        return None, [Finding(kind=FindingKind.CHECKPOINT, path=path, reason=reason)]


_TABLES = (
    RECOVERY_POINTS_NAME,
    LOG_STARTS_NAME,
    HIGH_WATERMARKS_NAME,
    CLEANER_OFFSETS_NAME,
    *LOST_ENDS_NAMES,
)


class StoredCheckpoints:
    """The checkpoint files of a directory, as they were on disk at the last :meth:`refresh`."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._contents: dict[str, bytes | None] = {}
        self._tables: dict[str, dict[TopicPartition, int]] = {}
        self._faults: dict[str, Finding] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the files, and parse those that changed."""
        for name in (*_TABLES, LEADER_EPOCH_NAME):
            path = f"{self.path}/{name}"
            self._faults.pop(name, None)
            try:
                data = read_small_file(self._files, path, MAX_CHECKPOINT_BYTES)
                if name not in self._contents or self._contents[name] != data:
                    self._forget(name)
                    if name in _TABLES:
                        self._tables[name] = decode_offset_checkpoint(data) if data else {}
                    elif data:
                        decode_epoch_checkpoint(data)
                    self._contents[name] = data
            except LogstoreError as error:
                if is_denied(error):
                    raise
                self._forget(name)
                reason = error.reason if isinstance(error, CorruptionError) else str(error)
                self._faults[name] = Finding(kind=FindingKind.CHECKPOINT, path=path, reason=reason)

    def _forget(self, name: str) -> None:
        self._contents.pop(name, None)
        self._tables[name] = {}

    @property
    def findings(self) -> list[Finding]:
        """The checkpoint files that cannot be read."""
        return list(self._faults.values())

    def recovery_point(self, partition: TopicPartition) -> int | None:
        return self._tables[RECOVERY_POINTS_NAME].get(partition)

    def log_start(self, partition: TopicPartition) -> int | None:
        return self._tables[LOG_STARTS_NAME].get(partition)

    def was_compacted(self, partition: TopicPartition) -> bool:
        """Whether the log was compacted, so that its offsets may have gaps."""
        return partition in self._tables[CLEANER_OFFSETS_NAME]

    def contradictions(self, partition: TopicPartition, log_end_offset: int) -> list[Finding]:
        """Stored offsets behind the log end. A stored high watermark may be there: a truncation does not
        always lower it, and an open takes the lower of both."""
        found = []
        for name in (RECOVERY_POINTS_NAME, LOG_STARTS_NAME):
            offset = self._tables[name].get(partition, 0)
            if offset > log_end_offset:
                reason = f"{partition} has offset {offset}, behind the log end {log_end_offset}"
                found.append(Finding(kind=FindingKind.CHECKPOINT, path=f"{self.path}/{name}", reason=reason))
        return found
