"""One partition's log, as its one writer has it: the whole public interface.

Reading comes from :class:`~logstore.partition.reading.readable.ReadableLog`, appending from
:class:`~logstore.partition.writing.appending.AppendingLog`, locks and flushing from
:class:`~logstore.partition.writing.writable.WritableLog`. Here are the changes that remove, what replication
asks of a log, and its beginning and end.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

from logstore.arguments import check_callback, check_flag, shown
from logstore.clock import Clock
from logstore.config import DEFAULT_MAP_BYTES, StoreConfig, TopicConfig, check_topic_config
from logstore.errors import (
    LogstoreError,
    OffsetOutOfRangeError,
    UsageError,
)
from logstore.files import Files, PathLike
from logstore.format.checkpoint import EpochEntry
from logstore.model import Bytes, Role, how_to_make_int
from logstore.partition.arguments import check_count, check_offset
from logstore.partition.checking.checkable import CheckableLog
from logstore.partition.encoding.row_encoder import RowEncoder
from logstore.partition.segments.failed_flushes import tell_failed_flush
from logstore.partition.writing.appending import AppendingLog
from logstore.partition.writing.core import bytes_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from logstore.partition.checking.facts import LogFacts
    from logstore.partition.checking.files import StoredCheckpoints
    from logstore.partition.cleaning.compaction_report import CompactionReport, OnCompactionProgress, Throttle
    from logstore.partition.cleaning.dirtiness import Dirtiness
    from logstore.partition.cleaning.erase_report import EraseReport, OnEraseProgress

_MAX_EPOCH = 2**31 - 1


class Log(AppendingLog, CheckableLog):
    """One partition, open for writing. Made by :meth:`Log.open`, or by a store for each of its partitions.

    All methods may be called from many threads.
    """

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
        a store's directory belongs to that store: open the store. Flushes and checkpoints run in the
        background as in a store; retention and the expiry of producers do not: call
        :meth:`enforce_retention` and :meth:`expire_producers`.

        Raises:
            LockedError: it is open elsewhere.
            UsageError: it does not exist and ``create`` is false, it lies inside a store, or it is one.
            CorruptionError: durable data is damaged or missing, and ``accept_loss`` is false.
        """
        from logstore.partition.standalone import open_standalone

        create, accept_loss = check_flag(create, "create"), check_flag(accept_loss, "accept_loss")
        return open_standalone(
            path,
            config=config,
            store_config=store_config,
            files=files,
            clock=clock,
            create=create,
            accept_loss=accept_loss,
        )

    # Removing

    def delete_before(self, offset: int) -> int:
        """Delete the records below ``offset``: they can no longer be read, and segments that hold nothing
        else are removed. Durable on return. Returns the log start offset.

        Raises:
            OffsetOutOfRangeError: ``offset`` is above the high watermark.
            UsageError: the topic is only compacted; its records are deleted by tombstones.
        """
        check_offset(offset, "offset")
        with self._own_lock(), self._changing as core:
            if not core.config.deletes:
                raise UsageError(f"{self.partition} is compacted only: cleanup_policy must contain delete")
            self._drain_locked()
            if offset > core.high_watermark:
                raise OffsetOutOfRangeError(
                    f"offset {offset} is above the high watermark {core.high_watermark} of {self.partition}"
                )
            start = core.log_start_offset
            core.raise_log_start(offset)
            count = self._count_below_start_locked()
            if count or offset > start:
                gone, reason = core.segments[:count], f"delete_before({offset})"
                core.tell_deletion(start, core.log_start_offset, bytes_of(gone), reason)
            self._delete_locked(count)
            return core.log_start_offset

    def _count_below_start_locked(self) -> int:
        bases = self._core.view.bases
        return sum(base <= self._core.log_start_offset for base in bases[1:])

    def enforce_retention(self, *, dry_run: bool = False) -> int:
        """Apply ``retention_ms``, ``retention_bytes`` and the log start offset now; returns how many segments
        went (with ``dry_run``, would go). Stores do it in the background.

        Records that are still gathered do not count. They are written before anything goes, if the disk takes
        them: on a full one this is what makes room.
        """
        dry_run = check_flag(dry_run, "dry_run")
        with self._own_lock(), self._changing as core:
            now_ms = self._context.clock.now_ms()
            count = core.plan_retention(now_ms)
            if count and not dry_run:
                self._write_before_waiting_locked()
                self._delete_locked(count, core.limits_behind(count, now_ms))
            return count

    def _delete_locked(self, count: int, reason: str = "") -> None:
        if not count:
            return
        self._schedule_removal(self._core.delete_segments(count, self._context.clock.now_ms(), reason))
        self._notify()

    def truncate_to(self, offset: int) -> bool:
        """Drop the records from ``offset`` on, durably; the next append gets ``offset``. Returns whether
        anything was dropped.

        Batches are dropped whole: if ``offset`` lies inside one, its records below ``offset`` go too. An
        ``offset`` below the first segment empties the log.
        """
        check_offset(offset, "offset")
        with self._own_lock(), self._changing as core:
            self._drain_locked()
            if offset >= core.log_end_offset:
                core.cut_epochs()
                return False
            now_ms, reason = self._context.clock.now_ms(), f"truncate_to({offset})"
            if offset < core.segments[0].base_offset:
                self._schedule_removal(core.start_over(offset, None, now_ms, reason))
            else:
                self._schedule_removal(core.truncate_to(offset, now_ms, reason))
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
        with self._own_lock(), self._changing as core:
            now_ms, reason = self._context.clock.now_ms(), f"truncate_fully_and_start_at({offset})"
            if row_count := self._gathered.row_count:
                reason += f", and {row_count} records that were not written yet"
            self._gathered.clear()
            self._schedule_removal(core.start_over(offset, log_start_offset, now_ms, reason))
            self._notify()

    def roll(self) -> None:
        """Begin a new segment now."""
        with self._own_lock(), self._changing as core:
            self._drain_locked()
            core.roll(core.log_end_offset, self._context.clock.now_ms())
            core.publish()

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
        with self._compacting.own_lock(), self._compacting:
            return Compaction(
                self,
                now=now,
                dry_run=dry_run,
                map_bytes=map_bytes,
                throttle=throttle,
                on_progress=on_progress,
            ).run()

    def dirtiness(self) -> Dirtiness:
        """How much of the log compaction has been over, how much waits for it, and whether it is time to."""
        from logstore.partition.cleaning.compaction import find_dirtiness  # few programs get here

        return find_dirtiness(self, self._published_view())

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
        with self._compacting.own_lock(), self._compacting:
            return Erasure(self, erased, dry_run=dry_run, on_progress=on_progress).run()

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
        with self._own_lock(), self._changing as core:
            if type(epoch) is not int or not self._leader_epoch <= epoch <= _MAX_EPOCH:
                raise UsageError(
                    f"epoch is {shown(epoch)}; it must be a number from {self._leader_epoch} to {_MAX_EPOCH}"
                )
            self._drain_locked()
            core.assign_epoch(epoch)
            self._leader_epoch = epoch

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
        if not isinstance(role, Role):
            raise UsageError(f"role is {shown(role)}; it must be one of {', '.join(map(str, Role))}")
        with self._own_lock(), self._changing as core:
            self._drain_locked()
            if role is not core.role:
                core.set_role(role)
                self._notify()

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark; returns where it is. It stays within the log and never goes back.

        Raises:
            UsageError: the log is alone: its high watermark is its end.
        """
        check_offset(offset, "offset")
        with self._own_lock(), self._changing as core:
            if core.role is Role.ALONE:
                raise UsageError(
                    "this log is its partition's only replica: its high watermark is its end until set_role()"
                )
            bounded = max(min(offset, core.log_end_offset), core.log_start_offset, core.high_watermark)
            if bounded != core.high_watermark:
                core.high_watermark = bounded
                core.publish()
                self._notify()
            return bounded

    # Checking

    def facts_to_check(self, checkpoints: StoredCheckpoints) -> LogFacts:
        """What a check holds the log against, as of now; see :meth:`CheckableLog.facts_to_check`."""
        from logstore.partition.checking.facts_of_writer import facts_of_writer  # few programs get here

        return facts_of_writer(self, checkpoints)

    # Settings, background, end

    @property
    def config(self) -> TopicConfig:
        """The settings in use; :meth:`reconfigure` changes them."""
        return self._core.config

    def reconfigure(self, config: TopicConfig) -> None:
        """Use other settings from the next append on; those of the index files from the next roll on.

        Raises:
            InvalidConfigError: it is no TopicConfig.
        """
        config = check_topic_config(config) or self.config
        with self._own_lock(), self._changing as core:
            self._drain_locked()
            core.config = config
            self._encoder = RowEncoder(self._context.config, config)
            self._gathered.use_rules(self._encoder.rules, self._encoder.max_record_bytes)

    def expire_producers(self) -> int:
        """Forget producers that have been idle for ``producer_id_expiration_ms``; returns how many."""
        with self._own_lock(), self._changing as core:
            expiration_ms = self._context.config.producer_id_expiration_ms
            return core.producers.remove_expired(self._context.clock.now_ms(), expiration_ms)

    def close(self) -> None:
        """Write, flush and checkpoint everything, then let go. Closing twice is fine.

        Raises:
            StorageError: it could not all be made durable. The log is closed all the same, and the next open
                recovers it.
        """
        if (self._is_closed and self._on_close is None) or self._context.fork_flag.is_forked:
            return
        self._compacting.end()
        try:
            with self._lock:
                if not self._is_closed:
                    self._close_locked()
        finally:
            # without the lock: the background thread may be waiting for it, and is waited for
            on_close = self._on_close  # once: another thread may be closing, too
            if on_close is not None and self._is_closed:  # else an interrupt came first
                on_close()
                self._on_close = None  # last: closing again finishes what an interrupt has left

    def _close_locked(self) -> None:
        try:
            if self._failure is None:
                self._check_owned()
                self._drain_locked()
                if self._core.view is not self._view_of_clean_stop:
                    self._core.active.close_indexes()
                    self._checkpoint_locked()
            else:
                self._check_owned()
                self._check_durable_locked()
            self._remove(list(self._to_remove))
        except BaseException as error:
            self._poison(error)  # so that nobody calls this a clean stop
            raise
        finally:
            self._is_closed = True
            self._gathered.close_gate()
            tell_failed_flush(self._context.files, self.directory)
            self._core.forget_files()
            self._notify()

    def _check_durable_locked(self) -> None:
        """
        Raises:
            ReopenRequiredError: something is not durable, and an earlier failure keeps it from becoming so.
        """
        view = self._core.view
        if view.durable_offset < view.log_end_offset or self._gathered.row_count:
            raise self._reopen_required(
                f"{self.partition} is closed, but nobody knows whether what was appended from offset "
                f"{view.durable_offset} on will survive a power cut; open it again to find out"
            )

    def abandon(self) -> None:
        """Let go without writing anything, as a crash would. What another thread is about to change is
        changed before: afterwards the directory, and what is stored about it, may be another log's."""
        self._compacting.end()
        with self._lock, self._removing:
            self._is_closed = True
            self._gathered.close_gate()  # last: whoever opens it looks whether the log is closed afterwards
            self._core.lose_files()
        self._notify()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(LogstoreError):  # the error in flight says more
            self.close()
