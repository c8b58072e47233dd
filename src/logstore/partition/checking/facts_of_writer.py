"""The facts of a log from its writer's memory, for a check beside the writer."""

from __future__ import annotations

import contextlib

from logstore.errors import StorageError
from logstore.partition.checking.facts import EVERYTHING, LogFacts, SegmentToCheck
from logstore.partition.checking.files import StoredCheckpoints, read_epoch_file
from logstore.partition.checking.findings import Finding
from logstore.partition.checking.producers import TRANSACTION_TIMEOUT_MS
from logstore.partition.reading.view import LogView
from logstore.partition.recovery.leftovers import Names, list_segment_files
from logstore.partition.segments.segment import Segment
from logstore.partition.writing.core import LogCore
from logstore.partition.writing.writer import LogWriter


def facts_of_writer(log: LogWriter, checkpoints: StoredCheckpoints) -> LogFacts:
    """The facts that the writer of a log knows. Takes the log's lock for a moment, because all facts must be
    of one moment. The files are read first: the log must hold what they promise."""
    files = log.context.files
    checkpoints.refresh()
    stored_epochs, findings = read_epoch_file(files, log.directory)
    try:
        names = list_segment_files(files, log.directory)
    except StorageError:
        log.guard.check_usable()  # a deleted topic's directory has another name
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
    may_have_gaps = context.home.may_have_gaps(log.partition, config, core.stored_role)
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
    """The facts about the sealed segments below the recovery point: a prefix of the log, without the
    producers in memory. Takes no lock and writes no gathering append."""
    core, context = log.core, log.context
    replacement_count = core.replacement_count  # before the view: it must not count more than the view shows
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
        notes_gaps=not home.may_have_gaps(log.partition, config, core.stored_role),
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
    with contextlib.suppress(StorageError):  # the first request for its size, and the file is gone
        size_bytes = segment.size_bytes
    return SegmentToCheck(segment.base_offset, next_base, size_bytes)
