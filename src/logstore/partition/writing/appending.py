"""Appending to a log: many records, encoded batches, a leader's batches, transaction markers.

Records and batches are checked and encoded before the lock is taken; under the lock they get their offsets
and are written. Single records gather first: :mod:`~logstore.partition.writing.gathering`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from logstore.arguments import check_flag, check_flags, shown
from logstore.config import UNLIMITED
from logstore.errors import OutOfOrderError, RecordTooLargeError, UsageError
from logstore.files import PathLike, check_path
from logstore.format.batch import NewBatch
from logstore.format.control import ControlType, encode_end_marker
from logstore.format.header import decode_header
from logstore.model import ActiveProducer, AppendOrigin, Bytes, ProducerIdentity, Role, how_to_make_int
from logstore.partition.arguments import check_buffer, check_epoch
from logstore.partition.encoding.adopting import check_adopted, headers_of_file, place_adopted
from logstore.partition.encoding.planning import (
    check_follows,
    check_produced,
    check_replicated,
    place_produced,
)
from logstore.partition.encoding.row_encoder import check_end_marker, check_producer
from logstore.partition.encoding.rows import NewRecords, list_of
from logstore.partition.segments.planned import PlannedAppend
from logstore.partition.state.context import LogContext
from logstore.partition.writing.durability import Durability
from logstore.partition.writing.gathering import Gathering
from logstore.partition.writing.growth import AppendResult
from logstore.partition.writing.guard import Guard
from logstore.partition.writing.removal import Removal


class LastOfProducer(NamedTuple):
    """The last state of an idempotent producer in a log."""

    next_sequence: int
    """The sequence of its next record."""
    last_offset: int
    """The offset of its newest record; -1 if only its markers are known."""


class Appending:
    """The appends of one log, except single records."""

    def __init__(
        self,
        context: LogContext,
        directory: str,
        guard: Guard,
        gathering: Gathering,
        durability: Durability,
        removal: Removal,
    ) -> None:
        self._context = context
        self._directory = directory
        self._guard = guard
        self._core = guard.core
        self._gathering = gathering
        self._durability = durability
        self._removal = removal
        self._now_ms = context.clock.now_ms
        self._fork_flag = context.fork_flag

    # Records

    def extend(
        self, records: NewRecords, *, flush: bool = False, producer: ProducerIdentity | None = None
    ) -> range:
        """See :meth:`.Log.extend`."""
        if flush is not False and flush is not True:
            flush = check_flag(flush, "flush")
        now_ms = self._now_ms()
        return self.extend_batches(self._encode(records, producer, now_ms), flush, now_ms)

    def extend_arrow(self, data: Any, *, flush: bool = False) -> range:
        """See :meth:`.Log.extend_arrow`."""
        flush = check_flag(flush, "flush")
        return self.extend_batches(self.prepare_arrow(data), flush)

    def prepare(self, records: NewRecords, producer: ProducerIdentity | None = None) -> Sequence[NewBatch]:
        """Check and encode records, for :meth:`extend_batches`."""
        self._guard.check_usable()
        return self._encode(records, producer, self._now_ms())

    def prepare_arrow(self, data: Any) -> Sequence[NewBatch]:
        """The same for Arrow columns."""
        from logstore.partition.encoding import arrow_input  # pyarrow is optional, and slow to import

        self._guard.check_usable()
        return arrow_input.encode(data, self._gathering.encoder, self._now_ms())

    def extend_batches(self, batches: Sequence[NewBatch], flush: bool, now_ms: int | None = None) -> range:
        """Append encoded batches and return their offsets. ``now_ms``: the time, if the caller has looked at
        the clock."""
        with self._guard.own_lock(), self._guard as core:
            if core.role is Role.FOLLOWER:
                core.check_no_replica()
            if self._gathering.rows.row_count:
                self._gathering.drain_locked()
            if not batches:
                return range(core.log_end_offset, core.log_end_offset)
            result = core.append(batches, self._now_ms() if now_ms is None else now_ms)
        base_offset, last_offset = result[:2]
        if flush:
            self._durability.commit.wait_until_durable(last_offset + 1)
        elif core.config.flush_messages != UNLIMITED:
            self._durability.wait_if_due(last_offset + 1)
        return range(base_offset, last_offset + 1)

    def _encode(
        self, records: NewRecords, producer: ProducerIdentity | None, now_ms: int
    ) -> Sequence[NewBatch]:
        """Check records against the topic's rules and encode them. Needs no lock, so threads encode and
        compress in parallel."""
        if producer is not None:
            check_producer(producer)
        rows = records if type(records) is list else list_of(records)
        return self._gathering.encoder.encode(rows, now_ms, producer)

    # Batches

    def append_batch(
        self,
        data: Bytes,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        leader_epoch: int | None = None,
    ) -> AppendResult | None:
        """See :meth:`.Log.append_batch`."""
        if leader_epoch is not None:
            check_epoch(leader_epoch)
            self._core.check_leader_epoch(leader_epoch)
        if type(data) is not bytearray:
            data = check_buffer(data)
        if type(origin) is not AppendOrigin:
            raise UsageError(f"origin is {shown(origin)}; it must be an AppendOrigin")
        rows = self._gathering.rows
        while True:
            self._guard.check_usable()
            config = self._core.config
            batch = check_produced(data, config=config, origin=origin, now_ms=self._now_ms())
            with self._guard.own_lock(), self._guard as core:
                core.check_leader_epoch(leader_epoch)
                if core.role is Role.FOLLOWER:
                    core.check_no_replica()
                if rows.row_count:
                    self._gathering.drain_locked()
                if batch is None:
                    return None
                if core.config is not config:
                    continue  # the new rules may refuse it or store it differently
                planned = place_produced(
                    batch, base_offset=core.log_end_offset, leader_epoch=core.leader_epoch
                )
                result = core.append_planned(planned, origin, self._now_ms())
                break
        if core.config.flush_messages != UNLIMITED:
            self._durability.wait_if_due(result.last_offset + 1)
        return result

    def append_replicated(self, data: Bytes, *, leader_epoch: int | None = None) -> AppendResult | None:
        """See :meth:`.Log.append_replicated`."""
        check_epoch(leader_epoch)
        data = check_buffer(data)
        self._guard.check_usable()
        planned = check_replicated(data)
        with self._guard.own_lock(), self._guard as core:
            self._gathering.drain_locked()
            if planned is not None and leader_epoch is not None:
                if leader_epoch < core.leader_epoch:
                    core.check_leader_epoch(leader_epoch)
                planned = planned.up_to_epoch(leader_epoch)
            if planned is None:
                return None
            now_ms = self._now_ms()
            try:
                check_follows(planned, core.log_end_offset)
            except OutOfOrderError:
                if not self._begins_anew_locked(planned):
                    raise
                self._start_over_locked(planned, now_ms)
            may_have_gaps = self._context.home.may_have_gaps(core.partition, core.config, core.stored_role)
            has_gap = not may_have_gaps and planned.has_gap_from(core.log_end_offset)
            result = core.append_planned(planned, AppendOrigin.REPLICATION, now_ms)
            if has_gap:  # above the recovery point it would look like lost data
                self._durability.checkpoint_locked()
                self._context.home.store_checkpoints()
            core.follow_epochs()
        if self._context.lines:
            self._context.lines.tell()
        self._durability.wait_if_due(result.last_offset + 1)
        return result

    def _begins_anew_locked(self, planned: PlannedAppend) -> bool:
        """Whether the log is empty and its end lies within the leader's batches, which begin earlier."""
        core = self._core
        end = core.log_end_offset
        return core.log_start_offset == end and planned.base_offset < end <= planned.last_offset

    def _start_over_locked(self, planned: PlannedAppend, now_ms: int) -> None:
        core = self._core
        reason = f"the leader's log begins at {planned.base_offset}"
        gone = core.start_over(planned.base_offset, core.log_end_offset, now_ms, reason)
        self._removal.schedule_locked(gone)

    def append_end_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        coordinator_epoch: int | None = None,
    ) -> AppendResult:
        """See :meth:`.Log.append_end_marker`."""
        check_end_marker(producer_id, producer_epoch, 0 if coordinator_epoch is None else coordinator_epoch)
        if committed is not True and committed is not False:
            committed = check_flag(committed, "committed")
        with self._guard.own_lock(), self._guard as core:
            if core.role is Role.FOLLOWER:
                core.check_no_replica()
            if self._gathering.rows.row_count:
                self._gathering.drain_locked()
            if coordinator_epoch is None:
                known = core.producers.state_of(producer_id)
                coordinator_epoch = 0 if known is None else max(known.coordinator_epoch, 0)
            now_ms = self._now_ms()
            marker = encode_end_marker(
                base_offset=core.log_end_offset,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                control_type=ControlType.COMMIT if committed else ControlType.ABORT,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=now_ms,
                partition_leader_epoch=core.leader_epoch,
            )
            planned = PlannedAppend([marker], [decode_header(marker)], (not committed, coordinator_epoch))
            result = core.append_planned(planned, AppendOrigin.COORDINATOR, now_ms)
        if core.config.flush_messages != UNLIMITED:
            self._durability.wait_if_due(result.last_offset + 1)
        return result

    # Adopted batches

    def adopt(
        self,
        batches: Sequence[NewBatch],
        *,
        producer: ProducerIdentity,
        flush: bool = False,
        was_checked: bool = False,
    ) -> range:
        """See :meth:`.Log.adopt`."""
        if self._guard.is_closed or self._fork_flag.is_forked:
            self._guard.check_usable()
        flush, was_checked = check_flags(flush=flush, was_checked=was_checked)
        if type(batches) is not list:
            batches = list_of(batches)
        check_producer(producer)
        if producer.transactional:
            raise UsageError("adopted batches cannot be part of a transaction")
        now_ms = self._now_ms()
        headers = check_adopted(batches, self._core.config, now_ms, by_rules=not was_checked)
        with self._guard.own_lock(), self._guard as core:
            if self._gathering.rows.row_count:
                self._gathering.drain_locked()
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
                leader_epoch=core.leader_epoch,
                now_ms=now_ms,
            ):
                core.write(planned, AppendOrigin.CLIENT, now_ms)
            core.after_append()
            end_offset = core.log_end_offset
        if flush:
            self._durability.commit.wait_until_durable(end_offset)
        elif core.config.flush_messages != UNLIMITED:
            self._durability.wait_if_due(end_offset)
        return range(base_offset, end_offset)

    def adopt_file(self, path: PathLike) -> range:
        """See :meth:`.Log.adopt_file`."""
        self._guard.check_usable()
        files, path = self._context.files, check_path(path)
        if files.absolute(path).rpartition("/")[0] == self._directory:
            raise UsageError(f"{path} is in the log's own directory; adopt a file from another directory")
        headers = headers_of_file(files, path)
        planned = PlannedAppend([b""] * len(headers), headers)
        with self._guard.own_lock(), self._guard as core:
            self._gathering.drain_locked()
            self._check_placed_locked(planned)
            self._durability.flush_now_locked()
            core.adopt_segment(path, planned, self._now_ms())
            core.after_append()
        self._durability.wait_if_due(planned.last_offset + 1)
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
                "each other"
            )
        for header in planned.headers:
            if header.partition_leader_epoch != core.leader_epoch:
                raise OutOfOrderError(
                    f"leader epoch {header.partition_leader_epoch} is not the current {core.leader_epoch}"
                )
        self._check_follows_locked(
            ProducerIdentity(first.producer_id, first.producer_epoch, first.base_sequence)
        )

    def _check_follows_locked(self, producer: ProducerIdentity) -> None:
        """Check that the sequence follows. A duplicate is refused too: the batches behind it may be new."""
        state = self._core.producers.state_of(producer.producer_id)
        if state is None or state.producer_epoch != producer.producer_epoch:
            return
        if producer.base_sequence != state.next_sequence:
            raise OutOfOrderError(
                f"producer {producer.producer_id} epoch {producer.producer_epoch}: sequence "
                f"{producer.base_sequence} is out of order; the next must be {state.next_sequence}"
            )

    # Producers

    def last_of_producer(self, producer_id: int) -> LastOfProducer | None:
        """See :meth:`.Log.last_of_producer`."""
        if type(producer_id) is not int:
            raise UsageError(
                f"producer_id is {shown(producer_id)}; it must be a whole number"
                + how_to_make_int(producer_id)
            )
        with self._guard.own_lock(), self._guard as core:
            if self._gathering.rows.row_count:
                self._gathering.drain_locked()
            state = core.producers.state_of(producer_id)
        if state is None:
            return None
        return LastOfProducer(state.next_sequence, state.batches[-1].last_offset if state.batches else -1)

    def open_transactions(self) -> dict[int, tuple[int, int]]:
        """See :meth:`.Log.open_transactions`."""
        with self._guard.own_lock():
            states = self._core.producers.active_producers()
        return {
            producer_id: (state.producer_epoch, state.transaction_first_offset)
            for producer_id, state in states.items()
            if state.transaction_first_offset is not None
        }

    def open_transaction_epoch(self, producer_id: int) -> int | None:
        """The producer's epoch in its open transaction; None if it has none."""
        with self._guard.own_lock():
            state = self._core.producers.state_of(producer_id)
            is_open = state is not None and state.transaction_first_offset is not None
            return state.producer_epoch if state is not None and is_open else None

    def active_producers(self) -> tuple[ActiveProducer, ...]:
        """See :meth:`.Log.active_producers`."""
        with self._guard.own_lock(), self._guard as core:
            self._gathering.drain_locked()
            states = core.producers.active_producers()
        return tuple(
            ActiveProducer(
                producer_id,
                state.producer_epoch,
                state.last_sequence,
                state.timestamp_ms,
                state.coordinator_epoch,
                state.transaction_first_offset,
            )
            for producer_id, state in sorted(states.items())
        )
