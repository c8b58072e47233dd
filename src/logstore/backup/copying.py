"""Copies one partition: a prefix of its log, as a clean stop would have left it.

State that belongs together is read at one moment, under the log's lock: the view that a reader gets, leader
epochs, producers. The files of that view are copied without the lock. If one has disappeared meanwhile, or
the log's end was cut, another view is taken; segments that both views share are not copied again.

A sealed segment is linked under the lock, held only for that system call: a later truncation then sees that
the file has another name, and leaves it alone (:meth:`.ActiveSegment.look_for_other_names`). The last segment
is always copied: the store goes on appending to its own, and so does the backup if it is opened. All other
files are small and written new, or are in the backup already.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from logstore.backup.manifest import StoredPartition, StoredSegment
from logstore.backup.report import BackedUpPartition, BackupProgress, OnBackupProgress
from logstore.clock import Clock
from logstore.errors import CorruptionError, LogstoreError, RetriableError, StorageError
from logstore.files import Files, FileStamp, read_small_file, write_new_file
from logstore.format.checkpoint import EpochEntry, encode_epoch_checkpoint
from logstore.format.index import encode_aborted_transaction
from logstore.format.metadata import encode_base64_uuid, encode_partition_metadata, encode_role
from logstore.format.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    partition_directory_name,
    segment_file_name,
)
from logstore.format.snapshot import ProducerSnapshotEntry, encode_snapshot
from logstore.large_files import copy_beginning, copy_file
from logstore.logdir.catalogue import TopicEntry
from logstore.model import Role, TopicPartition
from logstore.partition.checking.facts import EVERYTHING, LogFacts, SegmentToCheck
from logstore.partition.checking.findings import Finding, FindingKind
from logstore.partition.checking.verify import verify_log
from logstore.partition.log import Log
from logstore.partition.reading.view import LogView
from logstore.partition.segments.indexes import IndexBuilder
from logstore.partition.segments.segment import Segment
from logstore.partition.segments.walk import PIECE_BYTES, Walk
from logstore.partition.state.leader_epochs import LeaderEpochs
from logstore.partition.state.sidecars import (
    EPOCHS_NAME,
    MAX_EPOCHS_BYTES,
    MAX_SNAPSHOT_BYTES,
    METADATA_NAME,
    ROLE_NAME,
    read_snapshot,
)

_TRIES = 100
"""How many views are tried if segments of a log are deleted faster than they are copied."""
_UNSETTLED_NS = 50_000_000  # a file changed this recently may change again without a new time stamp
_CANNOT_LINK = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
)
_INDEX_KINDS = {
    FindingKind.OFFSET_INDEX: (INDEX_SUFFIX, TIME_INDEX_SUFFIX),
    FindingKind.TIME_INDEX: (INDEX_SUFFIX, TIME_INDEX_SUFFIX),
}
"""Damage without loss of records: if the file is missing, it is built again from the log."""
_DAMAGE = frozenset(
    {
        FindingKind.BATCH,
        FindingKind.OFFSETS,
        FindingKind.SIZE,
        FindingKind.UNREADABLE,
        FindingKind.MISSING_SEGMENT,
        FindingKind.TRANSACTION_INDEX,
    }
)
"""Damage done by a disk or a careless user; other findings were written that way."""
_SIDE_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)


class _ChangedError(Exception):
    """The log no longer matches the view."""


class BackupSteps:
    """Adds up the progress, and reports it. Lock: ``_lock`` guards the sum, and lets one thread report at a
    time."""

    def __init__(self, on_progress: OnBackupProgress | None, total_bytes: int) -> None:
        self._on_progress = on_progress
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._lock = threading.Lock()
        self.failure: BaseException | None = None
        """The error of the first partition that failed. After it all work is wasted, so others stop."""

    def tell(self, partition: TopicPartition, done_bytes: int) -> None:
        """Report ``done_bytes`` more bytes as being in the backup and verified."""
        if self.failure is not None:
            raise RetriableError(f"the backup has failed: {self.failure}")
        if self._on_progress is not None:
            with self._lock:
                self._done_bytes += done_bytes
                self._on_progress(BackupProgress(partition, self._done_bytes, self._total_bytes))


@dataclass(frozen=True, kw_only=True, slots=True)
class BackupTask:
    """The values shared by all partitions of one backup."""

    files: Files
    clock: Clock
    staging: str
    """The directory that is being filled."""
    earlier: str | None
    """The directory of the earlier backup."""
    are_comparable: bool
    """Whether the store and the backup are on the same disk."""
    links: bool
    accept_damage: bool
    steps: BackupSteps


class _Seen(NamedTuple):
    """A log at one moment."""

    view: LogView
    epochs: Sequence[EpochEntry]
    producers: list[ProducerSnapshotEntry]
    role: Role
    high_watermark: int
    cleaner_offset: int | None


@dataclass(slots=True)
class _Counts:
    copied_bytes: int = 0
    linked_bytes: int = 0
    kept_bytes: int = 0
    verified_bytes: int = 0


class _Staged(NamedTuple):
    """A segment in the backup."""

    segment: Segment
    stored: StoredSegment
    is_new: bool
    """Whether it is not kept from the earlier backup."""


@dataclass(slots=True)
class PartitionCopy:
    """One partition of a backup; :meth:`run` does everything. Used once."""

    task: BackupTask
    topic: TopicEntry
    partition: TopicPartition
    log: Log
    old: StoredPartition | None
    """The partition in the earlier backup."""
    stored: StoredPartition = field(init=False)
    told: BackedUpPartition = field(init=False)
    damaged: list[Finding] = field(init=False, default_factory=list)
    _counts: _Counts = field(init=False, default_factory=_Counts)
    _staged: dict[int, _Staged] = field(init=False, default_factory=dict)
    _old_names: frozenset[str] = field(init=False, default=frozenset())
    directory: str = field(init=False)
    _old_directory: str = field(init=False)

    def run(self) -> None:
        """
        Raises:
            ClosedError: the log was closed, for example because its topic was deleted.
            ReopenRequiredError: the log cannot be made durable after a failure.
            CorruptionError: the log is damaged, and ``accept_damage`` is false.
            StorageError: the disk of the store or of the backup failed.
        """
        name, files = partition_directory_name(*self.partition), self.task.files
        self.directory = f"{self.task.staging}/{name}"
        self._old_directory = f"{self.task.earlier}/{name}"
        files.make_directory(self.directory)
        if self.old is not None and files.is_directory(self._old_directory):
            self._old_names = frozenset(e.name for e in files.list_directory(self._old_directory))
        for _ in range(_TRIES):
            seen = self._look()
            self._meet_lost(seen.view)
            try:
                self._bring(seen.view)
            except _ChangedError:
                continue
            self._forget_others(seen.view)
            self._verify(seen)
            self._write_small_files(seen)
            files.flush_directory(self.directory)
            self._tell(seen)
            return
        raise RetriableError(
            f"{self.partition} could not be copied: its segments are deleted faster than copied; call again"
        )

    def _look(self) -> _Seen:
        """The log as it is now, after making all of it durable: sealed segments can then be linked."""
        log = self.log.writer
        with log.guard.own_lock(), log.guard as core:
            log.gathering.drain_locked()
            seen = _Seen(
                core.view,
                core.epochs.entries,
                core.producers.snapshot_entries(),
                core.stored_role,
                core.known_high_watermark,
                log.context.home.cleaner_offset(self.partition),
            )
        log.durability.flush()
        return seen

    # Segments

    def _bring(self, view: LogView) -> None:
        """Bring the files of all segments of the view into the backup."""
        for number, segment in enumerate(view.segments):
            self.task.steps.tell(self.partition, 0)
            staged = self._staged.get(segment.base_offset)
            is_last = number == len(view.segments) - 1
            if staged is not None:
                size_bytes = view.size_of(number)
                if staged.segment is segment and not is_last and staged.stored.size_bytes == size_bytes:
                    continue
                self._remove(staged)
            try:
                self._bring_one(view, number, segment, is_last=is_last)
            except (StorageError, CorruptionError, _ChangedError) as error:
                self._remove_files(segment.base_offset)
                if isinstance(error, _ChangedError):
                    raise
                if not self._is_ours(error):
                    self.log.writer.guard.check_usable()  # deleting a topic renames its files
                    if self._has_changed(view):
                        raise _ChangedError from error
                raise
        if view.was_truncated:
            raise _ChangedError

    def _is_ours(self, error: Exception) -> bool:
        """Whether the error is about a file of the backup."""
        path = error.filename if isinstance(error, StorageError) else getattr(error, "path", None)
        return str(path).startswith((f"{self.task.staging}/", f"{self._old_directory}/"))

    def _has_changed(self, view: LogView) -> bool:
        return view.was_truncated or self.log.writer.core.view.segments != view.segments

    def _bring_one(self, view: LogView, number: int, segment: Segment, *, is_last: bool) -> None:
        base, size_bytes = segment.base_offset, view.size_of(number)
        stamp = segment.file_stamp()
        if self._is_unchanged(base, size_bytes, stamp, is_last=is_last):
            assert self.old is not None
            self._keep(segment, self.old.segments[base])
            return
        new = self._path_of(base, LOG_SUFFIX)
        is_linked = not is_last and self.task.links and self._link(segment, new)
        if not is_linked:
            copy_beginning(
                self.task.files,
                segment.log_and_index()[0],
                size_bytes,
                new,
                lambda _: self.task.steps.tell(self.partition, 0),
            )
            self.task.files.set_modified_ms(new, segment.modified_ms)
        known = None if is_linked else self._settled(segment, stamp, size_bytes)
        stored = StoredSegment(base, size_bytes, is_linked, True, known)
        self._staged[base] = _Staged(segment, stored, True)
        self._write_snapshot(base)
        if not is_last:
            self._write_indexes(segment)
        self._write_transactions(segment, view.next_base(number))

    def _is_unchanged(self, base: int, size_bytes: int, stamp: FileStamp, *, is_last: bool) -> bool:
        """Whether the earlier backup has the segment's file itself, or a copy that is still up to date."""
        old = None if self.old is None else self.old.segments.get(base)
        name = segment_file_name(base, LOG_SUFFIX)
        if old is None or not old.is_sound or old.size_bytes != size_bytes or name not in self._old_names:
            return False
        there = self.task.files.stamp(f"{self._old_directory}/{name}")
        if old.is_linked:
            is_same = self.task.are_comparable and there.number == stamp.number
            return is_same and self.task.links and not is_last
        return old.stamp == stamp and there.size_bytes == size_bytes

    def _keep(self, segment: Segment, old: StoredSegment) -> None:
        """Take a segment from the earlier backup, with the files beside it."""
        base = segment.base_offset
        self._take_over(segment_file_name(base, LOG_SUFFIX))
        for suffix in _SIDE_SUFFIXES:
            name = segment_file_name(base, suffix)
            if name in self._old_names:
                self._take_over(name)
            elif suffix == SNAPSHOT_SUFFIX:
                self._write_snapshot(base)
        self._staged[base] = _Staged(segment, old, False)

    def _take_over(self, name: str) -> None:
        """Take one file from the earlier backup, by a link if possible. It does not change while both have
        it."""
        files, old, new = self.task.files, f"{self._old_directory}/{name}", f"{self.directory}/{name}"
        try:
            files.link(old, new)
        except StorageError as error:
            if error.errno not in _CANNOT_LINK:
                raise
            copy_file(files, old, new)

    def _link(self, segment: Segment, new: str) -> bool:
        """Link the segment's file into the backup; returns whether that was possible."""
        log = self.log.writer
        with log.guard.own_lock():
            if segment not in log.core.segments[:-1]:
                raise _ChangedError
            try:
                segment.link_log(new)
            except StorageError as error:
                if error.errno in _CANNOT_LINK:
                    return False
                raise
        return True

    def _settled(self, segment: Segment, before: FileStamp, size_bytes: int) -> FileStamp | None:
        """The stamp by which a later backup sees that the file is still what was copied; None if the file
        changed too recently to tell."""
        now_ns = self.task.clock.now_ms() * 1_000_000
        is_settled = before.size_bytes == size_bytes and now_ns - before.changed_ns > _UNSETTLED_NS
        return before if is_settled and segment.file_stamp() == before else None

    def _write_indexes(self, segment: Segment) -> None:
        """Copy the indexes of a sealed segment as the store has them."""
        base, files = segment.base_offset, self.task.files
        with suppress(CorruptionError):  # the log is damaged; its verification finds that
            offsets, times = segment.offset_index.copy(), segment.time_index.copy()
            write_new_file(files, self._path_of(base, INDEX_SUFFIX), offsets.entries)
            write_new_file(files, self._path_of(base, TIME_INDEX_SUFFIX), times.entries)

    def _write_snapshot(self, base: int) -> None:
        """Copy the producer snapshot at the beginning of a segment, if the store has a sound one."""
        snapshot = read_snapshot(self.task.files, self.log.directory, base)
        if snapshot is not None:
            write_new_file(self.task.files, self._path_of(base, SNAPSHOT_SUFFIX), encode_snapshot(snapshot))

    def _write_transactions(self, segment: Segment, end_offset: int) -> None:
        """Copy the aborted transactions whose markers are below ``end_offset``."""
        try:
            entries = segment.read_transaction_index().entries.below(end_offset)
        except CorruptionError as error:
            self._meet_damage(
                Finding(
                    kind=FindingKind.TRANSACTION_INDEX,
                    path=error.path or segment.path_of(TRANSACTION_INDEX_SUFFIX),
                    reason=error.reason,
                    position=error.position,
                )
            )
            copy_file(
                self.task.files,
                segment.path_of(TRANSACTION_INDEX_SUFFIX),
                self._path_of(segment.base_offset, TRANSACTION_INDEX_SUFFIX),
            )
            self._doubt(segment.base_offset)
            return
        if entries:
            data = b"".join(map(encode_aborted_transaction, entries))
            write_new_file(
                self.task.files, self._path_of(segment.base_offset, TRANSACTION_INDEX_SUFFIX), data
            )

    def _doubt(self, base: int) -> None:
        """Mark a segment as damaged: the next backup copies it from the store again, and reports it again."""
        staged = self._staged[base]
        self._staged[base] = staged._replace(stored=staged.stored._replace(is_sound=False))

    def _forget_others(self, view: LogView) -> None:
        """Remove segments that only an older view had."""
        for base in self._staged.keys() - set(view.bases):
            self._remove(self._staged[base])

    def _remove(self, staged: _Staged) -> None:
        self._remove_files(staged.segment.base_offset)
        del self._staged[staged.segment.base_offset]

    def _remove_files(self, base: int) -> None:
        files = self.task.files
        for suffix in (LOG_SUFFIX, *_SIDE_SUFFIXES):
            if files.is_file(self._path_of(base, suffix)):
                files.remove(self._path_of(base, suffix))

    def _path_of(self, base: int, suffix: str) -> str:
        return f"{self.directory}/{segment_file_name(base, suffix)}"

    # Verification

    def _verify(self, seen: _Seen) -> None:
        """Check the segments that are new, in the backup's own files."""
        last = seen.view.bases[-1]
        if self._staged[last].is_new:
            self._index_last(seen)
        for run in self._runs(seen.view):
            for problem in verify_log(
                partial(self._facts, seen, run),
                self.task.clock,
                self._note_verified,
                segments_alone=True,
            ).problems:
                self._meet(problem)

    def _note_verified(self, size_bytes: int) -> None:
        self.task.steps.tell(self.partition, size_bytes)

    def _index_last(self, seen: _Seen) -> None:
        """Write the indexes of the last segment as a clean stop leaves them. In the store they may exist only
        in memory."""
        files, config = self.task.files, self.topic.config
        staged = self._staged[seen.view.bases[-1]]
        base, limit_bytes = staged.segment.base_offset, config.segment_index_bytes
        paths = self._path_of(base, INDEX_SUFFIX), self._path_of(base, TIME_INDEX_SUFFIX)
        builder = IndexBuilder.empty(files, paths, base, config.index_interval_bytes, limit_bytes)
        builder.clear()
        file = files.open(self._path_of(base, LOG_SUFFIX))
        try:
            walk = Walk(file.read_at, 0, staged.stored.size_bytes, check=False, piece_bytes=PIECE_BYTES)
            for piece in walk:
                for position, header in piece.batches:
                    builder.add(header, piece.position + position)
        finally:
            file.close()
        builder.close()
        builder.offset_index.store(flush=True)
        builder.time_index.store(flush=True)

    def _runs(self, view: LogView) -> list[list[SegmentToCheck]]:
        """The new segments, in runs of adjacent ones."""
        runs: list[list[SegmentToCheck]] = [[]]
        for number, base in enumerate(view.bases):
            stored, is_new = self._staged[base].stored, self._staged[base].is_new
            if is_new:
                is_last = number == len(view.bases) - 1
                following = None if is_last else view.next_base(number)
                runs[-1].append(SegmentToCheck(base, following, stored.size_bytes))
                self._counts.verified_bytes += stored.size_bytes
            else:
                runs.append([])
        return [run for run in runs if run]

    def _facts(self, seen: _Seen, run: Sequence[SegmentToCheck]) -> LogFacts:
        config = self.topic.config
        return LogFacts(
            files=self.task.files,
            directory=self.directory,
            segments=run,
            log_bytes=sum(segment.size_bytes or 0 for segment in run),
            names={},
            log_start_offset=run[0].base_offset,
            log_end_offset=seen.view.log_end_offset,
            recovery_point=seen.view.log_end_offset,
            trusted_end=EVERYTHING,
            dense_from=None,
            notes_gaps=False,
            index_interval_bytes=config.index_interval_bytes,
            index_limit_bytes=config.segment_index_bytes,
            epochs=LeaderEpochs(seen.epochs),
            producers=None,
            stamp=None,
        )

    def _meet(self, problem: Finding) -> None:
        """Handle one problem that the verification found."""
        name = problem.path.rpartition("/")[2]
        base = int(name.partition(".")[0])
        for suffix in _INDEX_KINDS.get(problem.kind, ()):
            if self.task.files.is_file(self._path_of(base, suffix)):
                self.task.files.remove(self._path_of(base, suffix))
        if problem.kind not in _DAMAGE:
            return
        segment = self._staged[base].segment
        suffix = name[name.index(".") :]
        self._meet_damage(
            Finding(
                kind=problem.kind,
                path=segment.path_of(suffix),
                reason=problem.reason,
                position=problem.position,
                base_offset=problem.base_offset,
                last_offset=problem.last_offset,
            )
        )
        if self._staged[base].is_new and self._staged[base].stored.is_sound:
            self._take_sound_one(base)

    def _meet_lost(self, view: LogView) -> None:
        """Meet segments that opening the log has missed: the earlier backup may have the only copy of them.
        Raises what :meth:`_meet_damage` does."""
        for base in self.log.recovery.lost_segments:
            finding = Finding(
                kind=FindingKind.MISSING_SEGMENT,
                path=f"{self.log.directory}/{segment_file_name(base, LOG_SUFFIX)}",
                base_offset=base,
                reason="there is no such file, but its indexes are there",
            )
            if view.bases[0] < base < view.log_end_offset and finding not in self.damaged:
                self._meet_damage(finding)

    def _meet_damage(self, finding: Finding) -> None:
        """
        Raises:
            CorruptionError: damage is not accepted.
        """
        if not self.task.accept_damage:
            what = str(finding).rstrip(".")
            raise CorruptionError(
                f"the store is damaged, and the backup was not made: {what}. verify() says more; pass "
                "accept_damage=True to back up anyway",
                path=finding.path,
                position=finding.position,
                base_offset=finding.base_offset,
                last_offset=finding.last_offset,
            )
        self.damaged.append(finding)

    def _take_sound_one(self, base: int) -> None:
        """Replace a damaged segment by that of the earlier backup; if it has none, the damaged one stays."""
        staged = self._staged[base]
        old = None if self.old is None else self.old.segments.get(base)
        name = segment_file_name(base, LOG_SUFFIX)
        is_there = old is not None and old.is_sound and name in self._old_names
        if old is None or not is_there or old.size_bytes != staged.stored.size_bytes:
            self._doubt(base)
            return
        self._remove(staged)
        self._keep(staged.segment, old._replace(stamp=None, is_linked=False))

    # The small files

    def _write_small_files(self, seen: _Seen) -> None:
        end = seen.view.log_end_offset
        self._put(EPOCHS_NAME, encode_epoch_checkpoint(seen.epochs), MAX_EPOCHS_BYTES)
        self._put(METADATA_NAME, encode_partition_metadata(self.topic.topic_id), MAX_EPOCHS_BYTES)
        if seen.role is not Role.ALONE:
            self._put(ROLE_NAME, encode_role(seen.role), MAX_EPOCHS_BYTES)
        self._put(
            segment_file_name(end, SNAPSHOT_SUFFIX), encode_snapshot(seen.producers), MAX_SNAPSHOT_BYTES
        )

    def _put(self, name: str, data: bytes, limit_bytes: int) -> None:
        """Write a small file, or link that of the earlier backup if it has the same contents."""
        files, new = self.task.files, f"{self.directory}/{name}"
        if files.is_file(new):
            files.remove(new)  # it may be a link
        if name in self._old_names:
            with suppress(LogstoreError):
                if read_small_file(files, f"{self._old_directory}/{name}", limit_bytes) == data:
                    self._take_over(name)
                    return
        write_new_file(files, new, data)

    def _tell(self, seen: _Seen) -> None:
        counts = self._counts
        for staged in self._staged.values():
            size_bytes = staged.stored.size_bytes
            if not staged.is_new:
                counts.kept_bytes += size_bytes
                self.task.steps.tell(self.partition, size_bytes)
            elif staged.stored.is_linked:
                counts.linked_bytes += size_bytes
            else:
                counts.copied_bytes += size_bytes
        view = seen.view
        self.stored = StoredPartition(
            topic_id=encode_base64_uuid(self.topic.topic_id),
            log_start_offset=view.log_start_offset,
            log_end_offset=view.log_end_offset,
            high_watermark=min(seen.high_watermark, view.log_end_offset),
            cleaner_offset=seen.cleaner_offset,
            segments={base: self._staged[base].stored for base in view.bases},
        )
        self.told = BackedUpPartition(
            partition=self.partition,
            log_start_offset=view.log_start_offset,
            log_end_offset=view.log_end_offset,
            segment_count=len(view.segments),
            copied_bytes=counts.copied_bytes,
            linked_bytes=counts.linked_bytes,
            kept_bytes=counts.kept_bytes,
            verified_bytes=counts.verified_bytes,
        )
