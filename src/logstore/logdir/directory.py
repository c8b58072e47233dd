"""A directory of topics, open for writing: the partitions of each, and the work in the background.

Knows which directories exist and in which order they are made and removed, so that a crash at any point leaves
a topic that is there, or is not, or is finished by the next open. Does not know records.

Lock: ``_lock`` guards the catalogue and the table of logs; no log is read or written under it.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple

from logstore.clock import Clock
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import (
    ClosedError,
    CorruptionError,
    ForkedError,
    InvalidConfigError,
    LogstoreError,
    TopicExistsError,
    UnknownTopicError,
    UsageError,
)
from logstore.files import Files
from logstore.format.names import (
    DirectoryKind,
    check_topic_name,
    deleted_directory_name,
    has_name_clash,
    partition_directory_name,
)
from logstore.logdir.catalogue import (
    MAX_PARTITIONS,
    TopicEntry,
    TopicState,
    read_catalogue,
    write_catalogue,
)
from logstore.logdir.identity import (
    ensure_identity,
    list_partitions,
    live_partition_counts,
    prepare_directory,
)
from logstore.model import TopicPartition
from logstore.partition.context import LogContext, make_context
from logstore.partition.log import Log
from logstore.partition.opening import open_log
from logstore.partition.recovery import RecoveryReport
from logstore.partition.sidecars import read_topic_id, write_topic_id

_log = logging.getLogger("logstore")


class OpenProgress(NamedTuple):
    """How far opening has come; given to the ``on_progress`` of :func:`logstore.open`."""

    done_count: int
    total_count: int
    partition: TopicPartition
    """The partition that was opened just now."""
    report: RecoveryReport | None
    """What was found and done; None if it could not be opened."""


OnProgress = Callable[[OpenProgress], None]


class LogDirectory:
    """The topics and logs of one directory, held by this process."""

    def __init__(
        self,
        path: str,
        *,
        config: StoreConfig | None = None,
        create: bool = True,
        files: Files | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        """
        Raises:
            UsageError: the path is not a store and cannot become one.
            LockedError: it is open for writing elsewhere.
            CorruptionError: the catalogue or the identity is damaged.
        """
        self.context: LogContext = make_context(path, config=config, files=files, clock=clock, seed=seed)
        self.path = self.context.home.path
        self.config = self.context.config
        self._files = self.context.files
        self._lock = threading.RLock()
        self._topics: dict[str, TopicEntry] = {}
        self._logs: dict[TopicPartition, Log] = {}
        self.damaged: dict[TopicPartition, LogstoreError] = {}
        """Partitions that could not be opened, and why. The others work."""
        self._is_closed = False
        prepare_directory(self._files, self.path, create=create)
        self.context.home.acquire()
        try:
            self._load(on_progress)
        except BaseException:
            self._abandon()
            raise
        self._start_background()

    # Opening

    def _load(self, on_progress: OnProgress | None) -> None:
        self.context.home.load()
        self.was_clean = self.context.home.take_clean_marker()
        self.identity = ensure_identity(self._files, self.path)
        self._load_catalogue()
        self._finish_interrupted()
        self._remove_deleted_directories()
        wanted = [
            TopicPartition(topic.name, number)
            for topic in self._topics.values()
            for number in range(topic.partition_count)
        ]
        self._open_logs(wanted, on_progress)
        self.context.home.store_checkpoints()

    def _load_catalogue(self) -> None:
        """The catalogue, completed by partition directories that it does not know (a broker wrote them, or
        somebody put them here)."""
        self._topics = read_catalogue(self._files, self.path) or {}
        for name, count in live_partition_counts(self._files, self.path).items():
            if name not in self._topics:
                directory = f"{self.path}/{partition_directory_name(name, count - 1)}"
                topic_id = read_topic_id(self._files, directory) or uuid.uuid4()
                self._topics[name] = TopicEntry(
                    name=name, topic_id=topic_id, partition_count=count, config=self.config.topic
                )

    def _finish_interrupted(self) -> None:
        """Carry creations and deletions to their end."""
        for topic in list(self._topics.values()):
            if topic.state is TopicState.CREATING:
                self._make_directories(topic, range(topic.partition_count))
                self._topics[topic.name] = topic.in_state(TopicState.LIVE)
            elif topic.state is TopicState.DELETING:
                self._rename_directories(topic)
                del self._topics[topic.name]
        self._store_catalogue()

    def _remove_deleted_directories(self) -> None:
        for name, parsed in list_partitions(self._files, self.path):
            if parsed.kind is DirectoryKind.DELETED:
                self._remove_directory(f"{self.path}/{name}")

    def _open_logs(self, wanted: list[TopicPartition], on_progress: OnProgress | None) -> None:
        """Open the partitions; after an unclean stop several at a time. Damage in one leaves the others."""
        count = self.config.num_recovery_threads_per_data_dir
        if self.was_clean or count == 1 or len(wanted) < 2:
            opened: Iterable[Log | None] = map(self._try_open, wanted)
            self._collect(wanted, opened, on_progress)
            return
        from concurrent.futures import ThreadPoolExecutor  # only a recovery pays for the import

        with ThreadPoolExecutor(count, thread_name_prefix="logstore-recovery") as pool:
            self._collect(wanted, pool.map(self._try_open, wanted), on_progress)

    def _collect(
        self, wanted: list[TopicPartition], opened: Iterable[Log | None], on_progress: OnProgress | None
    ) -> None:
        for number, (partition, log) in enumerate(zip(wanted, opened, strict=True), 1):
            if log is not None:
                self._logs[partition] = log
            if on_progress is not None:
                report = log.recovery if log is not None else None
                on_progress(OpenProgress(number, len(wanted), partition, report))

    def _try_open(self, partition: TopicPartition) -> Log | None:
        try:
            return self._open_log(partition, is_clean=self.was_clean)
        except LogstoreError as error:
            _log.warning("%s cannot be opened: %s", partition, error)
            self.damaged[partition] = error
            return None

    def _open_log(self, partition: TopicPartition, *, is_clean: bool, accept_loss: bool = False) -> Log:
        directory = self._directory_of(partition)
        if not self._files.is_directory(directory):
            raise CorruptionError("the partition's directory is missing", path=directory)
        config = self._topics[partition.topic].config
        return open_log(
            self.context, directory, partition, config, is_clean=is_clean, accept_loss=accept_loss
        )

    def _directory_of(self, partition: TopicPartition) -> str:
        return f"{self.path}/{partition_directory_name(*partition)}"

    # Background

    def _start_background(self) -> None:
        every, config = self.context.scheduler.every, self.config
        every(config.log_retention_check_interval_ms, "retention", self.enforce_retention)
        every(config.log_flush_offset_checkpoint_interval_ms, "checkpoint", self.checkpoint)
        every(
            config.replica_high_watermark_checkpoint_interval_ms,
            "high watermarks",
            self._store_high_watermarks,
        )
        every(config.producer_id_expiration_check_interval_ms, "expire producers", self._expire_producers)

    def logs(self) -> list[Log]:
        """Every open log."""
        with self._lock:
            return list(self._logs.values())

    def _usable_logs(self) -> list[Log]:
        return [log for log in self.logs() if not log.needs_reopen and not log.is_closed]

    def enforce_retention(self, *, dry_run: bool = False) -> dict[TopicPartition, int]:
        """Apply every topic's limits now. Returns the number of segments deleted (with ``dry_run``, that would
        be), for the partitions that have any."""
        counts = {log.partition: log.enforce_retention(dry_run=dry_run) for log in self._usable_logs()}
        return {partition: count for partition, count in counts.items() if count}

    def checkpoint(self) -> None:
        """Flush every log and store its recovery point: what the next open need not read."""
        for log in self._usable_logs():
            if self.context.home.recovery_point(log.partition) != log.log_end_offset:
                log.checkpoint()
        self.context.home.store_checkpoints()

    def _store_high_watermarks(self) -> None:
        changed = False
        for log in self._usable_logs():
            if self.context.home.high_watermark(log.partition) != log.written_high_watermark:
                self.context.home.set_high_watermark(log.partition, log.written_high_watermark)
                changed = True
        if changed:
            self.context.home.store_high_watermarks()

    def _expire_producers(self) -> None:
        for log in self._usable_logs():
            log.expire_producers()

    # Topics

    def topic_names(self) -> list[str]:
        with self._lock:
            return sorted(name for name, topic in self._topics.items() if topic.state is TopicState.LIVE)

    def topic(self, name: str) -> TopicEntry:
        """
        Raises:
            UnknownTopicError: there is no such topic.
        """
        self.check_open()
        with self._lock:
            topic = self._topics.get(name)
        if topic is None or topic.state is not TopicState.LIVE:
            raise UnknownTopicError(f"there is no topic {name!r} in {self.path}")
        return topic

    def log(self, partition: TopicPartition) -> Log:
        """
        Raises:
            UnknownTopicError: there is no such partition.
            CorruptionError: it could not be opened; says why.
        """
        self.check_open()
        with self._lock:
            log = self._logs.get(partition)
            if log is not None:
                return log
            error = self.damaged.get(partition)
        if error is not None:
            raise error
        raise UnknownTopicError(f"there is no partition {partition} in {self.path}")

    def create_topic(self, name: str, partition_count: int, config: TopicConfig | None) -> TopicEntry:
        """Make a topic. A crash in between is finished by the next open.

        Raises:
            InvalidTopicError: Kafka would refuse the name.
            TopicExistsError: it is there, or one whose name differs only in ``.`` and ``_``.
        """
        check_topic_name(name)
        _check_partition_count(partition_count)
        with self._lock:
            self.check_open()
            self._check_free(name)
            topic = TopicEntry(
                name=name,
                topic_id=uuid.uuid4(),
                partition_count=partition_count,
                config=_check_config(config) or self.config.topic,
                state=TopicState.CREATING,
            )
            self._put(topic)
            return self._finish_creation(topic, 0)

    def _check_free(self, name: str) -> None:
        for other in self._topics:
            if other == name:
                raise TopicExistsError(f"topic {name!r} is there already; require_topic() returns it")
            if has_name_clash(other, name):
                raise TopicExistsError(
                    f"topic {name!r} clashes with {other!r}: Kafka takes . and _ for the same"
                )

    def _finish_creation(self, topic: TopicEntry, first: int) -> TopicEntry:
        """Make the directories, say that the topic is live, open the logs."""
        numbers = range(first, topic.partition_count)
        self._make_directories(topic, numbers)
        live = topic.in_state(TopicState.LIVE)
        self._put(live)
        for number in numbers:
            partition = TopicPartition(topic.name, number)
            self._logs[partition] = self._open_log(partition, is_clean=False)
        return live

    def _make_directories(self, topic: TopicEntry, numbers: range) -> None:
        for number in numbers:
            directory = self._directory_of(TopicPartition(topic.name, number))
            self._files.make_directory(directory)
            if read_topic_id(self._files, directory) is None:
                write_topic_id(self._files, directory, topic.topic_id)
        self._files.flush_directory(self.path)

    def _put(self, topic: TopicEntry) -> None:
        """Store the catalogue with this entry, then show it."""
        changed = {**self._topics, topic.name: topic}
        write_catalogue(self._files, self.path, changed.values())
        self._topics = changed

    def _store_catalogue(self) -> None:
        write_catalogue(self._files, self.path, self._topics.values())

    def add_partitions(self, name: str, partition_count: int) -> TopicEntry:
        """Give a topic more partitions, ``partition_count`` in all.

        Raises:
            UsageError: it has as many or more; partitions are never taken away.
        """
        _check_partition_count(partition_count)
        with self._lock:
            topic = self.topic(name)
            if partition_count <= topic.partition_count:
                raise UsageError(
                    f"topic {name!r} has {topic.partition_count} partitions; it cannot get {partition_count} in all"
                )
            grown = TopicEntry(
                name=name,
                topic_id=topic.topic_id,
                partition_count=partition_count,
                config=topic.config,
                state=TopicState.CREATING,
            )
            self._put(grown)
            return self._finish_creation(grown, topic.partition_count)

    def configure(self, name: str, config: TopicConfig) -> TopicEntry:
        """Store other settings for a topic, durably, then use them."""
        with self._lock:
            topic = self.topic(name)
            changed = TopicEntry(
                name=name,
                topic_id=topic.topic_id,
                partition_count=topic.partition_count,
                config=_check_config(config) or topic.config,
            )
            self._put(changed)
            for number in range(topic.partition_count):
                log = self._logs.get(TopicPartition(name, number))
                if log is not None:
                    log.reconfigure(changed.config)
            return changed

    def delete_topic(self, name: str) -> None:
        """Remove a topic with all its records. Its files go after ``file_delete_delay_ms``.

        The catalogue says first that it is going: a crash later cannot bring a part of it back.
        """
        with self._lock:
            topic = self.topic(name)
            self._put(topic.in_state(TopicState.DELETING))
            for number in range(topic.partition_count):
                partition = TopicPartition(name, number)
                log = self._logs.pop(partition, None)
                if log is not None:
                    log.abandon()
                self.damaged.pop(partition, None)
                self.context.home.forget(partition)
            renamed = self._rename_directories(topic)
            del self._topics[name]
            self._store_catalogue()
        self.context.scheduler.after(
            topic.config.file_delete_delay_ms, f"remove {name}", lambda: self._remove_all(renamed)
        )

    def _rename_directories(self, topic: TopicEntry) -> list[str]:
        renamed = []
        for number in range(topic.partition_count):
            directory = self._directory_of(TopicPartition(topic.name, number))
            if self._files.is_directory(directory):
                gone = f"{self.path}/{deleted_directory_name(topic.name, number, uuid.uuid4().hex)}"
                self._files.rename(directory, gone)
                renamed.append(gone)
        self._files.flush_directory(self.path)
        return renamed

    def _remove_all(self, directories: list[str]) -> None:
        for directory in directories:
            if self._files.is_directory(directory):
                self._remove_directory(directory)

    def _remove_directory(self, directory: str) -> None:
        for entry in self._files.list_directory(directory):
            if not entry.is_directory:
                self._files.remove(f"{directory}/{entry.name}")
        self._files.remove_directory(directory)

    def reopen(self, partition: TopicPartition, *, accept_loss: bool = False) -> Log:
        """Open one partition again: after a failed fsync, or after its files were restored. What is on disk is
        checked as after a crash.

        Raises:
            CorruptionError: it is still damaged, and ``accept_loss`` is false.
        """
        with self._lock:
            self.topic(partition.topic)
            old = self._logs.get(partition)
            if old is not None:
                old.abandon()
            try:
                log = self._open_log(partition, is_clean=False, accept_loss=accept_loss)
            except LogstoreError as error:
                self._logs.pop(partition, None)
                self.damaged[partition] = error
                raise
            self._logs[partition] = log
            self.damaged.pop(partition, None)
            return log

    # End

    def check_open(self) -> None:
        """
        Raises:
            ForkedError: this process is a child of the one that opened the store.
            ClosedError: the store is closed.
        """
        if self.context.fork_flag.is_forked:
            raise ForkedError(
                f"{self.path} was opened by the parent of this process; open it again in the child"
            )
        if self._is_closed:
            raise ClosedError(f"{self.path} is closed")

    def close(self) -> None:
        """Flush and close every log, store the checkpoints and the clean-shutdown marker, let go of the lock.

        Raises:
            StorageError: something could not be made durable. Everything is closed all the same; the next
                open recovers.
        """
        if self._is_closed or self.context.fork_flag.is_forked:
            return
        self._is_closed = True
        self.context.scheduler.stop()
        try:
            failure = self._close_logs()
            self.context.home.store_checkpoints()
            if failure is not None:
                raise failure
            if not self.damaged:
                self.context.home.put_clean_marker()
        finally:
            self.context.home.release()

    def _close_logs(self) -> LogstoreError | None:
        failure: LogstoreError | None = None
        for log in self.logs():
            try:
                log.close()
                if log.needs_reopen:
                    log.check_writable()
            except LogstoreError as error:
                failure = failure or error
        return failure

    def _abandon(self) -> None:
        self._is_closed = True
        self.context.scheduler.stop()
        for log in self.logs():
            log.abandon()
        self.context.home.release()

    def abandon(self) -> None:
        """Let go without writing anything, as a crash would; for tests."""
        self._abandon()


def _check_partition_count(count: int) -> None:
    if type(count) is not int or not 1 <= count <= MAX_PARTITIONS:
        raise UsageError(f"partitions is {count!r}; it must be a number from 1 to {MAX_PARTITIONS}")


def _check_config(config: TopicConfig | None) -> TopicConfig | None:
    if config is not None and not isinstance(config, TopicConfig):
        raise InvalidConfigError(f"config is a {type(config).__name__}; it must be a TopicConfig")
    return config
