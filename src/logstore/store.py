"""The store: what :func:`logstore.open` returns. Topics by name, partitions by number.

A thin face over :class:`~logstore.logdir.directory.LogDirectory` (open for writing) or
:class:`~logstore.logdir.watched.WatchedDirectory` (read-only), which do the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast, overload

from logstore.arguments import check_callback, check_flag, plain_text, shown
from logstore.clock import Clock
from logstore.config import StoreConfig, TopicConfig, check_topic_config
from logstore.errors import (
    InvalidRecordError,
    LogstoreError,
    ReadOnlyError,
    TopicExistsError,
    UnknownTopicError,
    UsageError,
)
from logstore.files import Files, PathLike, check_path
from logstore.format.batch import NewBatch
from logstore.format.names import check_topic_name
from logstore.logdir.catalogue import MAX_PARTITIONS
from logstore.logdir.directory import (
    LogDirectory,
    OnProgress,
    check_partition_count,
)
from logstore.logdir.held import check_numbers, shown_numbers
from logstore.logdir.placement import Placement
from logstore.logdir.watched import WatchedDirectory
from logstore.model import BoundToProcess, Bytes, Isolation, TopicPartition, how_to_make_int
from logstore.partition.encoding.rows import NewRecords, list_of
from logstore.partition.log import Log

if TYPE_CHECKING:
    import uuid

    import pyarrow

    from logstore.backup.report import BackupReport, OnBackupProgress
    from logstore.logdir.cleaner import LogCleaner
    from logstore.partition.checking.findings import OnVerifyProgress, VerifyReport
    from logstore.partition.cleaning.reports import (
        CompactionReport,
        EraseReport,
        OnCompactionProgress,
        OnEraseProgress,
    )
    from logstore.partition.reading.latest import LatestView


def open_store(
    path: PathLike,
    *,
    create: bool = True,
    read_only: bool = False,
    config: StoreConfig | None = None,
    files: Files | None = None,
    clock: Clock | None = None,
    on_progress: OnProgress | None = None,
) -> Store:
    """Open a directory of topics.

    After a clean stop no record is read; after a crash what was not yet checkpointed is checked, and a torn
    end is cut (the cut bytes are kept aside). The directory may have been written by a Kafka broker.

    Args:
        path: the directory; made if it does not exist, unless ``create`` is false.
        read_only: take no lock and write nothing. Works while another process writes, and follows it.
        config: settings of the store, and of topics created without their own.
        files: another file system, for tests.
        clock: another clock, for tests; without the system's clock there is no background thread, and
            recovery takes one partition after the other.
        on_progress: called after each partition is opened; for recoveries that take long.

    Raises:
        LockedError: the directory is open for writing, in this process or another; names the process.
        UsageError: the path is not a store.
        RetriableError: the process may start no thread for the background work.
        CorruptionError: the catalogue is damaged. A damaged partition does not fail the open: it raises when
            it is used, and :attr:`Store.damaged` lists it.
    """
    name = check_path(path)
    create, read_only = check_flag(create, "create"), check_flag(read_only, "read_only")
    if read_only:
        return Store(WatchedDirectory(name, config=config, files=files, clock=clock))
    return Store(
        LogDirectory(name, config=config, create=create, files=files, clock=clock, on_progress=on_progress)
    )


class Store(BoundToProcess, Mapping[str, "Topic"]):
    """An open directory of topics: a mapping from topic name to :class:`Topic`.

    Use it in a ``with`` statement, or call :meth:`close`. All methods may be called from many threads. A
    child process must open its own: a forked child that uses its parent's store gets ``ForkedError``.
    """

    def __init__(self, directory: LogDirectory | WatchedDirectory) -> None:
        self._directory = directory
        self._topics: dict[str, Topic] = {}

    @property
    def path(self) -> str:
        """The absolute path."""
        return self._directory.path

    @property
    def is_read_only(self) -> bool:
        """Whether it was opened with ``read_only``."""
        return isinstance(self._directory, WatchedDirectory)

    @property
    def was_clean(self) -> bool:
        """Whether the last writer had closed the store, so that nothing had to be recovered."""
        return self._directory.was_clean

    @property
    def damaged(self) -> Mapping[TopicPartition, Exception]:
        """Partitions that could not be opened, and why."""
        return dict(self._directory.damaged)

    @property
    def damage_found(self) -> Mapping[TopicPartition, VerifyReport]:
        """Open partitions in which scrubbing (``scrub_interval_ms``) has found damage at its last look, and
        what it was. They go on working: only reads of what is damaged fail."""
        return dict(self._directory.damage_found)

    # Topics

    def __getitem__(self, name: str) -> Topic:
        name = plain_text(name)
        entry = self._directory.topic(name)
        topic = self._topics.get(name)
        if topic is None or topic.topic_id != entry.topic_id:
            topic = self._topics[name] = Topic(self._directory, name)
        return topic

    def __iter__(self) -> Iterator[str]:
        return iter(self._directory.topic_names())

    def __len__(self) -> int:
        return len(self._directory.topic_names())

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: TopicConfig | None = None,
        held: Iterable[int] | None = None,
    ) -> Topic:
        """Make a topic, durably.

        Args:
            name: what it is called.
            partitions: how many it has, here and elsewhere: keys are divided among all of them.
            config: its settings; the store's, unless given.
            held: the numbers of the partitions that this directory holds, where other directories have the
                others; all, unless given.

        Raises:
            TopicExistsError: it is there already.
            InvalidTopicError: Kafka would refuse the name.
            UsageError: a number of partitions that no topic can have; or ``held`` is not a list of some of
                their numbers.
        """
        name = plain_text(name)
        self._writable().create_topic(name, partitions, config, held)
        return self[name]

    def require_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        config: TopicConfig | None = None,
        held: Iterable[int] | None = None,
    ) -> Topic:
        """The topic, made if it is not there (with one partition unless told otherwise).

        Raises:
            UsageError: it is there with another number of partitions, other settings, or other partitions
                held, than asked for.
            InvalidTopicError: Kafka would refuse the name.
        """
        check_topic_name(name)
        name = plain_text(name)
        if partitions is not None:
            check_partition_count(partitions)
        check_topic_config(config)
        held = None if held is None else check_numbers(held, "held", range(partitions or MAX_PARTITIONS))
        if name not in self:
            try:
                return self.create_topic(name, partitions=partitions or 1, config=config, held=held)
            except TopicExistsError:
                if name not in self:
                    raise  # the name clashes with another's; else another thread was faster
        topic = self[name]
        if partitions is not None and len(topic) != partitions:
            raise UsageError(
                f"topic {name!r} has {len(topic)} partitions, not {partitions}; "
                "add_partitions() gives it more"
            )
        if config is not None and topic.config != config:
            raise UsageError(f"topic {name!r} has other settings; configure() changes them")
        if held is not None and topic.held_partitions != held:
            raise UsageError(
                f"{self.path} holds partitions {shown_numbers(topic.held_partitions)} of topic {name!r}, not "
                f"{shown_numbers(held)}; hold() adds some, let_go() removes one"
            )
        return topic

    def delete_topic(self, name: str) -> None:
        """Remove a topic and all its records. Its logs are closed; the files go after
        ``file_delete_delay_ms``, for readers in other processes.

        Raises:
            UnknownTopicError: there is no such topic.
            StorageError: the disk refused, and the topic is there as before. One that is full to the last
                byte has no room for the new list of topics: :meth:`.Log.delete_before` makes some.
        """
        name = plain_text(name)
        self._writable().delete_topic(name)
        self._topics.pop(name, None)

    def _writable(self) -> LogDirectory:
        if isinstance(self._directory, WatchedDirectory):
            raise ReadOnlyError(f"{self.path} was opened read-only")
        self._directory.check_open()
        return self._directory

    # The whole store

    def flush(self) -> None:
        """Return when everything appended before the call is durable, in every partition.

        Raises:
            StorageError: an fsync failed; the other partitions were flushed all the same.
        """
        directory = self._writable()
        directory.flush(directory.logs())

    def checkpoint(self) -> None:
        """Flush, and store recovery points, so that the next open has nothing to read. The store does it by
        itself each ``log_flush_offset_checkpoint_interval_ms``, after rolls, and on close."""
        self._writable().checkpoint()

    def enforce_retention(self, *, dry_run: bool = False) -> dict[TopicPartition, int]:
        """Apply the limits of every topic now; returns the number of segments deleted by partition. The store
        does it by itself each ``log_retention_check_interval_ms``."""
        return self._writable().enforce_retention(dry_run=check_flag(dry_run, "dry_run"))

    @property
    def cleaner(self) -> LogCleaner:
        """What compacts the store's compacted topics in the background, and tells how it goes."""
        return self._writable().cleaner

    def compact(
        self, *, now: bool = False, dry_run: bool = False, on_progress: OnCompactionProgress | None = None
    ) -> dict[TopicPartition, CompactionReport]:
        """:meth:`Log.compact` for every partition of every compacted topic, one after the other in the
        calling thread; returns what was done, by partition. The store does it by itself, where a log is dirty
        enough: see :attr:`cleaner`. ``on_progress`` must not create, change or delete topics.

        Raises:
            CorruptionError, StorageError: of the first partition where it failed; the others were compacted
                all the same.
        """
        now, dry_run = check_flag(now, "now"), check_flag(dry_run, "dry_run")
        check_callback(on_progress, "on_progress")
        return self._writable().compact(None, now=now, dry_run=dry_run, on_progress=on_progress)

    def verify(self, *, on_progress: OnVerifyProgress | None = None) -> VerifyReport:
        """Check every partition as :meth:`Log.verify` does, also those that could not be opened, and the
        store's own files; change nothing. Works on read-only stores too. Topics that are deleted meanwhile
        are left out."""
        from logstore.logdir.verify import verify_topics  # few programs get here

        check_callback(on_progress, "on_progress")
        return verify_topics(self._directory, list(self), on_progress, with_store=True)

    def backup(
        self,
        path: PathLike,
        *,
        links: bool = True,
        accept_damage: bool = False,
        on_progress: OnBackupProgress | None = None,
    ) -> BackupReport:
        """Copy the whole store to another directory, which is a store like this one then:
        ``logstore.open(path)`` works. Appends and everything else go on meanwhile; of each partition the
        backup has all that was appended before the call, and maybe the beginning of what was appended since.
        ``docs/backup.md`` says what else holds, and how to restore.

        Another call with the same path brings over what has changed, and takes out what is gone: the backup
        is the earlier or the new one at any moment, whatever happens. What is new in it was read and
        verified.

        Args:
            path: the directory of the backup. Not there, empty, or an earlier backup of this store.
            links: sealed segments are not copied where the file system allows two names of one file. Neither
                the store nor the backup ever changes such a file, but a disk may damage it for both; without,
                everything is copied.
            accept_damage: make the backup although something in the store is damaged, and say so in
                :attr:`BackupReport.damaged`: it is copied as it is, unless the earlier backup has it sound.
            on_progress: called with a :class:`~logstore.backup.report.BackupProgress` after each piece, by
                one thread at a time.

        Cost: what is new is read once, and written once if it is not linked; an fsync for each new file; some
        system calls for each segment. The last segment of each partition is copied if it has changed at all.
        Locks are held for single system calls.

        Raises:
            UsageError: the path holds something else, or lies in the store.
            CorruptionError: the store is damaged; says where. No backup was made, an earlier one is as it
                was.
            LockedError: somebody has the backup open for writing, or is making one there.
            DiskFullError, StorageError: the disk refused; an earlier backup is as it was.
            ReopenRequiredError: what was appended to a partition cannot be made durable.
            ReadOnlyError: the store was opened read-only.
        """
        from logstore.backup.store_backup import back_up  # few programs get here

        name, links = check_path(path), check_flag(links, "links")
        accept_damage = check_flag(accept_damage, "accept_damage")
        check_callback(on_progress, "on_progress")
        return back_up(
            self._writable(), name, links=links, accept_damage=accept_damage, on_progress=on_progress
        )

    def run_background(self) -> int:
        """Run the background tasks that are due, here and now; for stores on a clock set by hand. Returns how
        many ran."""
        return self._writable().context.scheduler.run_due()

    def close(self) -> None:
        """Flush and close everything. Closing twice is fine, also by two threads at a time. Where an
        interrupt leaves something open, the directory stays locked until another call closes the rest.

        Raises:
            StorageError: something could not be made durable.
        """
        self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        mode = " read-only" if self.is_read_only else ""
        try:
            contents = ", ".join(self) or "no topics"
        except LogstoreError as error:  # closed, for one
            contents = type(error).__name__
        return f"<Store {self.path!r}{mode}: {contents}>"


class Topic(BoundToProcess, Sequence[Log]):
    """A topic: a sequence of :class:`Log`, one for each partition.

    Where the directory holds some of the partitions only (:attr:`held_partitions`), ``len()`` is the number
    of all: a key's partition follows from it. Iterating gives the logs that are held. A call that needs
    another partition raises ``UnknownTopicError``, before anything is appended.
    """

    def __init__(self, directory: LogDirectory | WatchedDirectory, name: str) -> None:
        self.name = name
        self._directory = directory
        self._placement = Placement(directory.config.batch_bytes)
        self._partition_names: list[TopicPartition] = []

    @property
    def topic_id(self) -> uuid.UUID:
        """The topic's id: another one after the topic was deleted and created again."""
        return self._directory.topic(self.name).topic_id

    @property
    def config(self) -> TopicConfig:
        """The topic's settings; :meth:`configure` changes them."""
        return self._directory.topic(self.name).config

    @property
    def held_partitions(self) -> tuple[int, ...]:
        """The numbers of the partitions that the directory holds, rising; :meth:`hold` and :meth:`let_go`
        change them. Mostly all of them. A partition whose directory is missing or damaged is held: using it
        says what is wrong."""
        return tuple(self._directory.topic(self.name).held_partitions)

    def __len__(self) -> int:
        return self._directory.topic(self.name).partition_count

    def __iter__(self) -> Iterator[Log]:
        for number in self.held_partitions:
            yield self._log(number)

    def __reversed__(self) -> Iterator[Log]:
        for number in reversed(self.held_partitions):
            yield self._log(number)

    @overload
    def __getitem__(self, number: int) -> Log: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Log]: ...
    def __getitem__(self, number: int | slice) -> Log | Sequence[Log]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        return self._log(self._check_number(number))

    def _log(self, number: int) -> Log:
        """The log of a partition that the topic has."""
        names = self._partition_names
        if number >= len(names):
            self._partition_names = names = [TopicPartition(self.name, n) for n in range(len(self))]
        return cast(Log, self._directory.log(names[number]))

    def _check_number(self, number: int) -> int:
        """The partition that an index means; negative ones count from the end."""
        count = len(self)
        if type(number) is not int:
            raise UsageError(f"partition is {shown(number)}; it must be a number{how_to_make_int(number)}")
        if not -count <= number < count:
            # IndexError ends iteration over a sequence; UnknownTopicError is ours. This is both.
            raise _UnknownPartitionError(
                f"topic {self.name!r} has {count} partitions; there is no {shown(number)}"
            )
        return number % count

    # Reading

    def read_arrow(
        self, *, isolation: Isolation = Isolation.HIGH_WATERMARK, columns: Iterable[str] | None = None
    ) -> pyarrow.Table:
        """All records of all partitions, one partition after the other, as one table of Apache Arrow: as
        :meth:`Log.read_arrow`, and in front a column ``partition`` (int32)."""
        return self.iterate_arrow(isolation=isolation, columns=columns).read_all()

    def iterate_arrow(
        self,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        columns: Iterable[str] | None = None,
        batch_rows: int = 16_384,
        batch_bytes: int = 4 * 1024 * 1024,
    ) -> pyarrow.RecordBatchReader:
        """As :meth:`read_arrow`, a bounded number of records at a time; see :meth:`Log.iterate_arrow`. What
        is appended meanwhile is not seen."""
        from logstore.partition.reading import arrow  # pyarrow is optional, and slow to import

        names = arrow.names_of_topic(columns)
        readers = [
            (
                log.partition.partition,
                log.iterate_arrow(
                    isolation=isolation,
                    columns=arrow.names_of_log(names),
                    batch_rows=batch_rows,
                    batch_bytes=batch_bytes,
                ),
            )
            for log in self
        ]
        return arrow.joined(readers, names)

    def latest(
        self, *, isolation: Isolation = Isolation.HIGH_WATERMARK, map_bytes: int | None = None
    ) -> tuple[LatestView, ...]:
        """The current record of each key: a view for each partition, each with its ``partition``, its records
        and its ``end_offset``; see :meth:`Log.latest`. Keys are those of a partition, as in compaction. Each
        view takes memory while it is iterated, so one after the other takes that of one."""
        return tuple([log.latest(isolation=isolation, map_bytes=map_bytes) for log in self])

    def latest_arrow(
        self,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        columns: Iterable[str] | None = None,
        batch_rows: int = 16_384,
        batch_bytes: int = 4 * 1024 * 1024,
        map_bytes: int | None = None,
    ) -> pyarrow.RecordBatchReader:
        """The current record of each key as columns, one partition after the other, with the column
        ``partition`` in front; see :meth:`Log.latest_arrow`."""
        from logstore.partition.reading import arrow  # pyarrow is optional, and slow to import

        names = arrow.names_of_topic(columns)
        readers = [
            (
                view.partition.partition,
                view.iterate_arrow(
                    columns=arrow.names_of_log(names), batch_rows=batch_rows, batch_bytes=batch_bytes
                ),
            )
            for view in self.latest(isolation=isolation, map_bytes=map_bytes)
        ]
        return arrow.joined(readers, names)

    # Appending

    def append(
        self,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        partition: int | None = None,
        headers: Any = (),
        timestamp_ms: int | None = None,
        flush: bool = False,
    ) -> tuple[int, int]:
        """Append one record and return its (partition, offset) at once.

        The key decides the partition, as it does in Kafka's Java producer (murmur2), so that a key's records
        stay in order and meet those that other clients write. Without a key, a batch's worth goes to one
        partition, then to the next that is held.

        See :meth:`Log.append` for the rest.

        Raises:
            UnknownTopicError: there is no such partition, or the directory does not hold it; says which.
        """
        if partition is None:
            topic = self._directory.topic(self.name)
            number = self._placement.choose(key, value, topic.partition_count, topic.held)
        else:
            number = self._check_number(partition)
        log = self._log(number)
        offset = log.append(value, key=key, headers=headers, timestamp_ms=timestamp_ms, flush=flush)
        return number, offset

    def partition_for(self, key: Bytes) -> int:
        """The partition of a key, be it held here or not.

        Raises:
            InvalidRecordError: the key is not bytes-like.
        """
        return self._placement.of_key(key, len(self))

    def extend(self, records: NewRecords, *, flush: bool = False) -> dict[int, range]:
        """Append many records, each to the partition of its key; returns the offsets by partition.

        Within a partition the order is kept. All records are checked before anything is appended; where the
        disk refuses in one partition, what was appended to others stays. Takes what :meth:`Log.extend` takes,
        and raises what it raises.

        Raises:
            UnknownTopicError: a key's partition is not held here; nothing was appended.
        """
        records = records if type(records) is list else list_of(records)
        topic = self._directory.topic(self.name)
        divided = sorted(self._placement.divide(records, topic.partition_count, topic.held).items())
        logs = [(self[partition], rows) for partition, rows in divided]
        flush = check_flag(flush, "flush")
        try:
            prepared = [(log, log.writer.appending.prepare(rows)) for log, rows in logs]
        except InvalidRecordError:
            logs[0][0].writer.appending.prepare(records)  # raises it with the record's number in the call
            raise
        return self._extend_logs(prepared, flush)

    def extend_arrow(self, data: Any, *, flush: bool = False) -> dict[int, range]:
        """Append the rows of Arrow columns, each to the partition of its key; returns the offsets by
        partition.

        As :meth:`extend`, of what :meth:`Log.extend_arrow` takes. Cost: that of it, 0.1 µs per record for the
        division, and 2 µs for each key that comes for the first time.

        Raises:
            UnknownTopicError: a key's partition is not held here; nothing was appended.
        """
        from logstore.partition.encoding import arrow_input  # pyarrow is optional, and slow to import

        topic, placement = self._directory.topic(self.name), self._placement
        count, held = topic.partition_count, topic.held
        tables = arrow_input.divide(data, count, lambda value: placement.choose(None, value, count, held))
        logs = [(self[partition], table) for partition, table in tables.items()]
        flush = check_flag(flush, "flush")
        return self._extend_logs(
            [(log, log.writer.appending.prepare_arrow(table)) for log, table in logs], flush
        )

    def _extend_logs(
        self, prepared: Sequence[tuple[Log, Sequence[NewBatch]]], flush: bool
    ) -> dict[int, range]:
        """Append what was checked and encoded for each log; returns the offsets by partition."""
        offsets = {
            log.partition.partition: log.writer.appending.extend_batches(batches, False)
            for log, batches in prepared
        }
        if flush:
            self._writable().flush([log for log, _ in prepared])
        return offsets

    def flush(self) -> None:
        """Return when everything appended before the call is durable, in every partition.

        Raises:
            StorageError: an fsync failed; the other partitions were flushed all the same.
        """
        directory = self._writable()
        directory.flush([log for log in directory.logs() if log.partition.topic == self.name])

    def compact(
        self, *, now: bool = False, dry_run: bool = False, on_progress: OnCompactionProgress | None = None
    ) -> dict[TopicPartition, CompactionReport]:
        """:meth:`Log.compact` for every partition, one after the other; see :meth:`Store.compact`.

        Raises:
            UsageError: the topic is not compacted.
        """
        if not self.config.compacts:
            raise UsageError(f"topic {self.name!r} is not compacted: cleanup_policy must contain compact")
        now, dry_run = check_flag(now, "now"), check_flag(dry_run, "dry_run")
        check_callback(on_progress, "on_progress")
        return self._writable().compact(self.name, now=now, dry_run=dry_run, on_progress=on_progress)

    def erase(
        self,
        *,
        keys: Iterable[Bytes],
        dry_run: bool = False,
        on_progress: OnEraseProgress | None = None,
    ) -> dict[TopicPartition, EraseReport]:
        """Erase all records with these keys for good: :meth:`Log.erase` for every partition, one after the
        other, since a key may be in any of them.

        Raises:
            UsageError: the keys are something else.
            CorruptionError, StorageError: of the first partition where it failed, or that could not be
                opened; in the others they were erased all the same.
        """
        from logstore.partition.cleaning.erased_records import check_erased  # few programs get here

        dry_run = check_flag(dry_run, "dry_run")
        check_callback(on_progress, "on_progress")
        wanted = check_erased(keys, None).keys
        self._writable()
        reports: dict[TopicPartition, EraseReport] = {}
        failure: LogstoreError | None = None
        for number in self.held_partitions:
            try:
                log = self._log(number)
                reports[log.partition] = log.erase(keys=wanted, dry_run=dry_run, on_progress=on_progress)
            except LogstoreError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return reports

    def verify(self, *, on_progress: OnVerifyProgress | None = None) -> VerifyReport:
        """Check the topic's partitions as :meth:`Log.verify` does."""
        from logstore.logdir.verify import verify_topics

        check_callback(on_progress, "on_progress")
        return verify_topics(self._directory, [self.name], on_progress, with_store=False)

    # Changing the topic

    def configure(self, config: TopicConfig | None = None, **settings: Any) -> TopicConfig:
        """Change settings: a whole :class:`TopicConfig`, or single ones by name
        (``topic.configure(retention_ms=3_600_000)``). Returns the new settings.

        Raises:
            InvalidConfigError: an unknown name or a bad value.
        """
        changed = check_topic_config(config) or self.config
        if settings:
            changed = changed.with_settings(**settings)
        return self._writable().configure(self.name, changed).config

    def add_partitions(self, partitions: int, *, held: Iterable[int] | None = None) -> None:
        """Give the topic more partitions, ``partitions`` in all. Keys may then go to other partitions than
        before; records stay where they are.

        Args:
            partitions: how many there are in all, here and elsewhere.
            held: the numbers of those new ones that this directory holds, which may be none; all of the new
                ones, unless given.

        Raises:
            UsageError: it has as many or more; or ``held`` is not a list of numbers of new ones.
        """
        self._writable().add_partitions(self.name, partitions, held)

    def hold(self, partitions: Iterable[int]) -> None:
        """Hold more of the topic's partitions here, durably: all that are named, or after a crash none. They
        begin empty; but where somebody has put a directory of the topic's under the partition's name, a copy
        of what another directory has, its records are taken. Those that are held already stay as they are.

        Raises:
            UsageError: not a list of numbers of the topic's partitions; or the directory is a broker's.
            TopicExistsError: a directory of another topic is in the place.
        """
        self._writable().hold(self.name, partitions)

    def let_go(self, partition: int) -> None:
        """Hold a partition no longer: remove it from this directory with all its records, also where it is
        damaged or missing. Its log is closed; the files go after ``file_delete_delay_ms``, for readers in
        other processes. The topic keeps its number of partitions.

        Raises:
            UnknownTopicError: the directory does not hold it.
            UsageError: it is the only one that is held: :meth:`Store.delete_topic` removes the topic.
            StorageError: the disk refused; the partition is held as before, or let go by the next open.
        """
        self._writable().let_go(self.name, partition)

    def reopen(self, partition: int, *, accept_loss: bool = False) -> Log:
        """Open one partition again: after a failed fsync, or after its files were repaired or restored.

        With ``accept_loss`` a partition whose durable data is damaged is cut where the damage begins; the
        bytes behind are kept aside, all of them, in ``.torn-`` files.

        Raises:
            UnknownTopicError: the directory does not hold it.
            CorruptionError: it is damaged, and ``accept_loss`` is false.
        """
        number = self._check_number(partition)
        return self._writable().reopen(TopicPartition(self.name, number), accept_loss=accept_loss)

    def _writable(self) -> LogDirectory:
        if isinstance(self._directory, WatchedDirectory):
            raise ReadOnlyError(f"{self._directory.path} was opened read-only")
        self._directory.check_open()
        return self._directory

    def __repr__(self) -> str:
        return f"<Topic {self.name!r} in {self._directory.path!r}>"


class _UnknownPartitionError(UnknownTopicError, IndexError):
    """No such partition in the topic."""
