"""The facts of a log from its files, for checking a log that this process does not write."""

from __future__ import annotations

from logstore.config import TopicConfig
from logstore.errors import LogstoreError, is_denied
from logstore.files import Files
from logstore.format.names import LOG_SUFFIX, segment_file_name
from logstore.model import Role, TopicPartition
from logstore.partition.checking.facts import EVERYTHING, LogFacts, SegmentToCheck
from logstore.partition.checking.files import StoredCheckpoints, read_epoch_file
from logstore.partition.checking.findings import Finding, FindingKind
from logstore.partition.recovery.leftovers import Names, current_logs, list_segment_files, swapped_names
from logstore.partition.state.sidecars import read_role


def facts_of_files(
    files: Files,
    directory: str,
    partition: TopicPartition,
    checkpoints: StoredCheckpoints,
    config: TopicConfig | None,
    *,
    is_clean: bool,
) -> LogFacts:
    """The facts from the files. Another process may be writing them, or a crash may have left them.
    ``config`` is None if the topic's settings are unknown."""
    checkpoints.refresh()
    recovery_point = checkpoints.recovery_point(partition) or 0
    log_start = checkpoints.log_start(partition)
    epochs, findings = read_epoch_file(files, directory)
    names: Names = {}
    logs: dict[int, str] = {}
    try:
        names = list_segment_files(files, directory)
        logs = current_logs(files, directory, names)
    except LogstoreError as error:
        if is_denied(error):
            raise
        if files.is_directory(directory):  # else the check of its names tells
            findings.append(Finding(kind=FindingKind.UNREADABLE, path=directory, reason=str(error)))
    bases = list(logs)
    sizes = [_size_of(files, directory, base, state) for base, state in logs.items()]
    known = config if config is not None else TopicConfig()
    has_point = checkpoints.recovery_point(partition) is not None
    may_have_gaps = checkpoints.was_compacted(partition) or _is_follower(files, directory)
    is_gapless = config is not None and not config.compacts and not may_have_gaps
    return LogFacts(
        files=files,
        directory=directory,
        segments=[
            SegmentToCheck(base, following, None)
            for base, following in zip(bases, _following(bases), strict=True)
        ],
        log_bytes=sum(sizes),
        names=names,
        log_start_offset=max(log_start or 0, bases[0] if bases else 0),
        log_end_offset=None,
        recovery_point=recovery_point,
        trusted_end=EVERYTHING if is_clean else recovery_point,
        dense_from=recovery_point if has_point and is_gapless else None,
        notes_gaps=is_gapless,
        index_interval_bytes=known.index_interval_bytes,
        index_limit_bytes=known.segment_index_bytes,
        deleted_below=log_start or 0,
        swapped=swapped_names(names),
        epochs=epochs,
        epochs_complete_to=EVERYTHING if is_clean else recovery_point,
        producers=None,
        late_producers=None,
        findings=findings,
        stamp=(is_clean, bases, recovery_point, log_start, sizes, sorted(names)),
    )


def _following(bases: list[int]) -> list[int | None]:
    return [*bases[1:], *([None] if bases else [])]


def _is_follower(files: Files, directory: str) -> bool:
    try:
        return read_role(files, directory) is Role.FOLLOWER
    except LogstoreError:
        return False


def _size_of(files: Files, directory: str, base: int, state: str) -> int:
    """The size of a .log file; 0 if it is unknown. The check of the segment then reports the error."""
    try:
        return files.size_bytes(f"{directory}/{segment_file_name(base, LOG_SUFFIX)}{state}")
    except LogstoreError:
        return 0
