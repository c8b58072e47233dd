"""The logs of a directory that are open: how they are opened, opened again and closed.

Knows which partitions could not be opened, and which nobody has asked for. What a topic is, and which of its
partitions the directory holds, :mod:`~logstore.logdir.topics` knows. Logs come and go under the directory's
lock; only the first opening needs none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing, nullcontext, suppress
from copy import copy
from functools import partial
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from logstore.clock import SystemClock
from logstore.errors import (
    DiskFullError,
    LogstoreError,
    ReopenRequiredError,
    RetriableError,
    StorageError,
    without_frames,
)
from logstore.logdir.catalogue import TopicEntry
from logstore.logdir.identity import check_topic_id, missing_directory
from logstore.logdir.topics import TopicTable
from logstore.logdir.upkeep import for_each
from logstore.model import Role, TopicPartition
from logstore.partition.log import Log, open_log
from logstore.partition.recovery.loaded import RecoveryReport
from logstore.partition.state.context import LogContext
from logstore.partition.state.sidecars import read_epochs
from logstore.turns import WORTH_THREADS_SECONDS, OtherThreads, flushed_at_a_time, take_turns
from logstore.warning import inform, warn

if TYPE_CHECKING:
    from concurrent.futures import Future

_Shown = TypeVar("_Shown")

_LEAST_PAUSE_MS: Final = 1_000
_PAUSE_FACTOR: Final = 10
"""A partition without room is tried again after so many times as long as the last attempt took."""


class OpenProgress(NamedTuple):
    """How far opening has come; given to the ``on_progress`` of :func:`logstore.open`."""

    done_count: int
    total_count: int
    partition: TopicPartition
    """The partition that was just opened."""
    report: RecoveryReport | None
    """What recovery found and did; None if the partition could not be opened."""


OnProgress = Callable[[OpenProgress], None]
Wanted = tuple[TopicPartition, TopicEntry]


class OpenLogs:
    """The open logs of one directory."""

    def __init__(self, context: LogContext, topics: TopicTable) -> None:
        self._context = context
        self._topics = topics
        self._files = context.files
        self.by_partition: dict[TopicPartition, Log] = {}
        self.damaged: dict[TopicPartition, LogstoreError] = {}
        """Partitions that could not be opened, with the errors. The others work."""
        self._unasked: set[TopicPartition] = set()
        """Partitions that are as a clean stop has left them, and were not asked for."""
        self._try_again_ms: dict[TopicPartition, int] = {}
        """Before then those without room are not opened again."""

    def all(self) -> list[Log]:
        """Every open log."""
        return list(self.by_partition.copy().values())

    def usable(self) -> list[Log]:
        """Those that can be read and appended to."""
        return [log for log in self.all() if not log.needs_reopen and not log.is_closed]

    def latest_epoch_of(self, topic: TopicEntry) -> tuple[int, bool]:
        """The latest leader epoch of a topic's partitions here, and whether one may have had records."""
        latest, has_records = 0, False
        for number in topic.held_partitions:
            partition = TopicPartition(topic.name, number)
            log = self.by_partition.get(partition)
            if log is not None:
                latest = max(latest, log.leader_epoch)
                has_records = has_records or log.log_end_offset > 0
                continue
            stored = read_epochs(self._files, self._topics.directory_of(partition))
            latest = max(latest, -1 if stored is None else stored.latest_epoch)
            has_records = True
        return latest, has_records

    # When the directory is opened

    def leave_unasked(self, wanted: Iterable[Wanted]) -> None:
        """Open the partitions when :meth:`find` is asked for them. They are as a clean stop has left them."""
        self._unasked.update(partition for partition, _ in wanted)

    def open_all(self, wanted: list[Wanted], on_progress: OnProgress | None, *, was_clean: bool) -> None:
        """Open the partitions, and store how far they were checked. After an unclean stop opens several at a
        time. Damage in one does not affect the others. On a clock set by hand, opens one after the other, so
        that tests are repeatable."""
        count = self._context.config.num_recovery_threads_per_data_dir
        has_threads = isinstance(self._context.clock, SystemClock) and count > 1
        try_open = partial(self._try_open, is_clean=was_clean)
        if was_clean or not has_threads or len(wanted) < 2:
            self._collect(wanted, map(try_open, wanted), on_progress)
        else:
            with OtherThreads(count, "logstore-recovery") as threads:
                self._collect(wanted, _map_all(threads, try_open, wanted), on_progress)
        self._store_what_was_checked()

    def _collect(
        self, wanted: list[Wanted], opened: Iterable[Log | None], on_progress: OnProgress | None
    ) -> None:
        with closing(self._settled(opened)) as settled:
            for number, ((partition, _), log) in enumerate(zip(wanted, settled, strict=True), 1):
                if log is not None:
                    self.by_partition[partition] = log
                if on_progress is not None:
                    report = log.recovery if log is not None else None
                    on_progress(OpenProgress(number, len(wanted), partition, report))

    def _settled(self, opened: Iterable[Log | None]) -> Generator[Log | None]:
        """The logs, in their order, when what recovery has found in them is durable. As soon as that takes
        long, several are flushed at a time, while others are read."""
        logs = iter(opened)
        takes_long = False
        for log in logs:
            if log is None or log.writer.unsettled is None:
                yield log
                continue
            if takes_long and (at_a_time := flushed_at_a_time(self._files)) > 1:
                yield from self._settled_beside(chain([log], logs), at_a_time)
                return
            started = perf_counter()
            settled = self._settle(log)
            takes_long = perf_counter() - started > WORTH_THREADS_SECONDS
            yield settled

    def _settled_beside(self, logs: Iterable[Log | None], at_a_time: int) -> Generator[Log | None]:
        """The same, in other threads."""
        with OtherThreads(at_a_time, "logstore-settle") as threads:
            waiting: deque[Future[Log | None]] = deque()
            for log in logs:
                waiting.append(self._begin_to_settle(threads, log))
                while waiting[0].done() or len(waiting) > 2 * at_a_time:
                    yield waiting.popleft().result()
                    if not waiting:
                        break
            while waiting:
                yield waiting.popleft().result()

    def _begin_to_settle(self, threads: OtherThreads, log: Log | None) -> Future[Log | None]:
        """Let a thread settle the log, if there is anything to settle. If the system grants no more, those
        that there are finish what they were given, which may include this log, and this thread does the rest.
        """
        if log is None or log.writer.unsettled is None:
            return _done(log)
        try:
            return threads.submit(self._settle, log)
        except RuntimeError:
            threads.finish()
            return _done(self._settle(log))

    def _settle(self, log: Log) -> Log | None:
        try:
            log.writer.settle()
        except LogstoreError as error:
            self._note_damage(log.partition, error)
            return None
        return log

    def _try_open(self, wanted: Wanted, *, is_clean: bool) -> Log | None:
        partition, topic = wanted
        try:
            return self._open(partition, topic, is_clean=is_clean, settle=False)
        except LogstoreError as error:
            self._note_damage(partition, error)
            return None

    def _note_damage(self, partition: TopicPartition, error: LogstoreError) -> None:
        warn("%s cannot be opened: %s", partition, error)
        self.damaged[partition] = without_frames(error)

    def _open(
        self,
        partition: TopicPartition,
        topic: TopicEntry,
        *,
        is_clean: bool,
        accept_loss: bool = False,
        settle: bool = True,
    ) -> Log:
        directory = self._topics.directory_of(partition)
        try:
            check_topic_id(self._files, directory, topic.name, topic.topic_id)
            log = open_log(
                self._context,
                directory,
                partition,
                topic.config,
                is_clean=is_clean,
                accept_loss=accept_loss,
                is_foreign=topic.name in self._topics.adopted,
            )
            if settle and log.writer.unsettled is not None:
                self._settle_or_abandon(log)
            return log
        except StorageError:
            if self._files.is_directory(directory):
                raise
            raise missing_directory(self._files, self._context.home.path, partition) from None

    @staticmethod
    def _settle_or_abandon(log: Log) -> None:
        try:
            log.writer.settle()
        except BaseException:
            log.abandon()
            raise

    def _store_point_or_abandon(self, log: Log) -> None:
        """A truncation may have failed before it was stored where the log ends. If the log grew behind that,
        the next open would take the gap for a loss."""
        try:
            self._context.home.store_checkpoints()
        except BaseException:
            log.abandon()
            raise

    def _store_what_was_checked(self) -> None:
        """Without room for it, the next open checks the logs once more. But a log from elsewhere gets its
        first recovery point before anything is appended to it."""
        home = self._context.home
        try:
            home.store_checkpoints()
        except DiskFullError as error:
            if not all(home.is_point_stored(partition) for partition in self.by_partition):
                raise
            warn("how far the logs were checked is stored when there is room: %s", error)

    # Later

    def find(self, partition: TopicPartition) -> Log | None:
        """The log of a partition. It is opened if nobody has asked for it before, or if there was no room to
        open it. None if the directory has no such partition, or does not hold it.

        Raises:
            CorruptionError, StorageError: it could not be opened; says why.
        """
        log = self.by_partition.get(partition)
        if log is not None:
            return log
        if partition in self._unasked:
            return self._open_asked(partition)
        if partition in self.damaged:
            return self._try_again(partition)
        return None

    def _open_asked(self, partition: TopicPartition) -> Log:
        try:
            log = self._open(partition, self._topics.entries[partition.topic], is_clean=True)
        except LogstoreError as error:
            self._note_damage(partition, error)
            self._unasked.remove(partition)
            raise
        self.by_partition[partition] = log
        self._unasked.remove(partition)
        if not log.recovery.was_clean:  # it was not as the clean stop has left it
            self._store_what_was_checked()
            self._tell_end_of(log)
        return log

    def _tell_end_of(self, log: Log) -> None:
        """Of a log that was recovered, but not when all were."""
        if log.role is Role.ALONE:
            self._context.lost_ends.tell_soon({log.partition: log.log_end_offset})

    def _try_again(self, partition: TopicPartition) -> Log:
        """Open a partition that could not be opened for lack of room, but do not spend all the time on it."""
        error = self.damaged[partition]
        began_ms = self._context.clock.monotonic_ms()
        if not isinstance(error, DiskFullError) or began_ms < self._try_again_ms.get(partition, 0):
            raise copy(error)  # else it would collect the frames of every caller
        try:
            self._context.home.check_held()
            log = self.reopen(partition, self._topics.entries[partition.topic])
        except LogstoreError:
            ended_ms = self._context.clock.monotonic_ms()
            pause_ms = max(_LEAST_PAUSE_MS, _PAUSE_FACTOR * (ended_ms - began_ms))
            self._try_again_ms[partition] = ended_ms + pause_ms
            raise
        inform("%s is open, now that there is room", partition)
        self._tell_end_of(log)
        return log

    def open_new(
        self,
        wanted: Mapping[TopicPartition, TopicEntry],
        show: Callable[[], _Shown],
        is_shown: Callable[[], bool],
    ) -> _Shown:
        """Open the logs of new partitions, and only then call ``show``: no interrupt can leave a visible
        topic without its logs. After an error they are closed, unless ``is_shown`` says that they can be
        seen."""
        opened: dict[TopicPartition, Log] = {}

        def open_one(partition: TopicPartition) -> None:
            opened[partition] = self._open(partition, wanted[partition], is_clean=False)

        try:
            partitions = list(wanted)
            take_turns(open_one, partitions, at_a_time=flushed_at_a_time(self._files))
            self._context.home.ensure_recovery_points(partitions)
            self.by_partition.update(
                {partition: opened[partition] for partition in partitions}
            )  # in this order
            return show()
        except BaseException:
            if not is_shown():
                for partition, log in opened.items():
                    self.by_partition.pop(partition, None)
                    log.abandon()
            raise

    def drop(self, partition: TopicPartition) -> None:
        """Forget the log of a partition that is being removed."""
        log = self.by_partition.pop(partition, None)
        if log is not None:
            log.abandon(is_removed=True)
        self.damaged.pop(partition, None)
        self._unasked.discard(partition)

    def reopen(self, partition: TopicPartition, topic: TopicEntry, *, accept_loss: bool = False) -> Log:
        """See :meth:`.LogDirectory.reopen`."""
        old = self.by_partition.get(partition)
        if old is not None:
            with suppress(StorageError) if accept_loss else nullcontext():
                old.writer.write_gathered()
        try:
            self._unasked.discard(partition)
            if old is not None:
                old.abandon()
                if old.role is Role.ALONE:  # what it has shown may be gone
                    self._context.home.begin_epoch(old.leader_epoch)
            log = self._open(partition, topic, is_clean=False, accept_loss=accept_loss)
            self._store_point_or_abandon(log)
            self.damaged.pop(partition, None)
            self.by_partition[partition] = log  # last: until then callers get the closed one
        except BaseException as error:
            if old is not None:
                old.abandon()  # again: an interrupt may have come before it was done
            self.by_partition.pop(partition, None)
            self.damaged[partition] = self._why_not_open(partition, error)
            raise
        return log

    def _why_not_open(self, partition: TopicPartition, error: BaseException) -> LogstoreError:
        """The error for users of a partition that could not be reopened."""
        if isinstance(error, LogstoreError):
            return copy(error)  # without the frames of the one that is raised
        return ReopenRequiredError(
            None,
            f"{partition} must be reopened: opening it was interrupted ({type(error).__name__})",
            self._topics.directory_of(partition),
        )

    # End

    @property
    def are_closed(self) -> bool:
        """Whether no log can write any more."""
        return all(log.writer.guard.is_closed for log in self.all())

    @property
    def are_sound(self) -> bool:
        """Whether all could be opened, and none must be opened again."""
        return not self.damaged and all(log.writer.guard.failure is None for log in self.all())

    def close(self) -> None:
        """Close all logs, several at a time. The log whose compaction or erasure has called this, in its
        progress callback, is closed first, by this thread: another one would wait for the end of that."""
        logs, this_thread = self.all(), threading.get_ident()
        changing = [log for log in logs if log.writer.turn.thread_id == this_thread]
        try:
            if changing:
                for_each(_close_log, changing, flushes=False)
        finally:
            for_each(_close_log, logs, at_a_time=flushed_at_a_time(self._files), flushes=False)

    def abandon(self) -> None:
        """Close them all without writing."""
        for log in self.all():
            log.abandon()


def _map_all(
    threads: OtherThreads,
    action: Callable[[Wanted], Log | None],
    wanted: list[Wanted],
) -> Iterable[Log | None]:
    """Let the threads do the action for each. The results are in order.

    Raises:
        RetriableError: no thread can be started for it.
    """
    try:
        begun = [threads.submit(action, each) for each in wanted]
    except RuntimeError as error:
        raise RetriableError(f"no thread can be started for the recovery: {error}") from None
    return (each.result() for each in begun)


def _done(log: Log | None) -> Future[Log | None]:
    from concurrent.futures import Future

    done: Future[Log | None] = Future()
    done.set_result(log)
    return done


def _close_log(log: Log) -> None:
    writer = log.writer
    try:
        writer.check_writable()
    finally:
        writer.close()
