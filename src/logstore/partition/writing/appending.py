"""Appending to a log: single records, many, encoded batches, a leader's batches, transaction markers.

Records are checked and encoded before the lock is taken; under it they get their offsets and are written.
Single records gather first: each gets its offset at once, and its row waits until there are enough of them,
or until the linger time is over. Rows are checked before they gather, so that only the disk can refuse them.
Most need not even take the lock: the first of a batch takes it, sees to the linger time and opens a gate, and
while that is open the compiled :class:`GatheredRows` does the rest of an append in one step.

Three see to it that no row lingers for longer than its time. A thread of the scheduler, which never waits for
the disk, writes what is due. The append that finds its own log's rows overdue writes them. And each append
that begins a batch writes two of other logs, if they are overdue: appends cannot outrun the writing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from logstore.arguments import check_flag, shown
from logstore.config import UNLIMITED
from logstore.errors import (
    OutOfOrderError,
    RecordTooLargeError,
    RetriableError,
    StorageError,
    UsageError,
)
from logstore.files import PathLike, check_path
from logstore.format.batch import NewBatch, place_batch
from logstore.format.control import ControlType, encode_end_marker
from logstore.format.gathered import Row, record_bytes
from logstore.format.header import decode_header
from logstore.model import AppendOrigin, Bytes, ProducerIdentity, how_to_make_int
from logstore.partition.arguments import check_buffer
from logstore.partition.encoding.adopting import check_adopted, headers_of_file, place_adopted
from logstore.partition.encoding.planning import (
    check_keys,
    check_timestamps,
    plan_follower_append,
    plan_leader_append,
)
from logstore.partition.encoding.row_encoder import check_coordinator_epoch, check_producer, place_batches
from logstore.partition.encoding.rows import (
    NewRecords,
    check_headers,
    check_payload,
    check_timestamp_types,
    list_of,
)
from logstore.partition.segments.planned import PlannedAppend
from logstore.partition.writing import at_exit
from logstore.partition.writing.growth import AppendResult
from logstore.partition.writing.writable import WritableLog

_RETRY_MS = 1_000
"""Gathered records that the disk refused are tried again this often."""


class LastOfProducer(NamedTuple):
    """Where an idempotent producer stands in a log."""

    next_sequence: int
    """Of its next record."""
    last_offset: int
    """Of its newest record; -1 if only markers of it are known."""


class AppendingLog(WritableLog):
    """The appending half of a log's public interface."""

    # Appending

    def append(
        self,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Any = (),
        timestamp_ms: int | None = None,
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
            timestamp_ms: milliseconds since the epoch; default now.
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
            offset = self._gathered.gather(
                value, key, headers, timestamp_ms, None if now_ms is None else now_ms()
            )
        if offset is None:
            offset = self._append_with_lock(value, key, headers, timestamp_ms)
            if self._owes_help:
                self._owes_help = False
                self._context.scheduler.help()
            if self._core.config.flush_messages != UNLIMITED:
                self._wait_if_due(offset + 1, False)
        if flush:
            self._commit.wait_until_durable(offset + 1)
        return offset

    def _append_with_lock(self, value: Any, key: Any, headers: Any, timestamp_ms: Any) -> int:
        """Append one record while the gate is closed, and open it; or one that needs a closer look."""
        now_ms = self._now_ms()
        if not (self._is_closed or self._fork_flag.is_forked):  # in a forked child the lock may stay held
            with self._lock:
                try:
                    if not (self._is_closed or self._failure is not None):
                        if now_ms >= self._gate_until_ms and self._gathered.row_count:
                            self._write_overdue_locked(now_ms)
                        number = self._gathered.add(value, key, headers, timestamp_ms, now_ms)
                        if number >= 0:
                            return self._after_gathering_locked(number)
                except BaseException as error:
                    if self._gathered.has_failed:  # else nothing was written, and an interrupt is no harm
                        self._poison_if_unexpected(error)
                    raise
        return self._append_closely(value, key, headers, timestamp_ms, now_ms)

    def _after_gathering_locked(self, number: int) -> int:
        """See to it that the newest row is written in time, and let others follow without the lock. Returns
        its offset."""
        core = self._core
        offset = core.log_end_offset + number
        if not self._linger_pending:
            self._write_soon_locked()
        if self._linger_pending and core.config.flush_messages == UNLIMITED:
            self._gathered.open_gate(core.log_end_offset, self._gate_until_ms)
            if self._is_closed or self._failure is not None:  # since, by somebody without the lock
                self._gathered.close_gate()
        return offset

    def _append_closely(self, value: Any, key: Any, headers: Any, timestamp_ms: Any, now_ms: int) -> int:
        """Append one record about which something is out of the ordinary: it is wrong, or of a type that is
        copied, or the batch is full."""
        value = check_payload("value", value)
        key = check_payload("key", key)
        headers = check_headers(headers)
        if timestamp_ms is not None:
            check_timestamp_types((timestamp_ms,))
        size = record_bytes(key, value, headers)
        row = (key, value, now_ms if timestamp_ms is None else timestamp_ms, headers)
        with self._own_lock(), self._changing as core:
            if timestamp_ms is not None:
                check_timestamps((timestamp_ms,), core.config, now_ms, by_unit=True)
            if key is None and core.config.compacts:
                check_keys((key,))
            gathered = self._gathered
            if size > gathered.max_record_bytes:
                return self._append_alone_locked(row)
            if gathered.must_drain_before(size):
                self._drain_locked()
            return self._after_gathering_locked(gathered.put(row, size))

    def _append_alone_locked(self, row: Row) -> int:
        """A record of unusual size is a batch of its own: only encoding it tells whether it fits."""
        key, value, stamp_ms, headers = row
        batches = self._encode([(key, value, stamp_ms, headers)])
        self._drain_locked()
        return self._write_locked(batches).base_offset

    def _write_soon_locked(self) -> None:
        """Write the newest row after the linger time at the latest; now, if there is none."""
        try:
            if self._context.config.linger_ms > 0:
                self._linger_after_locked(self._context.config.linger_ms)
            else:
                self._drain_locked()
        except BaseException:
            self._gathered.remove_last()
            raise

    def _write_overdue_locked(self, now_ms: int) -> None:
        """Rows have lingered for their time, and this thread has kept the one that was to write them from
        running: the interpreter lets others in every 5 ms only. What comes next lingers anew."""
        self._drain_locked()
        linger_ms = self._context.config.linger_ms
        self._gate_until_ms = now_ms + linger_ms
        self._linger_due_ms = self._context.clock.monotonic_ms() + linger_ms

    def _linger_after_locked(self, delay_ms: int) -> None:
        self._linger_pending = True
        try:
            self._context.scheduler.promptly(delay_ms, self._linger_task)
        except BaseException:  # without a thread for it, or interrupted: the next append asks again
            self._linger_pending = False
            raise
        if self._given_now_ms is None:  # with a clock set by hand the program ends as a test says
            self._owes_help = True
            self._gate_until_ms = self._now_ms() + delay_ms
            at_exit.remember(self)

    def _linger(self) -> None:
        """Write what lingers. Never waits for the lock: whoever holds it for long has written what gathered
        before it was there, and until then no more gathers."""
        if not self._lock.acquire(blocking=False):
            self._context.scheduler.promptly(1, self._linger_task)
            return
        try:
            left_ms = self._linger_due_ms - self._context.clock.monotonic_ms()
            if left_ms > 0 and self._gathered.row_count:
                self._context.scheduler.promptly(left_ms, self._linger_task)
            else:
                self._write_lingering_locked(may_wait=False)
        finally:
            self._lock.release()

    def _linger_behind_flush(self) -> None:
        """The same where the disk must be waited for."""
        with self._lock:
            self._write_lingering_locked(may_wait=True)

    def _write_lingering_locked(self, *, may_wait: bool) -> None:
        self._linger_pending = False
        if self._is_closed or self._failure is not None:
            return
        core = self._core
        core.may_wait, core.has_put_off_roll = may_wait, False
        try:
            self._drain()
        except RetriableError:
            if not core.has_put_off_roll:
                raise
            self._gathered.has_failed = False
            self._linger_pending = True
            name = f"roll {self.partition}"
            self._context.scheduler.after(0, name, self._linger_behind_flush, is_waiting=True)
            return
        except StorageError:
            self._linger_after_locked(_RETRY_MS)
            raise
        finally:
            core.may_wait = True
        at_exit.forget(self)  # not before: the program would end in the middle of it

    def _write_at_exit(self) -> None:
        """Write what was gathered, since the program ends and the log was not closed."""
        if not self._fork_flag.is_forked:  # in a forked child the lock may be held for ever
            self._linger_behind_flush()

    def _drain_locked(self) -> None:
        """Write what was gathered as one batch. On an error it stays gathered."""
        gathered = self._gathered
        gathered.close_gate()
        if not gathered.row_count:
            return
        gathered.has_failed = True
        self._write_locked(self._encoder.encode_gathered(gathered, self._now_ms()))
        gathered.clear()

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
        flush = check_flag(flush, "flush")
        return self._extend_batches(self._prepare(records, producer), flush)

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
        flush = check_flag(flush, "flush")
        return self._extend_batches(self._prepare_arrow(data), flush)

    def _prepare(self, records: NewRecords, producer: ProducerIdentity | None = None) -> Sequence[NewBatch]:
        """Check and encode records, for :meth:`_extend_batches`."""
        self._check_usable()
        return self._encode(records, producer)

    def _prepare_arrow(self, data: Any) -> Sequence[NewBatch]:
        """The same for Arrow columns."""
        from logstore.partition.encoding import arrow_input  # pyarrow is optional, and slow to import

        self._check_usable()
        return arrow_input.encode(data, self._encoder, self._now_ms())

    def _extend_batches(self, batches: Sequence[NewBatch], flush: bool) -> range:
        """Append encoded batches and return their offsets."""
        with self._own_lock(), self._changing as core:
            if self._gathered.row_count:
                self._drain_locked()
            if not batches:
                return range(core.log_end_offset, core.log_end_offset)
            result = self._write_locked(batches)
        base_offset, last_offset = result[:2]
        if flush or core.config.flush_messages != UNLIMITED:
            self._wait_if_due(last_offset + 1, flush)
        return range(base_offset, last_offset + 1)

    def _wait_if_due(self, end_offset: int, flush: bool) -> None:
        """Flush after an append that asked for it, or that brought the unflushed records to
        ``flush_messages``. Without the lock, so that appends of other threads share the fsync."""
        if flush or end_offset - self._core.durable_offset >= self._core.config.flush_messages:
            self._commit.wait_until_durable(end_offset)

    def _encode(self, records: NewRecords, producer: ProducerIdentity | None = None) -> Sequence[NewBatch]:
        """Check records against the topic's rules and encode them. Needs no lock: threads encode and compress
        side by side."""
        now_ms = self._now_ms()
        if producer is not None:
            check_producer(producer)
        rows = records if type(records) is list else list_of(records)
        return self._encoder.encode(rows, now_ms, producer)

    def _write_locked(self, batches: Sequence[NewBatch]) -> AppendResult:
        """Place encoded batches at the log end and write them, a segment's worth at a time."""
        core = self._core
        if len(batches) == 1:
            header = place_batch(batches[0], core.log_end_offset, self._leader_epoch)
            written = core.write(PlannedAppend(batches, [header]), AppendOrigin.CLIENT, self._now_ms())
            self._after_append_locked()
            return written
        result: AppendResult | None = None
        for planned in place_batches(
            batches, core.log_end_offset, self._leader_epoch, core.config.segment_bytes
        ):
            written = core.write(planned, AppendOrigin.CLIENT, self._now_ms())
            result = written if result is None else written._replace(base_offset=result.base_offset)
        assert result is not None
        self._after_append_locked()
        return result

    def append_batch(self, data: Bytes, *, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendResult | None:
        """Append one encoded batch as the partition's leader: it gets its offsets here.

        The records are held against the topic's rules. The bytes are kept, unless the topic's codec or gaps
        in the offsets make it necessary to encode them anew. None if ``data`` holds no whole batch.

        Raises:
            CorruptionError: the batch's CRC or structure is wrong.
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: the topic's rules refuse it.
            OutOfOrderError, ProducerFencedError, InvalidTransactionStateError: the producer's state does.
        """
        data = check_buffer(data)
        if not isinstance(origin, AppendOrigin):
            raise UsageError(f"origin is {shown(origin)}; it must be an AppendOrigin")
        with self._own_lock(), self._changing as core:
            self._drain_locked()
            now_ms = self._context.clock.now_ms()
            planned = plan_leader_append(
                data,
                config=core.config,
                origin=origin,
                base_offset=core.log_end_offset,
                leader_epoch=self._leader_epoch,
                now_ms=now_ms,
            )
            result = None if planned is None else self._write_planned_locked(planned, origin, now_ms)
        if result is not None:
            self._wait_if_due(result.last_offset + 1, False)
        return result

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
        self._check_usable()
        flush, was_checked = check_flag(flush, "flush"), check_flag(was_checked, "was_checked")
        batches = list_of(batches)
        check_producer(producer)
        if producer.transactional:
            raise UsageError("adopted batches cannot be part of a transaction")
        now_ms = self._now_ms()
        headers = check_adopted(batches, self._core.config, now_ms, by_rules=not was_checked)
        with self._own_lock(), self._changing as core:
            self._drain_locked()
            base_offset = core.log_end_offset
            if not headers:
                return range(base_offset, base_offset)
            self._check_follows_locked(producer)
            for planned in place_adopted(
                batches,
                headers,
                config=core.config,
                producer=producer,
                base_offset=base_offset,
                leader_epoch=self._leader_epoch,
                now_ms=now_ms,
            ):
                core.write(planned, AppendOrigin.CLIENT, now_ms)
            self._after_append_locked()
            end_offset = core.log_end_offset
        self._wait_if_due(end_offset, flush)
        return range(base_offset, end_offset)

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
        self._check_usable()
        files, path = self._context.files, check_path(path)
        if files.absolute(path).rpartition("/")[0] == self.directory:
            raise UsageError(f"{path} is in the log's own directory, where names are the log's to give")
        headers = headers_of_file(files, path)
        planned = PlannedAppend([b""] * len(headers), headers)
        with self._own_lock(), self._changing as core:
            self._drain_locked()
            self._check_placed_locked(planned)
            self._flush_now_locked()
            core.adopt_segment(path, planned, self._now_ms())
            self._after_append_locked()
        self._wait_if_due(planned.last_offset + 1, False)
        return range(planned.base_offset, planned.last_offset + 1)

    def _check_placed_locked(self, planned: PlannedAppend) -> None:
        core, first = self._core, planned.headers[0]
        if planned.size_bytes > core.config.segment_bytes:
            raise RecordTooLargeError(
                f"{planned.size_bytes} bytes are more than segment_bytes ({core.config.segment_bytes})"
            )
        if planned.base_offset != core.log_end_offset or planned.has_gap_from(planned.base_offset):
            raise OutOfOrderError(
                f"offsets from {planned.base_offset} on do not follow the log end {core.log_end_offset}, or "
                "one another"
            )
        for header in planned.headers:
            if header.partition_leader_epoch != self._leader_epoch:
                raise OutOfOrderError(
                    f"leader epoch {header.partition_leader_epoch} is not the present {self._leader_epoch}"
                )
        self._check_follows_locked(
            ProducerIdentity(first.producer_id, first.producer_epoch, first.base_sequence)
        )

    def _check_follows_locked(self, producer: ProducerIdentity) -> None:
        """A duplicate is refused, too: the batches behind it may be new."""
        state = self._core.producers.active_producers().get(producer.producer_id)
        if state is None or state.producer_epoch != producer.producer_epoch:
            return
        if producer.base_sequence != state.next_sequence:
            raise OutOfOrderError(
                f"producer {producer.producer_id} epoch {producer.producer_epoch}: sequence "
                f"{producer.base_sequence} comes where {state.next_sequence} must follow"
            )

    def last_of_producer(self, producer_id: int) -> LastOfProducer | None:
        """Where an idempotent producer stands in this log; None if the log knows none of that id, or has
        forgotten it (``producer_id_expiration_ms``).

        Raises:
            UsageError: the id is not a whole number.
        """
        if type(producer_id) is not int:
            raise UsageError(
                f"producer_id is {shown(producer_id)}; it must be a whole number"
                + how_to_make_int(producer_id)
            )
        with self._own_lock(), self._changing as core:
            self._drain_locked()
            state = core.producers.active_producers().get(producer_id)
        if state is None:
            return None
        return LastOfProducer(state.next_sequence, state.batches[-1].last_offset if state.batches else -1)

    def open_transactions(self) -> dict[int, tuple[int, int]]:
        """The transactions that no marker has ended: producer id -> (producer epoch, first offset)."""
        with self._own_lock():
            states = self._core.producers.active_producers()
        return {
            producer_id: (state.producer_epoch, state.transaction_first_offset)
            for producer_id, state in states.items()
            if state.transaction_first_offset is not None
        }

    def append_replicated(self, data: Bytes) -> AppendResult | None:
        """Append batches copied from a leader, offsets and bytes unchanged. None if there is no whole batch.

        Raises:
            CorruptionError: a CRC or structure is wrong; nothing was appended.
            OutOfOrderError: the offsets do not rise above the log end. An empty log accepts a first batch
                that begins below its end and reaches it, as after records were deleted inside a batch.
        """
        data = check_buffer(data)
        with self._own_lock(), self._changing as core:
            self._drain_locked()
            now_ms = self._context.clock.now_ms()
            try:
                planned = plan_follower_append(data, log_end_offset=core.log_end_offset)
            except UsageError:
                planned = self._plan_into_empty_locked(data, now_ms)
            if planned is None:
                return None
            has_gap = planned.has_gap_from(core.log_end_offset) and not core.config.compacts
            result = self._write_planned_locked(planned, AppendOrigin.REPLICATION, now_ms)
            if has_gap:  # above the recovery point it would look like lost data
                self._checkpoint_locked()
                self._context.home.store_checkpoints()
            latest = core.epochs.latest
            self._leader_epoch = latest.epoch if latest is not None else self._leader_epoch
        self._wait_if_due(result.last_offset + 1, False)
        return result

    def _plan_into_empty_locked(self, data: Bytes, now_ms: int) -> PlannedAppend | None:
        core = self._core
        planned = plan_follower_append(data, log_end_offset=0)
        end = core.log_end_offset
        if (
            planned is None
            or core.log_start_offset != end
            or not planned.base_offset < end <= planned.last_offset
        ):
            return plan_follower_append(data, log_end_offset=end)
        reason = f"the leader's log begins at {planned.base_offset}"
        self._schedule_removal(core.start_over(planned.base_offset, end, now_ms, reason))
        return planned

    def append_end_marker(
        self, producer_id: int, producer_epoch: int, *, committed: bool, coordinator_epoch: int = 0
    ) -> AppendResult:
        """End a producer's transaction in this partition with a control batch (KIP-98).

        Raises:
            ProducerFencedError, CoordinatorFencedError: a newer epoch is known.
            InvalidRecordError: an id or epoch is out of range.
        """
        check_producer(ProducerIdentity(producer_id, producer_epoch, 0))
        check_coordinator_epoch(coordinator_epoch)
        committed = check_flag(committed, "committed")
        with self._own_lock(), self._changing as core:
            self._drain_locked()
            now_ms = self._context.clock.now_ms()
            marker = encode_end_marker(
                base_offset=core.log_end_offset,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                control_type=ControlType.COMMIT if committed else ControlType.ABORT,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=now_ms,
                partition_leader_epoch=self._leader_epoch,
            )
            planned = PlannedAppend([marker], [decode_header(marker)])
            result = self._write_planned_locked(planned, AppendOrigin.COORDINATOR, now_ms)
        self._wait_if_due(result.last_offset + 1, False)
        return result

    def _write_planned_locked(
        self, planned: PlannedAppend, origin: AppendOrigin, now_ms: int
    ) -> AppendResult:
        result = self._core.write(planned, origin, now_ms)
        self._after_append_locked()
        return result

    def _after_append_locked(self) -> None:
        """Wake followers and see to it that the data becomes durable in time."""
        if self._waiting_count:
            self._notify()
        self._flush_soon_locked()
