"""Hands topics from one directory to another, while neither is open.

:mod:`~logstore.exchange.plan` decides what is copied, :mod:`~logstore.exchange.staging` makes the copies, and
:mod:`~logstore.exchange.marks` describes the steps that a crash may separate.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from logstore.clock import Clock, SystemClock
from logstore.errors import CorruptionError, LogstoreError, UsageError
from logstore.exchange.marks import read_mark, remove_staged, take_back
from logstore.exchange.place import Place, held
from logstore.exchange.plan import Plan, PlannedPartition, choose_topics, plan_handover
from logstore.exchange.report import HandedPartition, HandoverProgress, HandoverReport, OnHandoverProgress
from logstore.exchange.share_groups import write_share_groups
from logstore.exchange.staging import Staged, Stager
from logstore.files import Files, OsFiles, PathLike, check_path, read_small_file
from logstore.format.checkpoint import decode_offset_checkpoint
from logstore.format.names import HANDOVER_MARK_NAME
from logstore.large_files import remove_tree
from logstore.logdir.directory import LogDirectory
from logstore.logdir.identity import is_brokers_directory, list_strays, prepare_directory
from logstore.logdir.topics import NewTopic
from logstore.model import TopicPartition
from logstore.partition.state.home import (
    CLEANER_OFFSETS_NAME,
    HIGH_WATERMARKS_NAME,
    LOG_STARTS_NAME,
    MAX_CHECKPOINT_BYTES,
    MAX_LEADER_EPOCH,
    RECOVERY_POINTS_NAME,
    STAGED_SUFFIX,
    LogHome,
)
from logstore.turns import flushed_at_a_time, take_turns


def handover(
    source: PathLike,
    target: PathLike,
    *,
    topics: Iterable[str] | None = None,
    dry_run: bool = False,
    abort_transactions: bool = False,
    accept_settings: bool = False,
    source_metadata: PathLike | None = None,
    target_metadata: PathLike | None = None,
    on_progress: OnHandoverProgress | None = None,
    files: Files | None = None,
    clock: Clock | None = None,
) -> HandoverReport:
    """Copy topics with all their records from one directory to another: from a store to the log directory of
    a Kafka broker, from a broker to a store, or between two of a kind. Offsets do not change.

    Neither directory may be open: stop the broker, close the store. The source is only read. A broker must
    already have the topics, empty, since only it can create them. In a store, missing topics are created,
    with the broker's settings. After the call, open or start the target as usual.

    A call that fails or is killed leaves the source as it was; call again to finish.

    Args:
        source: a store's directory, or one of a broker's ``log.dirs``.
        target: the same. A path that does not exist becomes a store.
        topics: their names. Default: all but a broker's internal ones. With ``__consumer_offsets`` and
            ``__share_group_state`` among them, groups and share groups go on where they are.
        dry_run: check everything that can be checked without copying, change nothing, and report.
        abort_transactions: abort, in the copy, transactions that are open at the end of the log.
        accept_settings: continue although the broker's topic has settings by which it would soon delete
            records.
        source_metadata, target_metadata: the broker's ``metadata.log.dir``, if its metadata log is not in the
            given directory.
        on_progress: called while files are copied, by one thread at a time.
        files: another file system, for tests.
        clock: another clock, for tests.

    Raises:
        UsageError: the topics cannot be handed over; the message lists all reasons. Nothing was changed.
        LockedError: a broker or another writer has one of the directories open.
        CorruptionError: the source is damaged.
        DiskFullError: the copies do not fit.
        StorageError: the disk refused.
    """
    files, clock = files or OsFiles(), clock or SystemClock()
    ends = _Ends(
        files,
        clock,
        files.absolute(check_path(source)),
        files.absolute(check_path(target)),
        None if source_metadata is None else files.absolute(check_path(source_metadata)),
        None if target_metadata is None else files.absolute(check_path(target_metadata)),
    )
    ends.check()
    options = _Options(abort_transactions, accept_settings)
    with contextlib.ExitStack() as stack:
        source_home = LogHome(files, ends.source)
        stack.enter_context(held(source_home))
        if files.is_directory(ends.target):
            with held(LogHome(files, ends.target)):
                plan, is_to_broker = _plan(ends, topics, options)
        else:
            plan, is_to_broker = _plan(ends, topics, options)
        staged: list[Staged] = []
        if not dry_run:
            staged = _Handover(ends, source_home, plan, is_to_broker, options).run(on_progress)
            if plan.share_states:
                write_share_groups(files, clock, ends.target, plan.share_states)
    return HandoverReport(
        source=ends.source,
        target=ends.target,
        is_to_broker=is_to_broker,
        is_dry_run=dry_run,
        partitions=_told(plan, staged),
        created_topics=tuple(sorted(plan.missing_topics)),
        share_groups=tuple(sorted({each.group for each in plan.share_states})),
        notes=tuple(plan.notes),
    )


def _told(plan: Plan, staged: list[Staged]) -> tuple[HandedPartition, ...]:
    """What was planned; of copies that were made, what they are: the source may have crashed, and the plan
    not know its open transactions."""
    made = {each.planned.partition: each for each in staged}
    return tuple(
        replace(planned.told, log_end_offset=copy.log_end_offset, aborted=copy.aborted)
        if (copy := made.get(planned.partition)) is not None
        else planned.told
        for planned in plan.partitions
    )


@dataclass(frozen=True, slots=True)
class _Options:
    abort_transactions: bool
    accept_settings: bool


@dataclass(frozen=True, slots=True)
class _Ends:
    """The two directories."""

    files: Files
    clock: Clock
    source: str
    target: str
    source_metadata: str | None
    target_metadata: str | None

    def check(self) -> None:
        """
        Raises:
            UsageError: one of them is not a store and cannot become one, or one contains the other.
        """
        prepare_directory(self.files, self.source, create=False)  # before a lock makes it look like a store
        if self.files.is_directory(self.target) or self.files.is_file(self.target):
            prepare_directory(self.files, self.target, create=False)
        if f"{self.source}/".startswith(f"{self.target}/") or self.target.startswith(f"{self.source}/"):
            raise UsageError(f"{self.source} and {self.target} must lie beside each other")


def _plan(ends: _Ends, topics: Iterable[str] | None, options: _Options) -> tuple[Plan, bool]:
    """
    Raises:
        UsageError: there are reasons against the handover.
    """
    files = ends.files
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(
            contextlib.closing(Place(files, ends.clock, ends.source, ends.source_metadata))
        )
        target = None
        if _holds_anything(files, ends.target):
            target = stack.enter_context(
                contextlib.closing(Place(files, ends.clock, ends.target, ends.target_metadata))
            )
        is_to_broker = target is not None and target.is_brokers
        chosen = choose_topics(source, topics, is_to_broker=is_to_broker)
        plan = plan_handover(
            source,
            target,
            ends.target,
            chosen,
            abort_transactions=options.abort_transactions,
            accept_settings=options.accept_settings,
        )
    plan.check(ends.source, ends.target)
    if any(entry.name.endswith(STAGED_SUFFIX) for entry in files.list_directory(ends.source)):
        plan.notes.append(
            "jobs of Spark have staged files in the source, which are not handed over: if one was "
            "interrupted, its last batch may be in a topic in part. logstore.spark.recover() on the source "
            "finishes it; call that first"
        )
    return plan, is_to_broker


def _holds_anything(files: Files, path: str) -> bool:
    """Whether there is more in a directory than the lock that was just taken."""
    return files.is_directory(path) and any(entry.name != ".lock" for entry in files.list_directory(path))


class _Telling:
    """Adds up the progress. Lock: ``_lock`` guards the sum, and lets one thread report at a time."""

    def __init__(self, on_progress: OnHandoverProgress | None, total_bytes: int) -> None:
        self._on_progress = on_progress
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._lock = threading.Lock()

    def tell(self, partition: TopicPartition, size_bytes: int) -> None:
        with self._lock:
            self._done_bytes += size_bytes
            if self._on_progress is not None:
                self._on_progress(HandoverProgress(partition, self._done_bytes, self._total_bytes))


class _Handover:
    """Carries out a plan; the source is held by the caller."""

    def __init__(
        self, ends: _Ends, source_home: LogHome, plan: Plan, is_to_broker: bool, options: _Options
    ) -> None:
        self._files = ends.files
        self._ends = ends
        self._source_home = source_home
        self._plan = plan
        self._is_to_broker = is_to_broker
        self._options = options
        self._home = LogHome(ends.files, ends.target)
        self._path = ends.target

    def run(self, on_progress: OnHandoverProgress | None) -> list[Staged]:
        """Returns the copies that were made."""
        if not self._is_to_broker:
            self._prepare_store()
        with held(self._home):
            if self._is_to_broker != is_brokers_directory(self._files, self._path):
                raise UsageError(f"{self._path} was changed meanwhile; call again")
            self._check_checkpoints()
            self._take_back()
            staged = self._stage_all(on_progress)
            self._store_offsets(staged)
            for each in staged:
                self._place(each)
            self._end()
        return staged

    # Before the first step

    def _prepare_store(self) -> None:
        """Let the target store recover, and create its missing topics."""
        if self._files.is_directory(self._path):
            with held(self._home):
                self._take_back()
        directory = LogDirectory(self._path, files=self._files, clock=self._ends.clock)
        try:
            missing = [
                NewTopic(name=name, partition_count=partition_count, config=config)
                for name, (partition_count, config) in self._plan.missing_topics.items()
                if not directory.has_topic(name)  # else opening has finished an earlier call's creation
            ]
            for made in directory.create_topics(missing).values():
                if isinstance(made, LogstoreError):
                    raise made
        finally:
            directory.close()

    def _check_checkpoints(self) -> None:
        """
        Raises:
            CorruptionError: one of the target's checkpoints is damaged; replacing it would lose the offsets
                of other partitions.
        """
        for name in (RECOVERY_POINTS_NAME, LOG_STARTS_NAME, HIGH_WATERMARKS_NAME, CLEANER_OFFSETS_NAME):
            path = f"{self._path}/{name}"
            data = read_small_file(self._files, path, MAX_CHECKPOINT_BYTES)
            try:
                decode_offset_checkpoint(data or b"")
            except CorruptionError as error:
                raise error.located(path) from None

    def _take_back(self) -> None:
        strays = list_strays(self._files, self._path)  # once: a store may have thousands of partitions
        for planned in self._plan.partitions:
            take_back(self._files, self._path, planned.partition, strays)

    # Step 1

    def _stage_all(self, on_progress: OnHandoverProgress | None) -> list[Staged]:
        self._source_home.load()
        stager = Stager(
            self._files,
            self._ends.clock,
            self._source_home,
            self._source_home.has_clean_marker(),
            self._is_to_broker,
            self._options.abort_transactions,
            {
                planned.partition: planned.epoch_limit
                for planned in self._plan.partitions
                if planned.epoch_limit is not None
            },
        )
        wanted = [planned for planned in self._plan.partitions if not planned.was_placed]
        telling = _Telling(on_progress, sum(planned.size_bytes for planned in wanted))
        staged: dict[TopicPartition, Staged] = {}
        failed: list[TopicPartition] = []

        def stage(planned: PlannedPartition) -> None:
            if failed:
                return  # begin no more
            at = planned.partition
            try:
                self._check_still_empty(planned)
                staged[at] = stager.stage(planned, partial(telling.tell, at))
            except BaseException:
                failed.append(at)
                raise

        try:
            take_turns(stage, wanted, at_a_time=flushed_at_a_time(self._files))
        except BaseException:
            with contextlib.suppress(Exception):  # the original error says more
                for each in staged.values():
                    remove_staged(self._files, each.directory)
            raise
        return [staged[planned.partition] for planned in wanted]

    def _check_still_empty(self, planned: PlannedPartition) -> None:
        """Check again that the target is empty: the lock was free for a moment after the plan."""
        if not self._files.is_directory(planned.target_directory):
            raise UsageError(f"{planned.target_directory} is not there; was {self._path} changed meanwhile?")
        for entry in self._files.list_directory(planned.target_directory):
            if entry.name.endswith(".log") and self._files.size_bytes(
                f"{planned.target_directory}/{entry.name}"
            ):
                raise UsageError(f"{planned.partition} has records in the target now; nothing was changed")

    # Steps 2 to 5

    def _store_offsets(self, staged: list[Staged]) -> None:
        """Step 2. The log start comes before the log, else deleted records would be back for a while."""
        self._home.load()
        self._home.forget(each.planned.partition for each in staged)
        if not self._is_to_broker:
            self._home.reach_epoch(self._latest_epoch(), goes_on=self._source_home.has_clean_marker())
        for each in staged:
            partition = each.planned.partition
            self._home.store_log_start(partition, each.log_start_offset)
            if each.cleaner_offset is not None:
                self._home.store_cleaner_offset(partition, each.cleaner_offset)

    def _latest_epoch(self) -> int:
        """In which clients have seen the source."""
        known = [planned.latest_epoch for planned in self._plan.partitions]
        return max([self._source_home.leader_epoch, *(each for each in known if each < MAX_LEADER_EPOCH)])

    def _place(self, staged: Staged) -> None:
        """Steps 3 and 4."""
        self._files.rename(staged.planned.target_directory, f"{self._path}/{staged.set_aside}")
        self._files.flush_directory(self._path)
        self._files.rename(staged.directory, staged.planned.target_directory)
        self._files.flush_directory(self._path)

    def _end(self) -> None:
        """Step 5, also for partitions that an earlier call has placed: their offsets may still be missing."""
        self._home.load()
        for planned in self._plan.partitions:
            mark = read_mark(self._files, planned.target_directory)
            if mark is not None:
                at, end = planned.partition, mark.log_end_offset
                self._home.set_recovery_point(at, max(self._home.recovery_point(at), end))
                self._home.set_high_watermark(at, max(self._home.high_watermark(at) or 0, end))
        self._home.store_checkpoints()
        for planned in self._plan.partitions:
            mark = read_mark(self._files, planned.target_directory)
            if mark is not None and self._files.is_directory(f"{self._path}/{mark.set_aside}"):
                remove_tree(self._files, f"{self._path}/{mark.set_aside}")
        self._files.flush_directory(self._path)
        for planned in self._plan.partitions:
            if self._files.is_file(f"{planned.target_directory}/{HANDOVER_MARK_NAME}"):
                self._files.remove(f"{planned.target_directory}/{HANDOVER_MARK_NAME}")
                self._files.flush_directory(planned.target_directory)
