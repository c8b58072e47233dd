"""One partition's log, as its one writer has it: append, flush, truncate, delete, close.

Locks: ``_lock`` guards every change of the log and serialises writers. Readers never take it: they work on
an immutable view that is replaced in one assignment after the disk was changed. ``_grown`` is notified after
each append. Fsyncs run outside ``_lock``, so appends go on during a flush.

A change that fails leaves the log as it was. One that stops half-way (an fsync that failed, an error after
the log was written but before what belongs to it) makes the log refuse all further changes until it is
reopened; reading goes on.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from logstore.clock import Clock
from logstore.config import UNLIMITED, StoreConfig, TopicConfig
from logstore.errors import (
    ClosedError,
    ForkedError,
    LogstoreError,
    OffsetOutOfRangeError,
    ReopenRequiredError,
    StorageError,
    UsageError,
)
from logstore.files import Files, PathLike
from logstore.format.checkpoint import EpochEntry
from logstore.format.control import ControlType, encode_end_marker
from logstore.format.header import decode_header
from logstore.model import AppendOrigin, Bytes, ProducerIdentity, TopicPartition
from logstore.partition.columns import (
    MAX_RECORD_OVERHEAD_BYTES,
    NewRecords,
    check_headers,
    check_payload,
    check_timestamp_types,
    columns_of,
    headers_bytes,
    split_by_size,
)
from logstore.partition.context import LogContext
from logstore.partition.core import AppendResult, LogCore
from logstore.partition.encoding import check_producer, encode_columns, place_batches
from logstore.partition.gathering import Gathering, Row
from logstore.partition.group_commit import GroupCommit
from logstore.partition.readable import ReadableLog, check_buffer, check_offset
from logstore.partition.recovery import LoadedLog, RecoveryReport
from logstore.partition.segment import Segment
from logstore.partition.validate import (
    PlannedAppend,
    check_keys,
    check_timestamps,
    largest_batch_bytes,
    plan_follower_append,
    plan_leader_append,
)
from logstore.partition.view import LogView

_RETRY_MS = 1_000
"""Gathered records that the disk refused are tried again this often."""

_MAX_EPOCH = 2**31 - 1


class _Change:
    """The lock for a change, as a context. An error of ours means that the change was refused or undone,
    unless it poisoned the log itself; anything unexpected may have struck half-way."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    def __enter__(self) -> LogCore:
        log = self._log
        log._check_usable()  # first: in a forked child the lock may be held for ever
        log._lock.acquire()
        try:
            log._check_writable_locked()
        except BaseException:
            log._lock.release()
            raise
        return log._core

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, LogstoreError):
            self._log._poison(error)
        self._log._lock.release()


class _FlushPlan(NamedTuple):
    """What one flush makes durable: the segments to fsync, and the offset that is durable afterwards unless
    the log is truncated meanwhile (which the count tells)."""

    segments: tuple[Segment, ...]
    target_offset: int
    truncation_count: int


class Log(ReadableLog):
    """One partition, open for writing. Made by :meth:`Log.open`, or by a store for each of its partitions.

    All methods may be called from many threads.
    """

    def __init__(
        self,
        context: LogContext,
        directory: str,
        partition: TopicPartition,
        config: TopicConfig,
        loaded: LoadedLog,
        *,
        follows_end: bool = True,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.directory = directory
        self.partition = partition
        self.recovery: RecoveryReport = loaded.report
        """What opening found and did."""
        self._context = context
        self._lock = threading.RLock()
        self._grown = threading.Condition()
        self._waiting_count = 0
        self._changing = _Change(self)
        self._core = LogCore(
            context, directory, partition, config, loaded, follows_end=follows_end, poison=self._poison
        )
        self._view_of_clean_stop = self._core.view if loaded.report.was_clean else None
        """If it is still the present one, closing has nothing to store: that was done by the last close."""
        self._gathering = Gathering(context.config, config)
        self._linger_pending = False
        self._flush_pending = False
        self._failure: BaseException | None = None
        self._is_closed = False
        self._to_remove: list[str] = []
        self._commit = GroupCommit(self._flush_all, lambda: self._core.durable_offset)
        self._on_close = on_close
        latest = self._core.epochs.latest
        self._leader_epoch = latest.epoch if latest is not None else 0

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
    ) -> Log:
        """Open one partition's directory by itself, without a store around it.

        The directory then keeps its own ``.lock``, checkpoints and clean-shutdown marker. A partition inside
        a store's directory belongs to that store: open the store.

        Raises:
            LockedError: it is open elsewhere.
            UsageError: it does not exist and ``create`` is false, or it lies inside a store.
            CorruptionError: durable data is damaged or missing, and ``accept_loss`` is false.
        """
        from logstore.partition.standalone import open_standalone

        return open_standalone(
            path,
            config=config,
            store_config=store_config,
            files=files,
            clock=clock,
            create=create,
            accept_loss=accept_loss,
        )

    # Guards

    def _check_usable(self) -> None:
        if self._context.fork_flag.is_forked:
            raise ForkedError(
                f"{self.partition} was opened by the parent of this process; "
                "open the store again in the child"
            )
        if self._is_closed:
            raise ClosedError(f"{self.partition} is closed")

    def _check_writable_locked(self) -> None:
        self._check_usable()
        if self._failure is not None:
            raise ReopenRequiredError(
                getattr(self._failure, "errno", None),
                f"{self.partition} must be reopened before it is written again, because of: {self._failure}",
                self.directory,
            )

    def _poison(self, error: BaseException) -> None:
        self._failure = error

    def _current_view(self) -> LogView:
        """What was gathered is written first, so that everybody reads what he appended. If the disk refuses,
        reading goes on without it; the next append and the next flush say why."""
        self._check_usable()
        gathering = self._gathering
        if gathering.rows and not gathering.has_failed and self._failure is None:
            with contextlib.suppress(StorageError):
                self._drain()
        return self._core.view

    def _published_view(self) -> LogView:
        self._check_usable()
        return self._core.view

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
        record is durable. Cost: about 1 µs, and its share of a batch.

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
        now_ms = self._context.clock.now_ms()
        value = value if type(value) is bytes else check_payload("value", value)
        key = key if type(key) is bytes else check_payload("key", key)
        headers = check_headers(headers) if headers else ()
        size = MAX_RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
        if headers:
            size += headers_bytes(headers)
        row = (key, value, now_ms if timestamp_ms is None else timestamp_ms, headers)
        with self._changing as core:
            if timestamp_ms is not None:
                if type(timestamp_ms) is not int or not 0 <= timestamp_ms < 1 << 62:
                    check_timestamp_types((timestamp_ms,))
                check_timestamps((timestamp_ms,), core.config, now_ms)
            if key is None and core.config.compacts:
                check_keys((key,))
            gathering = self._gathering
            if size > gathering.max_record_bytes:
                offset = self._append_alone_locked(row)
            else:
                if gathering.must_drain_before(size):
                    self._drain_locked()
                offset = core.log_end_offset + len(gathering.rows)
                gathering.add(row, size)
                if not self._linger_pending:
                    self._write_soon_locked(size)
        if flush or core.config.flush_messages != UNLIMITED:
            self._wait_if_due(offset + 1, flush)
        return offset

    def _append_alone_locked(self, row: Row) -> int:
        """A record of unusual size is a batch of its own: only encoding it tells whether it fits."""
        key, value, stamp_ms, headers = row
        batches = self._encode([(key, value, stamp_ms, headers)])
        self._drain_locked()
        return self._write_locked(batches).base_offset

    def _write_soon_locked(self, size_bytes: int) -> None:
        """Write the newest row after the linger time at the latest; now, if there is none."""
        if self._context.config.linger_ms > 0:
            self._linger_after_locked(self._context.config.linger_ms)
            return
        try:
            self._drain_locked()
        except BaseException:
            self._gathering.remove_last(size_bytes)
            raise

    def _linger_after_locked(self, delay_ms: int) -> None:
        self._linger_pending = True
        self._context.scheduler.after(delay_ms, f"write {self.partition}", self._linger)

    def _linger(self) -> None:
        self._linger_pending = False
        if self._is_closed or self._failure is not None:
            return
        try:
            self._drain()
        except StorageError:
            with self._lock:
                self._linger_after_locked(_RETRY_MS)
            raise

    def _drain(self) -> None:
        with self._changing:
            self._drain_locked()

    def _drain_locked(self) -> None:
        """Write what was gathered as one batch. On an error it stays gathered."""
        gathering = self._gathering
        if not gathering.rows:
            return
        gathering.has_failed = True
        self._write_locked(
            encode_columns([gathering.columns()], self._core.config, self._context.clock.now_ms())
        )
        gathering.clear()

    def extend(
        self, records: NewRecords, *, flush: bool = False, producer: ProducerIdentity | None = None
    ) -> range:
        """Append many records and return their offsets.

        They are checked as a whole before anything is written, and written in batches of about
        ``batch_bytes`` with one call to the system. When the call returns they survive the death of the
        process; with ``flush`` also a power cut. Cost: about 0.6 µs per record of 100 bytes, and the codec.

        Args:
            records: an iterable of :class:`~logstore.model.NewRecord`, ``(key, value)``,
                ``(key, value, timestamp_ms)``, ``(key, value, timestamp_ms, headers)`` or bare values.
            flush: wait until a power cut cannot take them.
            producer: stamp them as one batch of an idempotent producer (KIP-98). A batch that the log has
                already, among that producer's last five, is not appended again: its offsets are returned.

        Raises:
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: a record or ``producer`` is wrong;
                nothing was appended.
            OutOfOrderError, ProducerFencedError: the producer's sequence or epoch is refused.
            StorageError: the disk refused. Nothing was appended, except where the records fill more than a
                segment: then those of the segments before stay.
        """
        self._check_usable()
        batches = self._encode(records, producer)
        with self._changing as core:
            self._drain_locked()
            if not batches:
                return range(core.log_end_offset, core.log_end_offset)
            result = self._write_locked(batches)
        self._wait_if_due(result.last_offset + 1, flush)
        return range(result.base_offset, result.last_offset + 1)

    def _wait_if_due(self, end_offset: int, flush: bool) -> None:
        """Flush after an append that asked for it, or that brought the unflushed records to
        ``flush_messages``. Without the lock, so that appends of other threads share the fsync."""
        if flush or end_offset - self._core.durable_offset >= self._core.config.flush_messages:
            self._commit.wait_until_durable(end_offset)

    def _encode(self, records: NewRecords, producer: ProducerIdentity | None = None) -> list[bytearray]:
        """Check records against the topic's rules and encode them. Needs no lock: threads encode and compress
        side by side."""
        now_ms = self._context.clock.now_ms()
        config = self._core.config
        if producer is not None:
            check_producer(producer)
        columns = columns_of(records, now_ms)
        if not isinstance(columns.timestamps, int):
            check_timestamps(columns.timestamps, config, now_ms)
        if config.compacts:
            check_keys(columns.keys)
        limit = min(self._context.config.batch_bytes, largest_batch_bytes(config))
        parts = [columns] if producer is not None and columns.record_count else split_by_size(columns, limit)
        return encode_columns(parts, config, now_ms, producer)

    def _write_locked(self, batches: list[bytearray]) -> AppendResult:
        """Place encoded batches at the log end and write them, a segment's worth at a time."""
        core = self._core
        result: AppendResult | None = None
        for planned in place_batches(
            batches, core.log_end_offset, self._leader_epoch, core.config.segment_bytes
        ):
            written = core.write(planned, AppendOrigin.CLIENT, self._context.clock.now_ms())
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
        check_buffer(data)
        with self._changing as core:
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

    def append_replicated(self, data: Bytes) -> AppendResult | None:
        """Append batches copied from a leader, offsets and bytes unchanged. None if there is no whole batch.

        Raises:
            CorruptionError: a CRC or structure is wrong; nothing was appended.
            OutOfOrderError: the offsets do not rise above the log end. An empty log accepts a first batch
                that begins below its end and reaches it, as after records were deleted inside a batch.
        """
        check_buffer(data)
        with self._changing as core:
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
        self._schedule_removal(core.start_over(planned.base_offset, end, now_ms))
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
        with self._changing as core:
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
        self._notify()
        core = self._core
        if not self._flush_pending and core.log_end_offset > core.durable_offset:
            self._flush_pending = True
            self._context.scheduler.after(
                core.config.flush_ms, f"flush {self.partition}", self._background_flush
            )

    def _notify(self) -> None:
        if self._waiting_count:
            with self._grown:
                self._grown.notify_all()

    def _wait_for_growth(self, seen: LogView, timeout_ms: int) -> None:
        with self._grown:
            self._waiting_count += 1
            try:
                if self._core.view is seen and not self._is_closed:
                    self._grown.wait(timeout_ms / 1000)
            finally:
                self._waiting_count -= 1

    # Durability

    def flush(self) -> None:
        """Return when everything appended before the call is durable. One fsync serves all who wait.

        Raises:
            StorageError: the fsync failed. Nothing further is acknowledged until the log is reopened.
        """
        with self._changing as core:
            target = core.log_end_offset + len(self._gathering.rows)
        self._commit.wait_until_durable(target)

    def _background_flush(self) -> None:
        self._flush_pending = False
        if not self._is_closed and self._failure is None:
            self._commit.wait_until_durable(self._core.log_end_offset)
            self._checkpoint_if_rolled()

    def _flush_all(self) -> None:
        """What one group commit does: flush all that is appended now. If what was gathered cannot be written,
        the rest is made durable before that is said."""
        unwritten = None
        with self._changing:
            try:
                self._drain_locked()
            except StorageError as error:
                unwritten = error
            self._check_writable_locked()
            plan = self._plan_flush_locked()
        self._flush_files(plan)
        with self._lock:
            self._publish_durable_locked(plan)
        if unwritten is not None:
            raise unwritten

    def _flush_now_locked(self) -> None:
        plan = self._plan_flush_locked()
        self._flush_files(plan)
        self._publish_durable_locked(plan)

    def _plan_flush_locked(self) -> _FlushPlan:
        core = self._core
        is_behind = core.durable_offset < core.log_end_offset
        segments = (*core.unflushed, core.active) if is_behind else tuple(core.unflushed)
        return _FlushPlan(segments, core.log_end_offset, core.truncations.count)

    def _flush_files(self, plan: _FlushPlan) -> None:
        """Fsync; without the lock, so that appends go on. A failure poisons the log: the kernel may have
        dropped the pages and marked them clean, so that a second fsync would succeed and mean nothing."""
        for segment in plan.segments:
            try:
                segment.flush()
            except BaseException as error:
                if isinstance(error, StorageError) and self._was_removed(segment, plan.truncation_count):
                    continue
                self._poison(error)
                raise

    def _was_removed(self, segment: Segment, truncation_count: int) -> bool:
        """Whether retention or a truncation took the segment meanwhile."""
        core = self._core
        return (
            segment.base_offset < core.segments[0].base_offset or truncation_count != core.truncations.count
        )

    def _publish_durable_locked(self, plan: _FlushPlan) -> None:
        """Note what a flush made durable. A segment that was sealed while it was flushed is not in the plan,
        and stays to be flushed: the flush may have begun before its last appends."""
        core = self._core
        if plan.truncation_count != core.truncations.count:
            return
        core.unflushed = [segment for segment in core.unflushed if segment not in plan.segments]
        if plan.target_offset > core.durable_offset:
            core.durable_offset = plan.target_offset
            core.publish()
            self._notify()

    def checkpoint(self) -> None:
        """Flush, make indexes and producer state durable, and move the recovery point: what the next open
        need not read. Stores do it in the background; call it to bound the time of a recovery."""
        self.flush()
        with self._changing:
            self._checkpoint_locked()

    def _checkpoint_locked(self) -> None:
        """What :meth:`flush` did not do, and what was appended since. With the lock to the end: a truncation
        in between would leave a recovery point above the log."""
        core = self._core
        self._drain_locked()
        self._flush_now_locked()
        core.active.store_indexes(flush=True)
        if core.last_snapshot_offset != core.log_end_offset:
            core.store_snapshot(core.log_end_offset)
        self._context.home.set_recovery_point(self.partition, core.log_end_offset)
        self._context.home.set_high_watermark(self.partition, core.high_watermark)

    def _checkpoint_if_rolled(self) -> None:
        """After a roll, move the stored recovery point past the sealed segments."""
        home = self._context.home
        with self._lock:
            base = self._core.active.base_offset
            is_due = home.recovery_point(self.partition) < base <= self._core.durable_offset
            if not is_due or self._core.unflushed:
                return
            home.set_recovery_point(self.partition, base)
        home.store_checkpoints()

    # Removing

    def delete_before(self, offset: int) -> int:
        """Delete the records below ``offset``: they can no longer be read, and segments that hold nothing
        else are removed. Durable on return. Returns the log start offset.

        Raises:
            OffsetOutOfRangeError: ``offset`` is above the high watermark.
            UsageError: the topic is only compacted; its records are deleted by tombstones.
        """
        check_offset(offset, "offset")
        with self._changing as core:
            if not core.config.deletes:
                raise UsageError(f"{self.partition} is compacted only: cleanup_policy must contain delete")
            self._drain_locked()
            if offset > core.high_watermark:
                raise OffsetOutOfRangeError(
                    f"offset {offset} is above the high watermark {core.high_watermark} of {self.partition}"
                )
            core.raise_log_start(offset)
            self._delete_locked(self._count_below_start_locked())
            return core.log_start_offset

    def _count_below_start_locked(self) -> int:
        bases = self._core.view.bases
        return sum(base <= self._core.log_start_offset for base in bases[1:])

    def enforce_retention(self, *, dry_run: bool = False) -> int:
        """Apply ``retention_ms``, ``retention_bytes`` and the log start offset now; returns how many segments
        went (with ``dry_run``, would go). Stores do it in the background.

        Records that are still gathered do not count, and are not written for it: on a full disk this is what
        makes room.
        """
        with self._changing as core:
            count = core.plan_retention(self._context.clock.now_ms())
            if not dry_run:
                self._delete_locked(count)
            return count

    def _delete_locked(self, count: int) -> None:
        if not count:
            return
        self._schedule_removal(self._core.delete_segments(count, self._context.clock.now_ms()))
        self._notify()

    def _schedule_removal(self, paths: list[str]) -> None:
        self._to_remove += paths
        delay_ms = self._core.config.file_delete_delay_ms
        self._context.scheduler.after(
            delay_ms, f"remove files of {self.partition}", lambda: self._remove(paths)
        )

    def _remove(self, paths: list[str]) -> None:
        with self._lock:
            for path in paths:
                if path in self._to_remove:
                    self._to_remove.remove(path)
                    if self._context.files.is_file(path):
                        self._context.files.remove(path)

    def truncate_to(self, offset: int) -> bool:
        """Drop the records from ``offset`` on, durably; the next append gets ``offset``. Returns whether
        anything was dropped.

        Batches are dropped whole: if ``offset`` lies inside one, its records below ``offset`` go too. An
        ``offset`` below the first segment empties the log.
        """
        check_offset(offset, "offset")
        with self._changing as core:
            self._drain_locked()
            if offset >= core.log_end_offset:
                core.cut_epochs()
                return False
            now_ms = self._context.clock.now_ms()
            if offset < core.segments[0].base_offset:
                self._schedule_removal(core.start_over(offset, None, now_ms))
            else:
                self._schedule_removal(core.truncate_to(offset, now_ms))
            self._flush_now_locked()
            self._checkpoint_if_rolled()  # a gap above the recovery point would look like lost data
            self._notify()
            return True

    def truncate_fully_and_start_at(self, offset: int, *, log_start_offset: int | None = None) -> None:
        """Drop everything; the next append gets ``offset``. What a follower does that fell out of its
        leader's log.

        Raises:
            UsageError: ``log_start_offset`` is above ``offset``.
        """
        check_offset(offset, "offset")
        if log_start_offset is not None and check_offset(log_start_offset, "log_start_offset") > offset:
            raise UsageError(f"log_start_offset {log_start_offset} is above offset {offset}")
        with self._changing as core:
            self._gathering.clear()
            self._schedule_removal(core.start_over(offset, log_start_offset, self._context.clock.now_ms()))
            self._notify()

    def roll(self) -> None:
        """Begin a new segment now."""
        with self._changing as core:
            self._drain_locked()
            core.roll(core.log_end_offset, self._context.clock.now_ms())
            core.publish()

    # Replication

    @property
    def leader_epoch(self) -> int:
        """The epoch that appends are stamped with."""
        return self._leader_epoch

    @property
    def epoch_entries(self) -> tuple[EpochEntry, ...]:
        """The history of leader epochs."""
        return self._core.epochs.entries

    def assign_leader_epoch(self, epoch: int) -> None:
        """Become the leader of a new epoch, which begins at the log end. Stored durably.

        Raises:
            UsageError: below the latest epoch, or beyond 32 bits.
        """
        with self._changing as core:
            if type(epoch) is not int or not self._leader_epoch <= epoch <= _MAX_EPOCH:
                raise UsageError(
                    f"epoch is {epoch!r}; it must be a number from {self._leader_epoch} to {_MAX_EPOCH}"
                )
            self._drain_locked()
            core.assign_epoch(epoch)
            self._leader_epoch = epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch at or below ``epoch``, the offset where it ended); (-1, -1) if unknown (KIP-101)."""
        return self._core.epochs.end_offset_for(epoch, self.log_end_offset)

    def manage_high_watermark(self) -> None:
        """From now on the high watermark moves only by :meth:`update_high_watermark`, as on a partition with
        several replicas."""
        with self._changing as core:
            core.follows_end = False

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark; returns where it is. It stays within the log, and a leader's never goes
        back.

        Raises:
            UsageError: the log manages its high watermark itself, being the only replica.
        """
        check_offset(offset, "offset")
        with self._changing as core:
            if core.follows_end:
                raise UsageError("this log is its partition's only replica: its high watermark is its end")
            bounded = max(min(offset, core.log_end_offset), core.log_start_offset, core.high_watermark)
            if bounded != core.high_watermark:
                core.high_watermark = bounded
                core.publish()
                self._notify()
            return bounded

    # Settings, background, end

    @property
    def config(self) -> TopicConfig:
        """The settings in use; :meth:`reconfigure` changes them."""
        return self._core.config

    def reconfigure(self, config: TopicConfig) -> None:
        """Use other settings from the next append on; those of the index files from the next roll on."""
        with self._changing as core:
            self._drain_locked()
            core.config = config
            self._gathering.use_limits(self._context.config, config)

    def expire_producers(self) -> int:
        """Forget producers that have been idle for ``producer_id_expiration_ms``; returns how many."""
        with self._changing as core:
            expiration_ms = self._context.config.producer_id_expiration_ms
            return core.producers.remove_expired(self._context.clock.now_ms(), expiration_ms)

    @property
    def is_closed(self) -> bool:
        """Whether it can no longer be used."""
        return self._is_closed

    def check_writable(self) -> None:
        """
        Raises:
            ReopenRequiredError: a failure made the log refuse changes until it is opened again.
            ClosedError, ForkedError: it cannot be used at all.
        """
        with self._lock:
            self._check_writable_locked()

    @property
    def written_high_watermark(self) -> int:
        """The high watermark without what is still gathering; for checkpoints."""
        return self._core.high_watermark

    @property
    def needs_reopen(self) -> bool:
        """Whether a failure made the log refuse changes until it is opened again."""
        return self._failure is not None

    def close(self) -> None:
        """Write, flush and checkpoint everything, then let go. Closing twice is fine.

        Raises:
            StorageError: it could not all be made durable. The log is closed all the same, and the next open
                recovers it.
        """
        if self._is_closed or self._context.fork_flag.is_forked:
            return
        try:
            with self._lock:
                if self._is_closed:
                    return
                self._close_locked()
        finally:
            # without the lock: the background thread may be waiting for it, and is waited for
            on_close, self._on_close = self._on_close, None
            if on_close is not None:
                on_close()

    def _close_locked(self) -> None:
        try:
            if self._failure is None:
                self._drain_locked()
                if self._core.view is not self._view_of_clean_stop:
                    self._core.active.close_indexes()
                    self._checkpoint_locked()
            self._remove(list(self._to_remove))
        except BaseException as error:
            self._poison(error)  # so that nobody calls this a clean stop
            raise
        finally:
            self._is_closed = True
            self._core.forget_files()
            self._notify()

    def abandon(self) -> None:
        """Let go without writing anything, as a crash would."""
        self._is_closed = True
        self._notify()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(LogstoreError):  # the error in flight says more
            self.close()
