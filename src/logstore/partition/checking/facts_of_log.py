"""What a log must hold, for a check of it: as its writer has it in memory, or as the files say."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from logstore.config import TopicConfig
from logstore.errors import LogstoreError, StorageError
from logstore.files import Files
from logstore.format.names import LOG_SUFFIX, segment_file_name
from logstore.model import TopicPartition
from logstore.partition.checking.files import StoredCheckpoints, read_epoch_file
from logstore.partition.checking.findings import Finding, FindingKind
from logstore.partition.checking.producers import TRANSACTION_TIMEOUT_MS
from logstore.partition.checking.segment import SegmentToCheck
from logstore.partition.checking.verify import EVERYTHING, LogFacts
from logstore.partition.recovery.leftovers import Names, current_logs, list_segment_files, swapped_names

if TYPE_CHECKING:
    from logstore.partition.reading.view import LogView
    from logstore.partition.segments.segment import Segment
    from logstore.partition.writing.core import LogCore
    from logstore.partition.writing.writer import LogWriter


def facts_of_writer(log: LogWriter, checkpoints: StoredCheckpoints) -> LogFacts:
    """What the writer of a log knows of it. Takes the log's lock for a moment, since all of it must be of one
    moment; the files are read before, as what they promise must be there then."""
    files = log.context.files
    checkpoints.refresh()
    stored_epochs, findings = read_epoch_file(files, log.directory)
    try:
        names = list_segment_files(files, log.directory)
    except StorageError:
        log.guard.check_usable()  # the directory of a topic that was deleted has another name
        raise
    log.current_view()  # writes what is gathered
    with log.guard.lock:
        core = log.core
        if stored_epochs is not None and stored_epochs.entries != core.epochs.entries:
            stored_epochs, findings = read_epoch_file(files, log.directory)
        return _facts_of_core(log, core, names, findings, checkpoints)


def _facts_of_core(
    log: LogWriter, core: LogCore, names: Names, findings: list[Finding], checkpoints: StoredCheckpoints
) -> LogFacts:
    view, context, config = core.view, log.context, core.config
    may_have_gaps = context.home.may_have_gaps(log.partition, config)
    is_dense = context.home.has_recovery_point(log.partition) and not may_have_gaps
    recovery_point = context.home.recovery_point(log.partition)
    sealed = [_sealed(segment, view.next_base(number)) for number, segment in enumerate(view.segments[:-1])]
    offsets, times = core.active.copy_indexes()
    active = SegmentToCheck(core.active.base_offset, None, view.active_size_bytes, offsets, times)
    return LogFacts(
        files=context.files,
        directory=log.directory,
        segments=[*sealed, active],
        log_bytes=sum(segment.size_bytes or 0 for segment in (*sealed, active)),
        names=names,
        log_start_offset=view.log_start_offset,
        log_end_offset=view.log_end_offset,
        recovery_point=recovery_point,
        trusted_end=EVERYTHING,
        dense_from=recovery_point if is_dense else None,
        notes_gaps=not may_have_gaps,
        index_interval_bytes=config.index_interval_bytes,
        index_limit_bytes=config.segment_index_bytes,
        epochs=core.epochs,
        producers=core.producers.active_producers() if log.guard.failure is None else None,
        late_producers=core.producers.late_transactions(context.clock.now_ms(), TRANSACTION_TIMEOUT_MS),
        findings=[*findings, *checkpoints.contradictions(log.partition, view.log_end_offset)],
        stamp=_stamp_of(view, core.replacement_count),
    )


def facts_to_scrub(log: LogWriter) -> LogFacts:
    """What is known of the sealed segments below the recovery point: a prefix of the log, without what is in
    memory of producers. Takes no lock, and hurries no append."""
    core, context = log.core, log.context
    replacement_count = core.replacement_count  # before the view: it must not know of more
    view, config, home = core.view, core.config, context.home
    recovery_point = home.recovery_point(log.partition)
    sealed = [_sealed(segment, view.next_base(number)) for number, segment in enumerate(view.segments[:-1])]
    durable = [s for s in sealed if s.next_base is not None and s.next_base <= recovery_point]
    return LogFacts(
        files=context.files,
        directory=log.directory,
        segments=durable,
        log_bytes=sum(segment.size_bytes or 0 for segment in durable),
        names=list_segment_files(context.files, log.directory),
        log_start_offset=view.log_start_offset,
        log_end_offset=None,
        recovery_point=recovery_point,
        trusted_end=EVERYTHING,
        dense_from=None,
        notes_gaps=not home.may_have_gaps(log.partition, config),
        index_interval_bytes=config.index_interval_bytes,
        index_limit_bytes=config.segment_index_bytes,
        epochs=core.epochs,
        producers=None,
        stamp=_stamp_of(view, replacement_count),
    )


def _stamp_of(view: LogView, replacement_count: int) -> object:
    return view.truncations.count, view.log_start_offset, view.bases[0], replacement_count


def _sealed(segment: Segment, next_base: int) -> SegmentToCheck:
    size_bytes = None
    with contextlib.suppress(StorageError):  # it is asked for the first time, and the file is gone
        size_bytes = segment.size_bytes
    return SegmentToCheck(segment.base_offset, next_base, size_bytes)


def facts_of_files(
    files: Files,
    directory: str,
    partition: TopicPartition,
    checkpoints: StoredCheckpoints,
    config: TopicConfig | None,
    *,
    is_clean: bool,
) -> LogFacts:
    """What the files of a log say that this process does not write: another one may be doing so, or has left
    it by a crash. ``config`` is None where nobody knows the topic's settings."""
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
        findings.append(Finding(kind=FindingKind.UNREADABLE, path=directory, reason=str(error)))
    bases = list(logs)
    sizes = [_size_of(files, directory, base, state) for base, state in logs.items()]
    known = config if config is not None else TopicConfig()
    has_point = checkpoints.recovery_point(partition) is not None
    is_gapless = config is not None and not config.compacts and not checkpoints.was_compacted(partition)
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


def _size_of(files: Files, directory: str, base: int, state: str) -> int:
    """Of a .log file; 0 if it cannot be said, which the check of the segment finds out."""
    try:
        return files.size_bytes(f"{directory}/{segment_file_name(base, LOG_SUFFIX)}{state}")
    except LogstoreError:
        return 0
