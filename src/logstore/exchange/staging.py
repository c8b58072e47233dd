"""Step 1 of a handover: makes a finished copy of a partition, in a directory that is not taken for one.

The files are copied as they are. The engine then opens the copy as it would open the source, and prepares it
for the target: it recovers from a crash, aborts open transactions, and verifies everything that was copied.
The source is never changed.

Files are copied, not linked: through a second name the target would change the source's bytes. A broker cuts
a sealed segment in place when it truncates or recovers, and writes indexes through maps. If the file system
can share blocks until they are changed, copying costs neither time nor room: see ``large_files.copy_file``.

For a broker two more things are done to the copy:

* **Leader epochs** above the one in which the broker has led the partition are lowered to it, in the batches
  (their checksum does not cover the epoch) and in the history. Otherwise the broker's next epoch would be
  below the log's: the broker would forget the history, its followers could not agree with it, and clients
  that remember the higher epoch would take the cluster's metadata for outdated.
* **Producers** are forgotten: an empty snapshot is put at the end, before an empty segment. Producer ids
  belong to a cluster. The broker may give a new producer an id that the log knows; a batch of it with the
  same sequences would be taken for a repetition and dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from logstore.clock import Clock
from logstore.errors import CorruptionError, UsageError
from logstore.exchange.committed import forget_later_epochs
from logstore.exchange.marks import Mark, new_stray_name, remove_staged, write_mark
from logstore.exchange.plan import PlannedPartition, describe_open_transactions
from logstore.files import Files, parent_of, write_new_file
from logstore.format.checkpoint import EpochEntry, encode_offset_checkpoint
from logstore.format.header import BatchHeader
from logstore.format.layout import BATCH_HEADER
from logstore.format.names import LOG_SUFFIX, OFFSETS_TOPIC, SNAPSHOT_SUFFIX, parse_segment_file_name
from logstore.large_files import copy_file
from logstore.model import TopicPartition
from logstore.partition.log import Log, open_log
from logstore.partition.recovery.leftovers import list_segment_files, segment_bases
from logstore.partition.segments.walk import PIECE_BYTES, Walk
from logstore.partition.state.context import LogContext, make_context
from logstore.partition.state.home import (
    CLEAN_MARKER_NAME,
    CLEANER_OFFSETS_NAME,
    HIGH_WATERMARKS_NAME,
    LEADER_EPOCH_NAME,
    LOCK_NAME,
    LOG_STARTS_NAME,
    RECOVERY_POINTS_NAME,
    LogHome,
)
from logstore.partition.state.leader_epochs import LeaderEpochs
from logstore.partition.state.sidecars import (
    EPOCHS_NAME,
    read_epochs,
    read_topic_id,
    write_epochs,
    write_snapshot,
    write_topic_id,
)

_EPOCH_POSITION = BATCH_HEADER.position_of("partition_leader_epoch")
_HOME_NAMES = (
    LOCK_NAME,
    CLEAN_MARKER_NAME,
    RECOVERY_POINTS_NAME,
    LOG_STARTS_NAME,
    HIGH_WATERMARKS_NAME,
    LEADER_EPOCH_NAME,
    CLEANER_OFFSETS_NAME,
)


@dataclass(frozen=True, slots=True)
class Staged:
    """A copy that is ready to be placed."""

    planned: PlannedPartition
    log_start_offset: int | None
    """None if the first segment's name gives it."""
    log_end_offset: int
    """Behind the markers of aborted transactions."""
    aborted: tuple[int, ...]
    """The producers of these transactions."""
    cleaner_offset: int | None
    directory: str
    set_aside: str
    """The new name for the empty directory that the copy replaces."""


@dataclass(slots=True)
class Stager:
    """Makes the copies."""

    files: Files
    clock: Clock
    source_home: LogHome
    is_clean: bool
    """Whether the source's last writer stopped cleanly."""
    is_to_broker: bool
    aborts_transactions: bool
    epoch_limits: Mapping[TopicPartition, int]
    """The latest leader epoch of each partition in the broker that gets it."""

    def stage(self, planned: PlannedPartition, on_bytes: Callable[[int], object]) -> Staged:
        """
        Raises:
            CorruptionError: the source is damaged.
            UsageError: it has open transactions, and they should not be aborted.
            StorageError: the disk failed.
        """
        target = parent_of(planned.target_directory)
        staged = f"{target}/{new_stray_name(planned.partition)}"
        self.files.make_directory(staged)
        mark = Mark(
            topic_id=planned.topic_id,
            source_end_offset=planned.log_end_offset,
            log_end_offset=-1,
            set_aside=new_stray_name(planned.partition),
        )
        try:
            write_mark(self.files, staged, mark)
            return self._fill(planned, staged, mark, on_bytes)
        except BaseException:
            with contextlib.suppress(Exception):  # the original error says more
                remove_staged(self.files, staged)
            raise

    def _fill(
        self, planned: PlannedPartition, staged: str, mark: Mark, on_bytes: Callable[[int], object]
    ) -> Staged:
        files, source = self.files, planned.source_directory
        for name, size_bytes in planned.file_bytes.items():
            copy_file(files, f"{source}/{name}", f"{staged}/{name}", on_bytes, size_bytes=size_bytes)
        if files.is_file(f"{source}/{EPOCHS_NAME}"):
            copy_file(files, f"{source}/{EPOCHS_NAME}", f"{staged}/{EPOCHS_NAME}")
        if planned.lowers_epochs:
            assert planned.epoch_limit is not None
            lower_epochs(files, staged, planned.epoch_limit)
        with self._opened(planned, staged) as log:
            aborted = self._end_transactions(planned, log)
            self._check(planned, staged, log)
            if self.is_to_broker and planned.partition.topic == OFFSETS_TOPIC:
                forget_later_epochs(log, self.epoch_limits)
            if (
                self.is_to_broker
                and segment_bases(list_segment_files(files, staged))[-1] < log.log_end_offset
            ):
                log.roll()
            end_offset, start_offset = log.log_end_offset, log.log_start_offset
        if self.is_to_broker:
            forget_producers(files, staged, end_offset)
        topic_id = read_topic_id(files, planned.target_directory)
        if topic_id is not None:
            write_topic_id(files, staged, topic_id)
        write_mark(files, staged, replace(mark, log_end_offset=end_offset))
        files.flush_directory(parent_of(staged))
        first = segment_bases(list_segment_files(files, staged))[0]
        return Staged(
            planned,
            start_offset if start_offset > first else None,
            end_offset,
            aborted,
            self.source_home.cleaner_offset(planned.partition),
            staged,
            mark.set_aside,
        )

    @contextlib.contextmanager
    def _opened(self, planned: PlannedPartition, staged: str) -> Iterator[Log]:
        """The copy, open for writing, as a small store of its own, which is removed afterwards."""
        context = self._make_home(planned.partition, staged)
        try:
            context.home.acquire()
            context.home.load()
            context.home.gives_epochs = False  # what ends a transaction is of the last one
            log = open_log(
                context,
                staged,
                planned.partition,
                planned.config,
                is_clean=context.home.take_clean_marker(),
                is_foreign=planned.is_foreign,
            )
            try:
                log.writer.settle()
                yield log
                log.close()
            except BaseException:
                log.abandon()
                raise
        finally:
            context.scheduler.stop()
            context.home.release()
        for name in _HOME_NAMES:
            if self.files.is_file(f"{staged}/{name}"):
                self.files.remove(f"{staged}/{name}")

    def _make_home(self, partition: TopicPartition, staged: str) -> LogContext:
        """Write the source's checkpoints for the partition beside the copy."""
        home = self.source_home
        offsets = {
            RECOVERY_POINTS_NAME: home.recovery_point(partition)
            if home.has_recovery_point(partition)
            else None,
            LOG_STARTS_NAME: home.log_start(partition),
            CLEANER_OFFSETS_NAME: home.cleaner_offset(partition),
        }
        for name, offset in offsets.items():
            if offset is not None:
                data = encode_offset_checkpoint({partition: offset})
                write_new_file(self.files, f"{staged}/{name}", data)
        context = make_context(staged, files=self.files, clock=self.clock)
        if self.is_clean:
            context.home.put_clean_marker()
        return context

    def _end_transactions(self, planned: PlannedPartition, log: Log) -> tuple[int, ...]:
        """Abort those that are open, and return their producers."""
        opened = log.open_transactions()
        if opened and not self.aborts_transactions:
            raise UsageError(describe_open_transactions(planned.partition, opened))
        for producer_id, (producer_epoch, _) in opened.items():
            log.append_end_marker(producer_id, producer_epoch, committed=False)
        return tuple(opened)

    def _check(self, planned: PlannedPartition, staged: str, log: Log) -> None:
        """
        Raises:
            CorruptionError: the copy, and so the source, is damaged.
        """
        if self.is_clean and log.recovery.cut_bytes:
            raise CorruptionError(
                f"the log was closed cleanly, but {log.recovery.cut_bytes} bytes at its end are not batches; "
                "verify() says more",
                path=planned.source_directory,
            )
        found = log.verify()
        if not found:
            problem = found.problems[0]
            raise CorruptionError(
                f"the log is damaged, nothing was handed over: {problem.kind.value}: {problem.reason}. "
                f"{problem.next_step}",
                path=_in_source(planned, staged, problem.path),
                position=problem.position,
                base_offset=problem.base_offset,
                last_offset=problem.last_offset,
            )


def _in_source(planned: PlannedPartition, staged: str, path: str) -> str:
    """Where a file of the copy, which does not outlive the error, came from."""
    return planned.source_directory + path.removeprefix(staged)


# Leader epochs and producers --------------------------------------------------------------------------------


def lower_epochs(files: Files, directory: str, limit: int) -> None:
    """Lower leader epochs above ``limit`` to it, in every batch of a copy and in its history."""
    for name, parsed in list_segment_files(files, directory).items():
        if parsed.suffix == LOG_SUFFIX:
            _lower_in_file(files, f"{directory}/{name}", limit)
    stored = read_epochs(files, directory)
    if stored is not None:
        write_epochs(files, directory, LeaderEpochs(_lowered(stored.entries, limit)))


def _lowered(entries: Sequence[EpochEntry], limit: int) -> list[EpochEntry]:
    kept = [entry for entry in entries if entry.epoch <= limit]
    later = [entry for entry in entries if entry.epoch > limit]
    if later and not (kept and kept[-1].epoch == limit):
        kept.append(EpochEntry(limit, later[0].start_offset))
    return kept


def _lower_in_file(files: Files, path: str, limit: int) -> None:
    file = files.open(path, write=True)
    try:
        for piece in Walk(file.read_at, 0, file.size_bytes(), check=False, piece_bytes=PIECE_BYTES):
            later = [position for position, header in piece.batches if _is_later(header, limit)]
            if later:
                changed = bytearray(piece.buffer[: piece.end])
                for position in later:
                    at = position + _EPOCH_POSITION
                    changed[at : at + 4] = limit.to_bytes(4, "big")
                file.write_at(piece.position, [changed])
        file.flush()
    finally:
        file.close()


def _is_later(header: BatchHeader, limit: int) -> bool:
    return header.magic >= 2 and header.partition_leader_epoch > limit


def forget_producers(files: Files, directory: str, end_offset: int) -> None:
    """Leave only one snapshot, empty, at the end of the log."""
    for entry in files.list_directory(directory):
        parsed = parse_segment_file_name(entry.name)
        if parsed is not None and parsed.suffix == SNAPSHOT_SUFFIX:
            files.remove(f"{directory}/{entry.name}")
    write_snapshot(files, directory, end_offset, [])
