"""One partition's log, open for writing: the whole public interface.

Reading comes from :class:`~logstore.partition.reading.readable.ReadableLog`; everything else is done by the
parts of the :class:`~logstore.partition.writing.writer.LogWriter`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from logstore.arguments import check_callable, check_callback, check_flag, check_flags, shown
from logstore.clock import Clock
from logstore.config import DEFAULT_MAP_BYTES, UNLIMITED, StoreConfig, TopicConfig, check_topic_config
from logstore.errors import LogstoreError, UsageError
from logstore.files import Files, PathLike
from logstore.format.batch import NewBatch
from logstore.format.checkpoint import EpochEntry
from logstore.model import (
    ActiveProducer,
    AppendOrigin,
    Bytes,
    Isolation,
    Moment,
    ProducerIdentity,
    Role,
    TopicPartition,
    how_to_make_int,
)
from logstore.partition.arguments import check_count, check_isolation, check_offset, check_timeout
from logstore.partition.checking.checkable import CheckableLog
from logstore.partition.encoding.rows import NewRecords
from logstore.partition.reading.readable import WaitForGrowth
from logstore.partition.reading.view import LogView
from logstore.partition.recovery.loaded import RecoveryReport
from logstore.partition.recovery.loader import load_log
from logstore.partition.standalone import open_standalone
from logstore.partition.state.context import LogContext
from logstore.partition.writing.appending import LastOfProducer
from logstore.partition.writing.core import bytes_of
from logstore.partition.writing.growth import AppendResult
from logstore.partition.writing.waits import Done, Wait
from logstore.partition.writing.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from logstore.partition.checking.facts import LogFacts
    from logstore.partition.checking.files import StoredCheckpoints
    from logstore.partition.cleaning.dirtiness import Dirtiness
    from logstore.partition.cleaning.reports import (
        CompactionReport,
        EraseReport,
        OnCompactionProgress,
        OnEraseProgress,
        Throttle,
    )


class Log(CheckableLog):
    """One partition, open for writing. Made by :meth:`Log.open`, or by a store for each of its partitions.

    All methods may be called from many threads.
    """

    def __init__(self, writer: LogWriter) -> None:
        self.directory = writer.directory
        self.partition = writer.partition
        self.recovery: RecoveryReport = writer.recovery
        """What opening the log found and did."""
        self.writer = writer
        """The parts that do the work, for the engine: they may change from version to version."""
        self._context = writer.context
        gathering = writer.gathering
        self._gathering = gathering
        self._gather = gathering.rows.gather
        self._given_now_ms = gathering.given_now_ms
        self._fork_flag = writer.context.fork_flag
        self._core = writer.core

    @classmethod
    def open(
        cls,
        path: PathLike,
        *,
        config: TopicConfig | None = None,
        store_config: StoreConfig | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        create: bool = True,
        accept_loss: bool = False,
        timeout: float | None = None,
    ) -> Log:
        """Open one partition's directory by itself, without a store around it.

        The directory has its own ``.lock``, checkpoints and clean-shutdown marker. A partition inside a
        store's directory belongs to that store: open the store. Flushes and checkpoints run in the background
        as in a store. Retention and the expiry of producers do not: call :meth:`enforce_retention` and
        :meth:`expire_producers`.

        Args:
            timeout: how many seconds to wait while it is open elsewhere; see :func:`logstore.open`.

        Raises:
            LockedError: it is open elsewhere.
            UsageError: it does not exist and ``create`` is false, it lies inside a store, or it is one.
            CorruptionError: durable data is damaged or missing, and ``accept_loss`` is false.
        """
        return open_standalone(
            cls,
            path,
            config=config,
            store_config=store_config,
            files=files,
            clock=clock,
            create=check_flag(create, "create"),
            accept_loss=check_flag(accept_loss, "accept_loss"),
            timeout=timeout,
        )

    # Reading

    def _current_view(self) -> LogView:
        return self.writer.current_view()

    def _published_view(self) -> LogView:
        return self.writer.published_view()

    def _known_view(self) -> LogView:
        return self.writer.known_view()

    def _waiting(self) -> contextlib.AbstractContextManager[WaitForGrowth]:
        return contextlib.nullcontext(self.writer.wait_for_growth)

    def _check_usable(self) -> None:
        self.writer.guard.check_usable()

    def _check_leader_epoch(self, expected: int) -> None:
        self._core.check_leader_epoch(expected)

    def facts_to_check(self, checkpoints: StoredCheckpoints) -> LogFacts:
        """What the log must hold now, for a check; see :meth:`CheckableLog.facts_to_check`."""
        from logstore.partition.checking.facts_of_writer import facts_of_writer  # few programs get here

        return facts_of_writer(self.writer, checkpoints)

    # Appending

    def append(
        self,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Any = (),
        timestamp_ms: Moment | None = None,
        flush: bool = False,
    ) -> int:
        """Append one record and return its offset at once.

        Records gather in memory into batches. A batch is written when it has ``batch_bytes``, after
        ``linger_ms``, or before a read, a flush or a close. With ``flush`` the call returns when the record
        is durable. Cost: about 0.3 µs (2 in plain Python), and its share of a batch.

        Args:
            value: bytes, or None for a tombstone.
            key: bytes, or None (not in a compacted topic).
            headers: pairs of str and bytes or None, or a mapping.
            timestamp_ms: milliseconds since the epoch, or a datetime with its time zone; default now.
            flush: wait until the record survives a power cut.

        Raises:
            UsageError: the store is a node, or a node's directory, and another leads the partition.
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: the record is refused.
            StorageError: records gathered before could not be written (they stay gathered, and are tried
                again), or the flush failed. The record of this call was not appended, or not made durable.
        """
        if flush is not False:
            flush = check_flag(flush, "flush")
        now_ms = self._given_now_ms
        offset: int | None = None
        if not self._fork_flag.is_forked:
            offset = self._gather(value, key, headers, timestamp_ms, None if now_ms is None else now_ms())
        if offset is None:
            gathering = self._gathering
            offset = gathering.append(value, key, headers, timestamp_ms)
            if gathering.owes_help:
                gathering.owes_help = False
                self._context.scheduler.help()
            if self._core.config.flush_messages != UNLIMITED:
                self.writer.durability.wait_if_due(offset + 1)
        if flush:
            self.writer.durability.commit.wait_until_durable(offset + 1)
        return offset

    def append_if_ready(
        self,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Any = (),
        timestamp_ms: Moment | None = None,
    ) -> int | None:
        """Append one record as :meth:`append` does, if that takes neither a lock nor the disk: for event
        loops. None: nothing was appended, and :meth:`append` is to be called where it may wait. Never
        raises."""
        if self._fork_flag.is_forked:
            return None
        now_ms = self._given_now_ms
        offset: int | None = self._gather(
            value, key, headers, timestamp_ms, None if now_ms is None else now_ms()
        )
        return offset

    def extend(
        self, records: NewRecords, *, flush: bool = False, producer: ProducerIdentity | None = None
    ) -> range:
        """Append many records and return their offsets.

        All records are checked before any is written. They are written in batches of about ``batch_bytes``,
        with one system call. When the call returns, they survive the death of the process; with ``flush``
        also a power cut. Cost: about 0.1 µs per record of 100 bytes (0.8 in plain Python), 10 µs, and the
        codec.

        Args:
            records: an iterable of :class:`~logstore.model.NewRecord`, ``(key, value)``,
                ``(key, value, timestamp_ms)``, ``(key, value, timestamp_ms, headers)`` or bare values. For a
                mapping, pass its ``items()``.
            flush: wait until a power cut cannot take them.
            producer: stamp them as one batch of an idempotent producer (KIP-98). If the batch is one of that
                producer's last five in the log, it is not appended again: its offsets are returned. (After a
                reopen only the last one may be known; earlier ones are refused.)

        Raises:
            UsageError: ``records`` is not an iterable of records; or as :meth:`append`.
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: a record or ``producer`` is wrong;
                nothing was appended.
            OutOfOrderError, ProducerFencedError: the producer's sequence or epoch is refused.
            StorageError: the disk refused. Nothing was appended, unless the records fill more than one
                segment: then those in the earlier segments stay.
        """
        return self.writer.appending.extend(records, flush=flush, producer=producer)

    def extend_arrow(self, data: Any, *, flush: bool = False) -> range:
        """Append the rows of Arrow columns and return their offsets. As with :meth:`extend`, all rows are
        checked before any is written, and the batches are the same as for the same rows there.

        Columns: ``value``; optional are ``key``, ``timestamp_ms`` and ``headers``. Values and keys are binary
        or text. Timestamps are whole numbers or any Arrow timestamp, in UTC if it has no time zone; null
        means now. Headers are lists of (key, value) structs, or a map. Null keys, values and header values
        stay null.

        Needs pyarrow: ``pip install 'embedded-logstore[arrow]'``. Cost: 0.07 µs per record of 100 bytes, and
        the codec. Memory: the data and its batches. Append larger data a part at a time
        (``for batch in reader: log.extend_arrow(batch)``).

        Args:
            data: a pyarrow Table, RecordBatch or RecordBatchReader, or anything with ``__arrow_c_stream__``:
                a DataFrame of polars or pandas, a relation of DuckDB.
            flush: wait until a power cut cannot take them.

        Raises:
            UsageError: ``data`` is none of these; or as :meth:`append`.
            InvalidRecordError: a column is unknown, missing, or of the wrong type; or as :meth:`extend`.
            InvalidTimestampError, RecordTooLargeError, StorageError: as :meth:`extend`.
        """
        return self.writer.appending.extend_arrow(data, flush=flush)

    def append_batch(
        self,
        data: Bytes,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        leader_epoch: int | None = None,
    ) -> AppendResult | None:
        """Append one encoded batch as the partition's leader, which gives it its offsets. Returns None if
        ``data`` holds no whole batch.

        The records are checked against the topic's rules without a lock, so threads can check in parallel.
        The bytes are kept as they are, unless the topic's codec or gaps in the offsets require encoding them
        again. They are copied first, so that another thread that changes ``data`` meanwhile cannot change
        what is written.

        Cost: the copy, the checksum, the write, 12 µs, and 0.01 µs per record of 100 bytes; for a compressed
        batch also the decompression. Encoding again costs a decode and an encode; plain Python always
        decodes. The write and 8 µs are under the lock. Memory: the copy, and the decompressed batch.

        Args:
            leader_epoch: the leader epoch that the caller expects (KIP-320). If the log is in another one,
                nothing is appended.

        Raises:
            LeaderFencedError, UnknownLeaderEpochError: the log is in another epoch.
            UsageError: as :meth:`append`.
            CorruptionError: the batch's CRC or structure is wrong.
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: the topic's rules refuse it.
            OutOfOrderError, ProducerFencedError, InvalidTransactionStateError: the producer's state refuses
                it.
        """
        return self.writer.appending.append_batch(data, origin=origin, leader_epoch=leader_epoch)

    def adopt(
        self,
        batches: Sequence[NewBatch],
        *,
        producer: ProducerIdentity,
        flush: bool = False,
        was_checked: bool = False,
    ) -> range:
        """Append batches that another process has encoded by this topic's rules (by
        :meth:`RowEncoder.encode <logstore.partition.encoding.row_encoder.RowEncoder.encode>` or the like),
        and return their offsets.

        The encoder leaves them with base offset 0 and without a producer. Here they get offsets, the leader
        epoch, the producer with consecutive sequences, and the time of the append if the topic has
        ``LogAppendTime``. They are changed in place, and their checksums computed again. Records are not
        decoded: the headers and checksums of all batches are checked before anything is written, but the
        encoder is responsible for keys in a compacted topic, and for timestamps other than the first and the
        largest.

        No batch is appended twice: one that does not follow the last of its producer is refused, whether it
        skips ahead or is there already. :meth:`last_of_producer` says where to continue. Cost: two checksums,
        the write and 20 µs per batch. Memory: nothing but the batches.

        Args:
            batches: whole batches of magic 2, bytearrays or writable memoryviews.
            producer: the producer; ``base_sequence`` is the first record's. Not transactional.
            flush: wait until a power cut cannot take them.
            was_checked: they were checked against the topic's settings earlier, which may have changed since:
                do not check codec, size and timestamps.

        Raises:
            UsageError: a buffer cannot be written to, or the producer is transactional.
            CorruptionError: a batch's checksum or structure is wrong.
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: a batch, given by its number, does
                not follow the topic's rules; or ``producer`` is wrong.
            OutOfOrderError, ProducerFencedError: the producer's sequence or epoch is refused.
            StorageError: as :meth:`extend`. In all other cases nothing was appended.
        """
        return self.writer.appending.adopt(batches, producer=producer, flush=flush, was_checked=was_checked)

    def adopt_file(self, path: PathLike) -> range:
        """Make a file of batches this log's newest segment, as it is, and return their offsets. It does what
        :meth:`adopt` does, but for many bytes in the time of some fsyncs.

        The file must hold what :meth:`adopt` would have written: the offsets follow the log end, the leader
        epoch is the current one, and the sequences follow the last one of their one producer. It must be
        durable, and no longer written to. On return it is a file of the log. Its old name is gone, unless the
        disk refused to remove it; it is then another name of the log's file. Only headers are read. Cost: 10
        µs per batch, and some ten fsyncs. Memory: 0.6 KB per batch.

        Raises:
            UsageError: the file is in the log's own directory.
            OutOfOrderError, ProducerFencedError: the batches do not follow those of the log, or of the
                producer.
            CorruptionError: the file does not consist of whole batches.
            InvalidRecordError: its batches are not of magic 2, or not of one idempotent producer.
            RecordTooLargeError: it is larger than ``segment_bytes``.
            OffsetOutOfRangeError: the log has no offsets left.
            StorageError: the disk refused, or the file cannot have a name in the log's directory (EXDEV,
                EPERM and others). Nothing was changed, with one exception: a log that must be reopened then
                has the whole file or nothing of it.
        """
        return self.writer.appending.adopt_file(path)

    def last_of_producer(self, producer_id: int) -> LastOfProducer | None:
        """The last batch of an idempotent producer in this log; None if the log does not know the id, or has
        forgotten it (``producer_id_expiration_ms``).

        Raises:
            UsageError: the id is not a whole number.
        """
        return self.writer.appending.last_of_producer(producer_id)

    def open_transactions(self) -> dict[int, tuple[int, int]]:
        """The open transactions, which no marker has ended yet: producer id -> (producer epoch, first
        offset)."""
        return self.writer.appending.open_transactions()

    def active_producers(self) -> tuple[ActiveProducer, ...]:
        """The producers that the partition remembers (``producer_id_expiration_ms``), by their ids. Cost: 1
        µs for each."""
        return self.writer.appending.active_producers()

    def append_replicated(self, data: Bytes, *, leader_epoch: int | None = None) -> AppendResult | None:
        """Append batches copied from a leader, with offsets and bytes unchanged. Returns None if ``data``
        holds no whole batch.

        The offsets may have gaps, as compaction at the leader leaves them. If the log's role is not follower,
        it is checkpointed past the gap before the call returns: a gap above the recovery point would look
        like lost data.

        Checksums are checked without a lock. Records are not decoded. ``data`` is copied first unless it is
        ``bytes``. Cost: the checksum, the write, and 10 µs; under the lock are the write and 7 µs.

        Args:
            leader_epoch: the epoch of the leader that sent them. If the log knows a newer epoch, the call is
                refused. Batches written in a newer epoch, and all after them, are left out: another leader
                has taken over meanwhile.

        Raises:
            LeaderFencedError: the log has batches of a newer epoch than ``leader_epoch``.
            CorruptionError: a CRC or structure is wrong; nothing was appended.
            OutOfOrderError: the offsets do not rise above the log end. An empty log accepts a first batch
                that begins below its end and reaches it, as after records were deleted inside a batch.
        """
        return self.writer.appending.append_replicated(data, leader_epoch=leader_epoch)

    def append_end_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        coordinator_epoch: int | None = None,
    ) -> AppendResult:
        """End a producer's transaction in this partition with a control batch (KIP-98).

        Args:
            coordinator_epoch: of the coordinator that decides so. Default: of the one that has ended the
                producer's last transaction here, or 0.

        Raises:
            ProducerFencedError, LeaderFencedError: a newer epoch is known.
            UsageError: as :meth:`append`.
            InvalidRecordError: an id or epoch is out of range.
        """
        return self.writer.appending.append_end_marker(
            producer_id, producer_epoch, committed=committed, coordinator_epoch=coordinator_epoch
        )

    # Durability

    def flush(self, *, timeout: float | None = None) -> None:
        """Return when everything appended before the call is durable. One fsync serves all waiting threads.

        Args:
            timeout: how many seconds to wait at most. The flush then runs in the background, and goes on
                after a timeout.

        Raises:
            StorageError: the fsync failed. Nothing further is acknowledged until the log is reopened.
            RetriableError: the flush took longer than ``timeout``.
        """
        if timeout is None:
            self.writer.durability.flush()
        else:
            self.writer.durability.flush_within(check_timeout(timeout))

    @property
    def last_flush_seconds(self) -> float:
        """How long the last fsync took; 0 before the first."""
        return self.writer.durability.commit.flush_seconds

    def checkpoint(self) -> None:
        """Flush, make indexes and producer state durable, and store the recovery point: the next open reads
        only what comes after it. Stores do this in the background; call it to bound the time of a
        recovery."""
        self.writer.durability.checkpoint()

    def prepare_checkpoint(self) -> None:
        """Do everything of :meth:`checkpoint` except storing the recovery point, which its directory does for
        all its logs at once."""
        self.writer.durability.prepare_checkpoint()

    # Waiting

    def when(
        self,
        offset: int,
        done: Done,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        timeout: float | None = None,
        flush: bool = False,
    ) -> Wait:
        """Call ``done(True)`` once readers of the isolation can see everything below ``offset``. Call
        ``done(False)`` if the timeout passes, or the log closes, fails, or is cut before what it waits for.
        Takes no thread, so that any number of long polls and acknowledgements can wait.

        With :attr:`Isolation.DURABLE`, ``done`` is called when everything below ``offset`` survives a power
        cut. The background flushes within ``flush_ms``, or at once with ``flush``; one fsync serves all
        waits.

        ``done`` runs in the thread that changes the log, under the log's lock; or in this thread, if the
        offset is reached already. It must not wait or change a log: pass the news on
        (``loop.call_soon_threadsafe``, ``queue.put``, ``event.set``). An exception in it becomes a warning;
        one that ends the program, such as ``SystemExit``, is raised in the main thread, when the change of
        the log is whole.

        Returns:
            The wait; its ``cancel()`` ends it.

        Raises:
            UsageError: an argument is wrong.
            ClosedError, ForkedError: the log cannot be used.
            RetriableError: there is no thread for the timeout.
        """
        check_offset(offset, "offset")
        check_isolation(isolation)
        check_callable(done, "done")
        return self.writer.when(
            offset,
            done,
            isolation=isolation,
            timeout=None if timeout is None else check_timeout(timeout),
            flush=check_flag(flush, "flush"),
        )

    def on_change(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call ``callback`` after each change that readers can see: records were appended, became durable,
        were replicated, deleted or replaced; and when the log is closed or has failed. Returns a function
        that stops the calls. As with :meth:`when`, the callback must not wait or change a log.

        Raises:
            UsageError: ``callback`` cannot be called.
            ClosedError, ForkedError: the log cannot be used.
        """
        check_callable(callback, "callback")
        return self.writer.on_change(callback)

    # Removing

    def delete_before(self, offset: int) -> int:
        """Delete the records below ``offset``: they can no longer be read, and segments that hold only such
        records are removed. Durable on return. Returns the log start offset.

        Raises:
            OffsetOutOfRangeError: ``offset`` is above the high watermark.
            UsageError: the topic is only compacted; its records are deleted by tombstones.
        """
        return self.writer.removal.delete_before(offset)

    def enforce_retention(self, *, dry_run: bool = False) -> int:
        """Apply ``retention_ms``, ``retention_bytes`` and the log start offset now. Returns how many segments
        were deleted (with ``dry_run``: would be). Stores do this in the background.

        Records that still gather in memory do not count. They are written before anything is deleted, if the
        disk takes them; on a full disk, deleting makes room.
        """
        return self.writer.removal.enforce_retention(dry_run=check_flag(dry_run, "dry_run"))

    def truncate_to(self, offset: int) -> bool:
        """Drop the records from ``offset`` on, durably; the next append gets ``offset``. Returns whether
        anything was dropped.

        Batches are dropped whole: if ``offset`` lies inside one, its records below ``offset`` go too. An
        ``offset`` below the first segment empties the log.

        A transaction whose marker goes, and whose first records stay, is open again, which is logged: until
        it is ended, by :meth:`append_end_marker`, readers of committed records wait in front of it, and its
        producer's next transaction goes on with it.

        Groups and queues of the store that are above the new end go back to it, durably, as after a crash:
        they get what is appended there. Where their logs refuse that, it is noted and done later; if it
        cannot be noted, appends raise a StorageError until it can. Not in the directory of a node, whose
        groups may be elsewhere. Cost: some fsyncs; 6 µs for each offset that is committed in the store, 7 µs
        for each state of a queue.

        Raises:
            UsageError: the store is a node, which leads the partition: all replicas would lose the records.
        """
        return self.writer.removal.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int, *, log_start_offset: int | None = None) -> None:
        """Drop everything; the next append gets ``offset``. For a follower whose end is no longer in its
        leader's log.

        Raises:
            UsageError: ``log_start_offset`` is above ``offset``; or as :meth:`truncate_to`.
        """
        self.writer.removal.truncate_fully_and_start_at(offset, log_start_offset=log_start_offset)

    def roll(self) -> None:
        """Begin a new segment now."""
        self.writer.roll()

    # Compaction

    def compact(
        self,
        *,
        now: bool = False,
        dry_run: bool = False,
        map_bytes: int = DEFAULT_MAP_BYTES,
        throttle: Throttle | None = None,
        on_progress: OnCompactionProgress | None = None,
    ) -> CompactionReport:
        """Remove records that have a later one with the same key, as the background does when the log is
        dirty enough. The active segment, records from the last stable offset on, and those younger than
        ``min_compaction_lag_ms`` are left alone. Offsets never change. Tombstones are removed by the first
        compaction that runs ``delete_retention_ms`` after the one that first met them. Readers and appends go
        on meanwhile; a second compaction waits for the first, and one of the background goes on without its
        limit then.

        Does nothing if the log is not dirty enough (see :meth:`dirtiness`), unless ``now``.

        Args:
            now: roll the active segment and compact at any ratio. ``min_compaction_lag_ms`` still applies.
            dry_run: change nothing, and report what would be saved; if several rounds are needed, by the
                first.
            map_bytes: memory for the keys, 24 bytes each (without the compiled module 190). If it is not
                enough, there are several rounds, and each reads the log again.
            throttle: called with the number of bytes after each step of about 1 MiB; may sleep.
            on_progress: called after each step. An exception in it, or in ``throttle``, aborts the
                compaction; segments that were not yet replaced stay as they are.

        Raises:
            UsageError: the topic is not compacted, or ``map_bytes`` holds no key.
            CorruptionError: a batch is damaged. It and everything after it stay as they are.
            RetriableError: meanwhile the log was truncated, or its beginning deleted.
            ClosedError: it was closed, or its topic deleted, meanwhile.
        """
        from logstore.partition.cleaning.compaction import Compaction  # few programs get here

        now, dry_run = check_flags(now=now, dry_run=dry_run)
        check_callback(throttle, "throttle")
        check_callback(on_progress, "on_progress")
        self._check_usable()
        check_count(map_bytes, "map_bytes")
        turn = self.writer.turn
        with turn.own_lock(), turn:
            return Compaction(
                self.writer,
                now=now,
                dry_run=dry_run,
                map_bytes=map_bytes,
                throttle=throttle,
                on_progress=on_progress,
            ).run()

    def dirtiness(self) -> Dirtiness:
        """How much of the log was compacted, how much waits to be, and whether it is time to compact."""
        from logstore.partition.cleaning.compaction import find_dirtiness  # few programs get here

        return find_dirtiness(self.writer, self._published_view())

    # Erasing

    def erase(
        self,
        *,
        keys: Iterable[Bytes] | None = None,
        offsets: int | range | Iterable[int | range] | None = None,
        dry_run: bool = False,
        on_progress: OnEraseProgress | None = None,
    ) -> EraseReport:
        """Erase records permanently, under any cleanup policy: those with one of the keys, including
        tombstones, and those at the offsets. Other records keep their offsets. ``docs/erasing.md`` says what
        is left of erased records, and what cannot be reached.

        Durable on return. The files that held the records are removed: replaced segments, files that were
        waiting to be removed, and all files that recoveries have kept (``.torn-``). Covers everything
        appended before the call, including open and aborted transactions, records above the high watermark,
        and records below the log start whose segment still exists. Transaction markers stay. Readers finish
        with the files they have open; appends go on. Waits for a running compaction.

        Segments are rewritten one after the other, each atomically. If the call ends early, some records are
        erased; call again with the same arguments to erase the rest.

        Keys or offsets that do not exist are no error. Cost: with keys, one read of the log that decodes only
        batches with one of them; with offsets, one read of their segments. Then the segments that lose
        records are read again and rewritten.

        Args:
            dry_run: change and remove nothing, and report what would be done.
            on_progress: called after each step of about 1 MiB. An exception in it ends the call early.

        Raises:
            UsageError: neither keys nor offsets are given, or they have a wrong type.
            CorruptionError: a batch that might hold such a record is damaged. Nothing is changed.
            RetriableError: the log was truncated meanwhile.
            ClosedError: it was closed, or its topic deleted, meanwhile.
            StorageError: the disk refused; old bytes may be left. Call again.
        """
        from logstore.partition.cleaning.erased_records import check_erased  # few programs get here
        from logstore.partition.cleaning.erasing import Erasure

        dry_run = check_flag(dry_run, "dry_run")
        check_callback(on_progress, "on_progress")
        erased = check_erased(keys, offsets)
        self._check_usable()
        turn = self.writer.turn
        with turn.own_lock(), turn:
            return Erasure(self.writer, erased, dry_run=dry_run, on_progress=on_progress).run()

    # Replication

    @property
    def leader_epoch(self) -> int:
        """The epoch stamped on appends."""
        return self._core.leader_epoch

    @property
    def epoch_entries(self) -> tuple[EpochEntry, ...]:
        """The history of leader epochs."""
        return self._core.epochs.entries

    def assign_leader_epoch(self, epoch: int) -> None:
        """Begin a new leader epoch at the log end, with this log as the leader. Stored durably.

        Raises:
            UsageError: the epoch is below the latest one, or beyond 32 bits.
        """
        self.writer.replication.assign_leader_epoch(epoch)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch at or below ``epoch``, the offset where it ended); (-1, -1) if unknown (KIP-101). A
        log that leads knows of the epoch in which it goes on, also before there is a record of it.

        Raises:
            UsageError: it is not a whole number.
        """
        if type(epoch) is not int:
            raise UsageError(f"epoch is {shown(epoch)}; it must be a whole number{how_to_make_int(epoch)}")
        core = self._core
        end, leader_epoch = self.log_end_offset, core.leader_epoch  # first: it may grow, in a new epoch
        epochs, copied = core.epochs, core.copied
        if copied is not None and copied.latest_here < epoch < copied.goes_on_in:
            return copied.epoch, min(copied.end_offset, end)
        if core.role is not Role.FOLLOWER and leader_epoch > epochs.latest_epoch and epoch <= leader_epoch:
            return epochs.with_next(leader_epoch, end).end_offset_for(epoch, end)
        return epochs.end_offset_for(epoch, end)

    @property
    def role(self) -> Role:
        """The log's role among the replicas of its partition, as :meth:`set_role` stored it. Default:
        alone."""
        return self._core.role

    def set_role(self, role: Role) -> None:
        """Set the log's role among the replicas of its partition. Stored durably, with the high watermark:
        the next open, and readers in other processes, know it before they show or remove anything.

        A leader or a follower has the high watermark that :meth:`update_high_watermark` set. Retention,
        :meth:`delete_before` and compaction stop there. After an open it is the one that was last stored
        (``replica_high_watermark_checkpoint_interval_ms``), or the log start. A log that was alone starts
        with its end as the high watermark; one that has not grown since it was opened, such as a broker's,
        with the stored one.

        A log that becomes alone has the log end as its high watermark again. The role does not restrict
        calls: the owner decides who may append. (In the directory of a node a follower takes only what
        :meth:`append_replicated` brings.) Cost: two fsyncs, two more if it was alone.

        Raises:
            UsageError: ``role`` is not a Role.
            DiskFullError: there is no room for it; nothing has changed.
            StorageError: it could not be stored; the log must be reopened, and has the old role or the new.
        """
        self.writer.replication.set_role(role)

    def lead(self, epoch: int) -> None:
        """Lead a partition of several replicas from the log end on, in this epoch, until
        :meth:`stop_leading` or until the log is closed. For nodes that are told after each start who leads:
        the stored role stays that of a follower, so a change of the leader waits for no disk.

        Raises:
            UsageError: the log's stored role is not that of a follower; or the epoch is below the latest one,
                or beyond 32 bits.
        """
        self.writer.replication.lead(epoch)

    def stop_leading(self) -> None:
        """Lead no more: be the follower that the log is stored as.

        Raises:
            UsageError: the log's stored role is not that of a follower.
        """
        self.writer.replication.stop_leading()

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark forward. Returns where it is now: within the log, and never further back.

        Raises:
            UsageError: the log is alone: its high watermark is its end.
        """
        return self.writer.replication.update_high_watermark(offset)

    # Settings and state

    @property
    def config(self) -> TopicConfig:
        """The settings in use; :meth:`reconfigure` changes them."""
        return self._core.config

    def reconfigure(self, config: TopicConfig) -> None:
        """Use other settings: from the next append on, and for index files from the next roll on.

        Raises:
            InvalidConfigError: ``config`` is not a TopicConfig.
        """
        self.writer.reconfigure(check_topic_config(config) or self.config)

    def expire_producers(self) -> int:
        """Forget producers that have been idle for ``producer_id_expiration_ms``; returns how many."""
        return self.writer.expire_producers()

    @property
    def is_closed(self) -> bool:
        """Whether the log is closed, and can no longer be used."""
        return self.writer.guard.is_closed

    def check_writable(self) -> None:
        """
        Raises:
            ReopenRequiredError: a failure made the log refuse changes until it is opened again.
            ClosedError, ForkedError: it cannot be used at all.
        """
        self.writer.check_writable()

    @property
    def written_high_watermark(self) -> int:
        """The high watermark, without records that still gather; for checkpoints."""
        return self._core.known_high_watermark

    @property
    def written_bytes(self) -> int:
        """Bytes of the ``.log`` files, without records that still gather."""
        return bytes_of(self._core.segments)

    @property
    def needs_reopen(self) -> bool:
        """Whether a failure made the log refuse changes until it is opened again."""
        return self.writer.guard.failure is not None

    # The end

    def close(self) -> None:
        """Write, flush and checkpoint everything, then release the files. You may call it again.

        Raises:
            StorageError: not everything could be made durable. The log is still closed, and the next open
                recovers it.
        """
        self.writer.close()

    def abandon(self, *, is_removed: bool = False) -> None:
        """Release the files without writing anything, as a crash would. Waits for changes that other threads
        have begun: afterwards another log may use the directory. ``is_removed``: it was deleted, which later
        calls are told."""
        self.writer.guard.is_removed = is_removed
        self.writer.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(LogstoreError):  # the error in flight says more
            self.close()


def open_log(
    context: LogContext,
    directory: str,
    partition: TopicPartition,
    config: TopicConfig,
    *,
    is_clean: bool,
    accept_loss: bool = False,
    is_foreign: bool = False,
) -> Log:
    """Open a partition's directory inside a directory that this process holds, and recover it if needed. Call
    :meth:`.LogWriter.settle` before anything else.

    Above the recovery point a log that was never compacted has no gaps, so a gap there is damage. This is not
    assumed if the log ``is_foreign`` (a broker wrote it, under unknown settings).

    Raises:
        CorruptionError: durable data is damaged or missing.
        StorageError: the disk refused.
    """
    loaded = load_log(
        context,
        directory,
        partition,
        config,
        is_clean=is_clean,
        accept_loss=accept_loss,
        is_foreign=is_foreign,
    )
    return Log(LogWriter(context, directory, partition, config, loaded))
