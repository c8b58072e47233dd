"""One partition's log, as its one writer has it: the whole public interface.

Reading comes from :class:`~logstore.partition.reading.readable.ReadableLog`; everything else is done by the
parts of the :class:`~logstore.partition.writing.writer.LogWriter`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from logstore.arguments import check_callable, check_callback, check_flag, shown
from logstore.clock import Clock
from logstore.config import DEFAULT_MAP_BYTES, UNLIMITED, StoreConfig, TopicConfig, check_topic_config
from logstore.errors import LogstoreError, UsageError
from logstore.files import Files, PathLike
from logstore.format.batch import NewBatch
from logstore.format.checkpoint import EpochEntry
from logstore.model import (
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
from logstore.partition.recovery.loader import RecoveryReport, load_log
from logstore.partition.standalone import open_standalone
from logstore.partition.state.context import LogContext
from logstore.partition.writing.appending import LastOfProducer
from logstore.partition.writing.core import bytes_of
from logstore.partition.writing.growth import AppendResult
from logstore.partition.writing.waits import Done, Wait
from logstore.partition.writing.writer import LogWriter, open_writer

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
        """What opening found and did."""
        self.writer = writer
        """The parts that do the work, for the engine: what they offer may change from version to version."""
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

        The directory then keeps its own ``.lock``, checkpoints and clean-shutdown marker. A partition inside
        a store's directory belongs to that store: open the store. Flushes and checkpoints run in the
        background as in a store; retention and the expiry of producers do not: call
        :meth:`enforce_retention` and :meth:`expire_producers`.

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
        """What a check holds the log against, as of now; see :meth:`CheckableLog.facts_to_check`."""
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

        Records gather into batches: they are written when ``batch_bytes`` have come together, after
        ``linger_ms``, or when anybody reads, flushes or closes. With ``flush`` the call returns when the
        record is durable. Cost: about 0.3 µs (2 in plain Python), and its share of a batch.

        Args:
            value: bytes, or None for a tombstone.
            key: bytes, or None (not in a compacted topic).
            headers: pairs of str and bytes or None, or a mapping.
            timestamp_ms: milliseconds since the epoch, or a datetime with its time zone; default now.
            flush: wait until a power cut cannot take the record.

        Raises:
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
                self.writer.durability.wait_if_due(offset + 1, False)
        if flush:
            self.writer.durability.commit.wait_until_durable(offset + 1)
        return offset

    def extend(
        self, records: NewRecords, *, flush: bool = False, producer: ProducerIdentity | None = None
    ) -> range:
        """Append many records and return their offsets.

        They are checked as a whole before anything is written, and written in batches of about
        ``batch_bytes`` with one call to the system. When the call returns they survive the death of the
        process; with ``flush`` also a power cut. Cost: about 0.1 µs per record of 100 bytes (0.8 in plain
        Python), 10 µs, and the codec.

        Args:
            records: an iterable of :class:`~logstore.model.NewRecord`, ``(key, value)``,
                ``(key, value, timestamp_ms)``, ``(key, value, timestamp_ms, headers)`` or bare values. No
                mapping: its ``items()``.
            flush: wait until a power cut cannot take them.
            producer: stamp them as one batch of an idempotent producer (KIP-98). A batch that the log has
                already, among that producer's last five, is not appended again: its offsets are returned.
                (After a reopen maybe its last only; those before it are refused.)

        Raises:
            UsageError: ``records`` is no iterable of records.
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: a record or ``producer`` is wrong;
                nothing was appended.
            OutOfOrderError, ProducerFencedError: the producer's sequence or epoch is refused.
            StorageError: the disk refused. Nothing was appended, except where the records fill more than a
                segment: then those of the segments before stay.
        """
        return self.writer.appending.extend(records, flush=flush, producer=producer)

    def extend_arrow(self, data: Any, *, flush: bool = False) -> range:
        """Append the rows of Arrow columns and return their offsets. As :meth:`extend`: all rows are checked
        before anything is written, and the batches are those that it would make of the same rows.

        Columns: ``value``, and if wanted ``key``, both binary or text; ``timestamp_ms``, whole numbers or any
        Arrow timestamp, where null is the present; ``headers``, lists of (key, value) structs, or a map. Null
        keys, values and header values stay null.

        Needs pyarrow: ``pip install 'embedded-logstore[arrow]'``. Cost: 0.07 µs per record of 100 bytes, and
        the codec. Memory: the data, and its batches. Of more than fits, append a part at a time
        (``for batch in reader: log.extend_arrow(batch)``).

        Args:
            data: a pyarrow Table, RecordBatch or RecordBatchReader, or anything with ``__arrow_c_stream__``:
                a DataFrame of polars or pandas, a relation of DuckDB.
            flush: wait until a power cut cannot take them.

        Raises:
            UsageError: it is no such data.
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
        """Append one encoded batch as the partition's leader: it gets its offsets here.

        The records are held against the topic's rules, without a lock, so threads check side by side. The
        bytes are kept, unless the topic's codec or gaps in the offsets make it necessary to encode them anew.
        They are copied first: what was checked is written, also if another thread changes ``data`` meanwhile.
        None if it holds no whole batch.

        Cost: the copy, the checksum and the write, and compiled 0.01 µs per record of 100 bytes and 12 µs; of
        a compressed batch decompressing, too. What must be encoded anew costs what decoding and encoding do,
        and in plain Python all costs what decoding does. Under the lock are the write and 8 µs. Memory: the
        copy, and what the batch decompresses to.

        Args:
            leader_epoch: the epoch in which the caller takes this log for the leader's (KIP-320). Nothing is
                appended in another.

        Raises:
            LeaderFencedError, UnknownLeaderEpochError: the log is in another epoch.
            CorruptionError: the batch's CRC or structure is wrong.
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: the topic's rules refuse it.
            OutOfOrderError, ProducerFencedError, InvalidTransactionStateError: the producer's state does.
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

        They come as an encoder leaves them: base offset 0 each, no producer. Here they get offsets, leader
        epoch, the producer with consecutive sequences, and the time of the append where the topic has
        ``LogAppendTime``; they are changed in place and sealed anew. Records are not decoded. What a header
        and a checksum tell is checked of all batches before anything is written; that a compacted topic has
        keys everywhere, and what lies between first and largest timestamp, is for the encoder to see to.

        No batch is taken twice: one that does not follow the last of its producer is refused, be it newer or
        there already. :meth:`last_of_producer` says where to go on. Cost: two checksums, the write
        and 20 µs per batch. Memory: nothing but the batches.

        Args:
            batches: whole batches of magic 2, bytearrays or writable memoryviews.
            producer: whose they are; ``base_sequence`` is the first record's. Not transactional.
            flush: wait until a power cut cannot take them.
            was_checked: they were held against the topic's settings before, and these may have changed since:
                codec, size and timestamps pass as they are.

        Raises:
            UsageError: a buffer cannot be written to, or the producer is transactional.
            CorruptionError: a batch's checksum or structure is wrong.
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: a batch, named by its number, is
                none that an encoder by these rules makes; or ``producer`` is wrong.
            OutOfOrderError, ProducerFencedError: the producer's sequence or epoch is refused.
            StorageError: as :meth:`extend`. In all other cases nothing was appended.
        """
        return self.writer.appending.adopt(batches, producer=producer, flush=flush, was_checked=was_checked)

    def adopt_file(self, path: PathLike) -> range:
        """Make a file of batches this log's newest segment, as it is, and return their offsets: what
        :meth:`adopt` does for the bytes of many, in the time of some fsyncs.

        Whoever wrote the file has seen to everything that :meth:`adopt` sees to, and has placed the batches
        there: their offsets follow the log end, their leader epoch is the present one, and their sequences
        follow the last of their one producer. It is durable, and nobody writes to it any more. On return it
        is a file of the log; its old name is gone, unless the disk refused to remove it, and then it is a
        name of the log's file. Only headers are looked at. Cost: 10 µs per batch, and some ten fsyncs.
        Memory: 0.6 KB per batch.

        Raises:
            UsageError: the file is in the log's own directory.
            OutOfOrderError, ProducerFencedError: the batches do not follow those of the log, or of the
                producer.
            CorruptionError: the file does not consist of whole batches.
            InvalidRecordError: its batches are not of magic 2, or not of one idempotent producer.
            RecordTooLargeError: it is larger than ``segment_bytes``.
            OffsetOutOfRangeError: the log has no offsets left.
            StorageError: the disk refused, or the file cannot have a name in the log's directory (EXDEV,
                EPERM and others). In all cases nothing was changed, but for one: a log that must be reopened
                then has the file, whole, or nothing of it.
        """
        return self.writer.appending.adopt_file(path)

    def last_of_producer(self, producer_id: int) -> LastOfProducer | None:
        """Where an idempotent producer stands in this log; None if the log knows none of that id, or has
        forgotten it (``producer_id_expiration_ms``).

        Raises:
            UsageError: the id is not a whole number.
        """
        return self.writer.appending.last_of_producer(producer_id)

    def open_transactions(self) -> dict[int, tuple[int, int]]:
        """The transactions that no marker has ended: producer id -> (producer epoch, first offset)."""
        return self.writer.appending.open_transactions()

    def append_replicated(self, data: Bytes, *, leader_epoch: int | None = None) -> AppendResult | None:
        """Append batches copied from a leader, offsets and bytes unchanged. None if there is no whole batch.

        The offsets may leave gaps: compaction leaves some at the leader. A log whose role is follower's just
        has them; any other is checkpointed past the gap before the call returns, since a gap above the
        recovery point would look like lost data.

        Checksums are checked without a lock; records are not looked at. Anything but bytes is copied first.
        Cost: the checksum, the write, and 10 µs; under the lock are the write and 7 µs.

        Args:
            leader_epoch: the epoch of the leader that sent them. An answer that comes when the log has heard
                of a newer one is refused; batches that were written in a newer one, and all behind them, are
                left out (the leader asked has lost its office meanwhile).

        Raises:
            LeaderFencedError: the log has batches of a newer epoch than ``leader_epoch``.
            CorruptionError: a CRC or structure is wrong; nothing was appended.
            OutOfOrderError: the offsets do not rise above the log end. An empty log accepts a first batch
                that begins below its end and reaches it, as after records were deleted inside a batch.
        """
        return self.writer.appending.append_replicated(data, leader_epoch=leader_epoch)

    def append_end_marker(
        self, producer_id: int, producer_epoch: int, *, committed: bool, coordinator_epoch: int = 0
    ) -> AppendResult:
        """End a producer's transaction in this partition with a control batch (KIP-98).

        Raises:
            ProducerFencedError, CoordinatorFencedError: a newer epoch is known.
            InvalidRecordError: an id or epoch is out of range.
        """
        return self.writer.appending.append_end_marker(
            producer_id, producer_epoch, committed=committed, coordinator_epoch=coordinator_epoch
        )

    # Durability

    def flush(self, *, timeout: float | None = None) -> None:
        """Return when everything appended before the call is durable. One fsync serves all who wait.

        Args:
            timeout: seconds to wait for the disk at most. The flush is then the background's, and goes on.

        Raises:
            StorageError: the fsync failed. Nothing further is acknowledged until the log is reopened.
            RetriableError: the time was over.
        """
        if timeout is None:
            self.writer.durability.flush()
        else:
            self.writer.durability.flush_within(check_timeout(timeout))

    @property
    def last_flush_seconds(self) -> float:
        """What the last fsync took; 0 before the first."""
        return self.writer.durability.commit.flush_seconds

    def checkpoint(self) -> None:
        """Flush, make indexes and producer state durable, and store the recovery point: what the next open
        need not read. Stores do it in the background; call it to bound the time of a recovery."""
        self.writer.durability.checkpoint()

    def prepare_checkpoint(self) -> None:
        """Everything of :meth:`checkpoint` but storing the recovery point, which its directory does for all
        of its logs at once."""
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
        """Call ``done(True)`` once everything below ``offset`` is there for readers of the isolation, and
        ``done(False)`` if the timeout, the log's end or its failure comes first. Takes no thread: what long
        polls and acknowledgements wait with, however many there are.

        With :attr:`Isolation.DURABLE` that is when a power cut takes nothing below ``offset`` any more; the
        background flushes within ``flush_ms``, or with ``flush`` at once, one fsync for all who wait.

        ``done`` is called in the thread that changes the log, while that holds the log's lock, or in this one
        if the log is there already: hand it on (``loop.call_soon_threadsafe``, ``queue.put``,
        ``event.set``), and change no log. What it raises becomes a warning.

        Returns:
            The wait, to be cancelled.

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
        """Have ``callback`` called after each change of what readers see: something was appended, became
        durable, was replicated, deleted or replaced; and when the log is closed or has failed. Returns a
        function that ends this. As for :meth:`when`, the callback must not wait, nor change a log.

        Raises:
            UsageError: it cannot be called.
            ClosedError, ForkedError: the log cannot be used.
        """
        check_callable(callback, "callback")
        return self.writer.on_change(callback)

    # Removing

    def delete_before(self, offset: int) -> int:
        """Delete the records below ``offset``: they can no longer be read, and segments that hold nothing
        else are removed. Durable on return. Returns the log start offset.

        Raises:
            OffsetOutOfRangeError: ``offset`` is above the high watermark.
            UsageError: the topic is only compacted; its records are deleted by tombstones.
        """
        return self.writer.removal.delete_before(offset)

    def enforce_retention(self, *, dry_run: bool = False) -> int:
        """Apply ``retention_ms``, ``retention_bytes`` and the log start offset now; returns how many segments
        went (with ``dry_run``, would go). Stores do it in the background.

        Records that are still gathered do not count. They are written before anything goes, if the disk takes
        them: on a full one this is what makes room.
        """
        return self.writer.removal.enforce_retention(dry_run=check_flag(dry_run, "dry_run"))

    def truncate_to(self, offset: int) -> bool:
        """Drop the records from ``offset`` on, durably; the next append gets ``offset``. Returns whether
        anything was dropped.

        Batches are dropped whole: if ``offset`` lies inside one, its records below ``offset`` go too. An
        ``offset`` below the first segment empties the log.
        """
        return self.writer.removal.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int, *, log_start_offset: int | None = None) -> None:
        """Drop everything; the next append gets ``offset``. What a follower does that fell out of its
        leader's log.

        Raises:
            UsageError: ``log_start_offset`` is above ``offset``.
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
        """Remove the records that a later one of the same key supersedes, as the background does when it is
        time to: below the active segment, the last stable offset and ``min_compaction_lag_ms``. Offsets never
        change. Tombstones go in the first compaction that is ``delete_retention_ms`` after the one that met
        them first. Readers and appends go on meanwhile; a second compaction waits for the first.

        Does nothing where the log is not dirty enough (see :meth:`dirtiness`), unless ``now``.

        Args:
            now: roll the active segment and compact whatever the ratio is; the lag is kept all the same.
            dry_run: change nothing, and report what would be saved. Where one round does not do, what the
                first would save.
            map_bytes: memory for the keys, 24 bytes each (without the compiled module 190); where it does not
                do, there are several rounds, each of which reads the log again.
            throttle: called with the number of bytes after each step of about 1 MiB; may sleep.
            on_progress: called after each step. What it raises, or ``throttle``, aborts the compaction: the
                segments that it was about to replace stay as they are.

        Raises:
            UsageError: the topic is not compacted, or ``map_bytes`` holds no key.
            CorruptionError: a batch is damaged; it and all behind it stay as they are.
            RetriableError: the log was truncated, or its beginning deleted, meanwhile.
            ClosedError: it was closed, or its topic deleted, meanwhile.
        """
        from logstore.partition.cleaning.compaction import Compaction  # few programs get here

        now, dry_run = check_flag(now, "now"), check_flag(dry_run, "dry_run")
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
        """How much of the log compaction has been over, how much waits for it, and whether it is time to."""
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
        """Erase chosen records for good, whatever the topic's cleanup policy is: those with one of the keys,
        tombstones too, and those at the offsets. All others keep their offsets; there is no record at the
        erased ones any more. ``docs/erasing.md`` tells what is left of them, and what cannot be reached.

        On return it is durable, and the files that held the records are removed: those of replaced segments,
        what other changes had left to be removed later, and all that recoveries have set aside (``.torn-``).
        Records count that were appended before the call, also those of open and of aborted transactions,
        above the high watermark, and below the log start while their segment is there; transaction markers
        stay. Readers under way finish with what they have; appends go on. Waits for a compaction under way.

        Segments are rewritten one after the other, each by itself whole before and after: what ends the call
        early leaves some records erased, and the next call with the same arguments the rest.

        Keys or offsets that are not there are no error. Cost: with keys a pass over the log that decodes
        only batches which have one; with offsets one over their segments. Then the segments that lose
        records are read again and written.

        Args:
            dry_run: change nothing, remove nothing, and report what would be done.
            on_progress: called after each step of about 1 MiB. What it raises ends the call early.

        Raises:
            UsageError: neither keys nor offsets are given, or they are something else.
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
        """The epoch that appends are stamped with."""
        return self._core.leader_epoch

    @property
    def epoch_entries(self) -> tuple[EpochEntry, ...]:
        """The history of leader epochs."""
        return self._core.epochs.entries

    def assign_leader_epoch(self, epoch: int) -> None:
        """Become the leader of a new epoch, which begins at the log end. Stored durably.

        Raises:
            UsageError: below the latest epoch, or beyond 32 bits.
        """
        self.writer.replication.assign_leader_epoch(epoch)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch at or below ``epoch``, the offset where it ended); (-1, -1) if unknown (KIP-101).

        Raises:
            UsageError: it is not a whole number.
        """
        if type(epoch) is not int:
            raise UsageError(f"epoch is {shown(epoch)}; it must be a whole number{how_to_make_int(epoch)}")
        return self._core.epochs.end_offset_for(epoch, self.log_end_offset)

    @property
    def role(self) -> Role:
        """What the log is to other replicas of its partition, as :meth:`set_role` has stored it; alone if
        nobody ever did."""
        return self._core.role

    def set_role(self, role: Role) -> None:
        """Say what the log is to other replicas of its partition. Stored durably, with the high watermark:
        the next open knows it before it shows or removes anything, and so do readers in other processes.

        As a leader or a follower the log has the high watermark that :meth:`update_high_watermark` gave it,
        whatever its end is. Retention, :meth:`delete_before` and compaction stop there. After an open it is
        the one that a checkpoint has stored (``replica_high_watermark_checkpoint_interval_ms``), or the log
        start. A log that was alone begins with its end; one that was opened and has not grown since, as where
        a broker wrote it, with what was stored.

        Alone, the high watermark is the log end again. The log refuses nothing because of its role: who may
        append is for its owner to see to. Cost: two fsyncs, two more if it was alone.

        Raises:
            UsageError: it is no Role.
            StorageError: it could not be stored; the log must be reopened, and has the old role or the new.
        """
        self.writer.replication.set_role(role)

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark; returns where it is. It stays within the log and never goes back.

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
        """Use other settings from the next append on; those of the index files from the next roll on.

        Raises:
            InvalidConfigError: it is no TopicConfig.
        """
        self.writer.reconfigure(check_topic_config(config) or self.config)

    def expire_producers(self) -> int:
        """Forget producers that have been idle for ``producer_id_expiration_ms``; returns how many."""
        return self.writer.expire_producers()

    @property
    def is_closed(self) -> bool:
        """Whether it can no longer be used."""
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
        """The high watermark without what is still gathering, as far as it is known; for checkpoints."""
        return self._core.known_high_watermark

    @property
    def written_bytes(self) -> int:
        """Bytes of the ``.log`` files, without what is still gathering."""
        return bytes_of(self._core.segments)

    @property
    def needs_reopen(self) -> bool:
        """Whether a failure made the log refuse changes until it is opened again."""
        return self.writer.guard.failure is not None

    # The end

    def close(self) -> None:
        """Write, flush and checkpoint everything, then let go. Closing twice is fine.

        Raises:
            StorageError: it could not all be made durable. The log is closed all the same, and the next open
                recovers it.
        """
        self.writer.close()

    def abandon(self) -> None:
        """Let go without writing anything, as a crash would. What another thread is about to change is
        changed before: afterwards the directory, and what is stored about it, may be another log's."""
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
    """Open a partition's directory inside a directory that this process holds, recovering it if need be.

    After a recovery everything that was found is durable and checkpointed: a crash right after needs no
    second recovery.

    Above the recovery point a log that was never compacted has no gaps, and one is damage. Of a log that is
    ``is_foreign`` (a broker wrote it, under settings that nobody here knows) nothing of the kind is assumed.

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
    return Log(open_writer(context, directory, partition, config, loaded))
