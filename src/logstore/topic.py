"""A topic: its partitions by number, and what is done with all of them.

A thin face, as :class:`~logstore.store.Store` is one, over the directory that does the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast, overload

from logstore.arguments import check_callback, check_flag, check_flags, shown
from logstore.config import TopicConfig, check_topic_config
from logstore.errors import (
    InvalidRecordError,
    LogstoreError,
    ReadOnlyError,
    UnknownPartitionError,
    UnknownTopicError,
    UsageError,
)
from logstore.format.batch import NewBatch
from logstore.logdir.directory import LogDirectory, check_can_grow
from logstore.logdir.held import not_held
from logstore.logdir.placement import Placement
from logstore.model import (
    BoundToProcess,
    Bytes,
    Isolation,
    Moment,
    Record,
    Role,
    TopicPartition,
    how_to_make_int,
)
from logstore.partition.arguments import check_isolation, check_timeout
from logstore.partition.encoding.rows import NewRecords, list_of
from logstore.partition.log import Log
from logstore.partition.reading.readable import ReadableLog

if TYPE_CHECKING:
    import uuid

    import pyarrow

    from logstore.logdir.joining import Order, Start, Stop
    from logstore.logdir.watched import WatchedDirectory
    from logstore.partition.checking.findings import OnVerifyProgress, VerifyReport
    from logstore.partition.cleaning.reports import (
        CompactionReport,
        EraseReport,
        OnCompactionProgress,
        OnEraseProgress,
    )
    from logstore.partition.reading.latest import LatestView
    from logstore.serializing import SerializedTopic, SerializerChoice
    from logstore.showing import Table


class Topic(BoundToProcess, Sequence[Log]):
    """A topic: a sequence of :class:`Log`, one for each partition.

    If the directory holds only some of the partitions (:attr:`held_partitions`), ``len()`` still counts all
    of them, since the partition of a key follows from it. Iterating gives the logs that are held. A call that
    needs another partition raises ``UnknownTopicError``, before anything is appended.
    """

    def __init__(self, directory: LogDirectory | WatchedDirectory, name: str) -> None:
        self.name = name
        """The topic's name."""
        self._directory = directory
        self._placement = Placement(directory.config.batch_bytes)
        self._partition_names = [TopicPartition(name, 0)]

    @property
    def topic_id(self) -> uuid.UUID:
        """The topic's id. A topic that is deleted and created again gets a new one."""
        return self._directory.topic(self.name).topic_id

    @property
    def config(self) -> TopicConfig:
        """The topic's settings; :meth:`configure` changes them.

        In a broker's directory opened read-only, these are the settings that the topic has in the broker,
        read from its metadata log. Opened for writing, the topic keeps all records, whatever the broker would
        delete.

        Raises:
            CorruptionError, UnsupportedVersionError: the broker's metadata log cannot be read.
        """
        return self._directory.config_of(self.name)

    @property
    def held_partitions(self) -> tuple[int, ...]:
        """The numbers of the partitions that the directory holds, ascending: usually all. :meth:`hold` and
        :meth:`let_go` change them. A partition whose directory is missing or damaged still counts; using it
        raises the reason."""
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
        if type(number) is int and 0 <= number < len(self._partition_names):
            try:  # one look in place of two: there is one, as nearly always
                return self._log(number)
            except UnknownTopicError:  # what is wrong is told below
                pass
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        return self._log(self._check_number(number))

    def _log(self, number: int) -> Log:
        """The log of a partition that the topic has."""
        names = self._partition_names
        if number >= len(names):  # twice as many, as most callers ask for one after the other
            self._partition_names = names = [TopicPartition(self.name, n) for n in range(2 * number + 1)]
        return cast(Log, self._directory.log(names[number]))

    def _leading(self, number: int) -> Log:
        """A log to append to.

        Raises:
            UsageError: it is a copy of a leader's.
        """
        log = self._log(number)
        if log.role is Role.FOLLOWER:
            raise UsageError(f"{log.partition}: {self._directory.context.home.why_copied_only}")
        return log

    def _check_number(self, number: int) -> int:
        """The partition that an index means; negative ones count from the end."""
        count = len(self)
        if type(number) is not int:
            raise UsageError(f"partition is {shown(number)}; it must be a number{how_to_make_int(number)}")
        if not -count <= number < count:
            raise UnknownPartitionError(
                f"topic {self.name!r} has {count} partitions, numbered from 0; there is no {shown(number)}"
            )
        return number % count

    # Reading

    def read(
        self,
        start: Start = "earliest",
        stop: Stop | None = None,
        *,
        order: Order = "timestamp",
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        on_demand: bool = False,
    ) -> Iterator[Record]:
        """Iterate over the records of all held partitions, as of the time of the call. Each record has its
        ``partition``.

        Args:
            start: where to begin: ``"earliest"``, ``"latest"``, a time (a datetime with its time zone), or a
                mapping from partition to offset or time. ``{record.partition: record.offset + 1}`` continues
                after a record. Partitions that are left out are read from their beginning.
            stop: where to end: a time, or a mapping as for ``start``. The record at the stop is not read.
                Partitions that are left out are read to their end.
            order: ``"timestamp"`` merges the partitions by timestamp; each partition stays in the order of
                its offsets. ``"partition"`` reads one after the other.
            isolation, on_demand: as for :meth:`Log.read`.

        Cost: that of :meth:`Log.read`, and 0.4 µs per record to merge. Memory: that of :meth:`Log.read`, for
        each partition when they are merged, else for one.

        Raises:
            UsageError: ``start``, ``stop`` or ``order`` is none of these.
            OffsetOutOfRangeError: an offset is outside its partition.
            UnknownTopicError: ``start`` or ``stop`` names a partition that is not held here.
            NotOpenedError, CorruptionError: a partition could not be opened. While iterating: a batch is
                damaged.
        """
        from logstore.logdir.joining import check_order, check_start, check_stop, read_logs

        by_timestamp = check_order(order)
        count = len(self)
        start = check_start(start, count)
        stop = None if stop is None else check_stop(stop, count)
        self._check_held(start)
        self._check_held(stop)
        return read_logs(
            self._logs(),
            start,
            stop,
            isolation,
            by_timestamp=by_timestamp,
            on_demand=on_demand,
        )

    def follow(
        self,
        start: Start = "latest",
        *,
        timeout: float | None = None,
        order: Order = "timestamp",
        isolation: Isolation = Isolation.HIGH_WATERMARK,
    ) -> Iterator[Record]:
        """Iterate over the records of all held partitions, and wait for more at the end. Each record has its
        ``partition``. Partitions that are added meanwhile are followed from their beginning, within a second.

        Ends when no record has come for ``timeout`` seconds; by default never. Existing records are merged as
        by :meth:`read`; new ones are returned as they arrive.

        Args:
            start: where to begin, as for :meth:`read`. Default: with what is appended from now on. After a
                time, older records that come later are left out.

        Raises:
            UsageError, OffsetOutOfRangeError, UnknownTopicError: as :meth:`read`.
            OffsetOutOfRangeError, ClosedError, UnknownTopicError, CorruptionError: while iterating, as
                :meth:`Log.follow`.
        """
        from logstore.logdir.joining import check_order, check_start, follow_logs

        by_timestamp = check_order(order)
        check_isolation(isolation)
        seconds = None if timeout is None else check_timeout(timeout)
        start = check_start(start, len(self))
        self._check_held(start)
        directory = self._directory
        return follow_logs(
            self._logs,
            start,
            isolation,
            seconds,
            by_timestamp=by_timestamp,
            make_waiting=None if isinstance(directory, LogDirectory) else directory.waiting,
        )

    def _check_held(self, place: Start | Stop | None) -> None:
        """
        Raises:
            UnknownTopicError: a mapping names a partition that is not held here.
        """
        if isinstance(place, Mapping):
            topic = self._directory.topic(self.name)
            for number in place:
                if not topic.holds(number):
                    raise not_held(topic, number, self._directory.path)

    def _logs(self) -> dict[int, ReadableLog]:
        return {number: self._log(number) for number in self.held_partitions}

    def read_arrow(
        self,
        *,
        start: datetime | None = None,
        stop: datetime | None = None,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        columns: Iterable[str] | None = None,
    ) -> pyarrow.Table:
        """Read the records of all partitions, or those of a range of times, into one table of Apache Arrow,
        one partition after the other. Its columns are ``partition`` (int32) and those of
        :meth:`Log.read_arrow`."""
        return self.iterate_arrow(start=start, stop=stop, isolation=isolation, columns=columns).read_all()

    def iterate_arrow(
        self,
        *,
        start: datetime | None = None,
        stop: datetime | None = None,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        columns: Iterable[str] | None = None,
        batch_rows: int = 16_384,
        batch_bytes: int = 4 * 1024 * 1024,
    ) -> pyarrow.RecordBatchReader:
        """Like :meth:`read_arrow`, a bounded number of records at a time; see :meth:`Log.iterate_arrow`.
        Records that are appended meanwhile are left out."""
        from logstore.partition.reading import arrow  # pyarrow is optional, and slow to import

        names = arrow.names_of_topic(columns)
        readers = [
            (
                log.partition.partition,
                log.iterate_arrow(
                    start,
                    stop,
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
        """The current record of each key, as a view for each partition with its ``partition``, its records
        and its ``end_offset``; see :meth:`Log.latest`. The same key in two partitions counts as two keys, as
        in compaction. A view takes memory only while it is iterated."""
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

    def serialized(
        self, *, key: SerializerChoice = "bytes", value: SerializerChoice = "bytes"
    ) -> SerializedTopic[Topic]:
        """The same topic for keys and values that are not bytes: ``append``, ``extend``, ``read``, ``follow``
        and ``latest`` encode and decode them. The choice is not stored.

        Args:
            key: ``"bytes"``, ``"text"`` (UTF-8), ``"json"``, or a pair of functions: key to bytes, and bytes
                to key. None stays None; the functions are not called for it.
            value: the same for values.

        Raises:
            UsageError: ``key`` or ``value`` is none of these.
        """
        from logstore.serializing import SerializedTopic, check_serializer  # few programs get here

        return SerializedTopic(self, check_serializer(key, "key"), check_serializer(value, "value"))

    # Appending

    def append(
        self,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        partition: int | None = None,
        headers: Any = (),
        timestamp_ms: Moment | None = None,
        flush: bool = False,
    ) -> tuple[int, int]:
        """Append one record and return its (partition, offset) at once.

        The key decides the partition, as in Kafka's Java producer (murmur2). So a key's records stay in
        order, and in the same partition as those that Kafka clients write. Records without a key go to one
        held partition until they fill a batch, then to the next.

        See :meth:`Log.append` for the other arguments and errors.

        Raises:
            UnknownTopicError: there is no such partition, or the directory does not hold it; says which.
            UsageError: the log is a copy of a leader's (:attr:`.Role.FOLLOWER`).
        """
        if partition is None:
            topic = self._directory.topic(self.name)
            number = self._placement.choose(key, value, topic.partition_count, topic.held)
        else:
            number = self._check_number(partition)
        log = self._leading(number)
        offset = log.append(value, key=key, headers=headers, timestamp_ms=timestamp_ms, flush=flush)
        return number, offset

    def partition_for(self, key: Bytes) -> int:
        """The number of the partition that a key belongs to, whether it is held here or not.

        Raises:
            InvalidRecordError: the key is not bytes-like.
        """
        return self._placement.of_key(key, len(self))

    def extend(self, records: NewRecords, *, flush: bool = False) -> dict[int, range]:
        """Append many records, each to the partition of its key. Returns the offsets for each partition.

        Each partition keeps the order. All records are checked before anything is appended. If the disk fails
        in one partition, what was appended to others stays. Takes and raises what :meth:`Log.extend` does.

        Raises:
            UnknownTopicError: a key's partition is not held here; nothing was appended.
        """
        records = records if type(records) is list else list_of(records)
        topic = self._directory.topic(self.name)
        divided = sorted(self._placement.divide(records, topic.partition_count, topic.held).items())
        logs = [(self._leading(partition), rows) for partition, rows in divided]
        flush = check_flag(flush, "flush")
        try:
            prepared = [(log, log.writer.appending.prepare(rows)) for log, rows in logs]
        except InvalidRecordError:
            logs[0][0].writer.appending.prepare(records)  # raises it with the record's number in the call
            raise
        return self._extend_logs(prepared, flush)

    def extend_arrow(self, data: Any, *, flush: bool = False) -> dict[int, range]:
        """Append the rows of Arrow columns, each to the partition of its key. Returns the offsets for each
        partition.

        Like :meth:`extend`, with the data that :meth:`Log.extend_arrow` takes. Cost: that of
        :meth:`Log.extend_arrow`, 0.1 µs per record to choose the partition, and 2 µs for each distinct key.

        Raises:
            UnknownTopicError: a key's partition is not held here; nothing was appended.
        """
        from logstore.partition.encoding import arrow_input  # pyarrow is optional, and slow to import

        topic, placement = self._directory.topic(self.name), self._placement
        count, held = topic.partition_count, topic.held
        tables = arrow_input.divide(data, count, lambda value: placement.choose(None, value, count, held))
        logs = [(self._leading(partition), table) for partition, table in tables.items()]
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
            StorageError: an fsync failed; the other partitions were still flushed.
        """
        directory = self._writable()
        directory.flush([log for log in directory.logs() if log.partition.topic == self.name])

    def compact(
        self, *, now: bool = False, dry_run: bool = False, on_progress: OnCompactionProgress | None = None
    ) -> dict[TopicPartition, CompactionReport]:
        """Run :meth:`Log.compact` on every partition, one after the other; see :meth:`Store.compact`.

        Raises:
            UsageError: the topic is not compacted.
        """
        if not self.config.compacts:
            raise UsageError(
                f"topic {self.name!r} is not compacted; topic.configure(cleanup_policy='compact') makes it so"
            )
        now, dry_run = check_flags(now=now, dry_run=dry_run)
        check_callback(on_progress, "on_progress")
        return self._writable().compact(self.name, now=now, dry_run=dry_run, on_progress=on_progress)

    def erase(
        self,
        *,
        keys: Iterable[Bytes],
        dry_run: bool = False,
        on_progress: OnEraseProgress | None = None,
    ) -> dict[TopicPartition, EraseReport]:
        """Erase all records with these keys for good: run :meth:`Log.erase` on every partition, one after the
        other, since a key may be in any of them.

        Raises:
            UsageError: ``keys`` is not an iterable of bytes.
            CorruptionError, StorageError: from the first partition that failed or could not be opened; in the
                others the records were still erased.
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
            UsageError: the store is a node, or its directory is one's: settings are the cluster's.
        """
        changed = check_topic_config(config) or self.config
        if settings:
            changed = changed.with_settings(**settings)
        return self._changed_here("configured").configure(self.name, changed).config

    def _changed_here(self, what: str) -> LogDirectory:
        """
        Raises:
            UsageError: a node uses the directory: the topic is its cluster's.
        """
        directory = self._writable()
        directory.check_not_of_node(f"topic {self.name!r} is not {what} here")
        return directory

    def add_partitions(self, partitions: int, *, held: Iterable[int] | None = None) -> None:
        """Give the topic more partitions. Keys may then belong to other partitions than before; existing
        records stay where they are.

        Args:
            partitions: the new total, here and in other directories.
            held: the numbers of the new partitions that this directory holds; may be empty. Default: all new
                ones.

        Raises:
            UsageError: the topic has that many already, or ``held`` is not a list of new partitions' numbers.
                Or the store is a node, or its directory is one's: topics are the cluster's. Or the topic is
                a copy of a leader's, and grows as that does. Or it is one that a broker keeps its own state
                in, such as ``__consumer_offsets``.
        """
        directory = self._changed_here("grown")
        check_can_grow(self.name)
        directory.check_grows_here(self.name)
        directory.add_partitions(self.name, partitions, held)

    def hold(self, partitions: Iterable[int]) -> None:
        """Hold more of the topic's partitions in this directory. Durable, and atomic: a crash leaves all of
        them held or none. They begin empty. But if a copy of the partition's directory from elsewhere is
        already in place under the partition's name, its records are used. Partitions that are already held
        stay as they are.

        Raises:
            UsageError: not a list of numbers of the topic's partitions; or the directory is a broker's, or a
                running node's.
            TopicExistsError: a directory of another topic is in its place.
        """
        self._changed_here("held").hold(self.name, partitions)

    def let_go(self, partition: int) -> None:
        """Remove a partition with all its records from this directory, even if it is damaged or missing. Its
        log is closed. The files are removed after ``file_delete_delay_ms``, so that readers in other
        processes can finish. The topic keeps its number of partitions.

        Raises:
            UnknownTopicError: the directory does not hold it.
            UsageError: it is the only held partition: :meth:`Store.delete_topic` removes the topic. Or the
                directory is a running node's.
            StorageError: the disk refused; the partition is held as before, or let go by the next open.
            DiskFullError: there was no room to store it, even when the partition's files were removed to
                make it. It is missing, and can be let go again.
        """
        self._changed_here("let go").let_go(self.name, partition)

    def reopen(self, partition: int, *, accept_loss: bool = False) -> Log:
        """Open one partition again: after a failed fsync, or after its files were repaired or restored.

        With ``accept_loss``, a partition whose durable data is damaged or missing is cut where that begins.
        All bytes from there on are kept in ``.torn-`` files. If what is left lies below the log start, the
        log start comes down to it.

        Raises:
            UnknownTopicError: the directory does not hold it.
            CorruptionError: it is damaged, and ``accept_loss`` is false.
            StorageError: appends that still gather could not be written, and ``accept_loss`` is false; the
                partition is as it was.
        """
        number = self._check_number(partition)
        return self._writable().reopen(TopicPartition(self.name, number), accept_loss=accept_loss)

    def _writable(self) -> LogDirectory:
        if not isinstance(self._directory, LogDirectory):
            raise ReadOnlyError(
                f"{self._directory.path} was opened read-only; open it without read_only to change it"
            )
        self._directory.check_open()
        return self._directory

    def __repr__(self) -> str:
        return f"<Topic {self.name!r} in {self._directory.path!r}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the partitions, and the settings that are not the defaults. Never raises;
        reads no record and changes nothing."""
        from logstore.showing import show  # few programs get here

        return show(f"Topic {self.name}", self._parts_to_show())

    def _parts_to_show(self) -> Iterator[Table]:
        from logstore.showing import Table, attempt

        def cells(number: int) -> tuple[int, ...]:
            log = self._log(number)
            return log.log_start_offset, log.log_end_offset, log.segment_count, log.size_bytes

        held = self.held_partitions
        yield Table(
            ("partition", "log start", "log end", "segments", "bytes"),
            (attempt(number, partial(cells, number)) for number in held),
            len(held),
        )
        if isinstance(self._directory, LogDirectory):  # else a broker's metadata may have to be read
            settings = [(name, value) for name, _, value in TopicConfig().differences(self.config)]
            if settings:
                yield Table(("setting", "value"), settings)
