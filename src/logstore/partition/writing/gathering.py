"""Single appends gather into batches, and are written in time.

Each append gets its offset at once, and its row waits until there are enough rows, or until the linger time
is over. Rows are checked before they gather, so that only the disk can refuse them. Most appends do not even
take the lock: the first of a batch takes it, starts the linger time and opens a gate. While the gate is open
the compiled :class:`GatheredRows` does the rest of an append in one step.

Three mechanisms keep a row from lingering longer than its time. A thread of the scheduler, which never waits
for the disk, writes what is due. An append that finds its own log's rows overdue writes them. And each append
that begins a batch writes the overdue rows of two other logs, so appends cannot outrun the writing.

If a program ends without closing its logs, gathered rows are written on the way out: the background thread
would do so within the linger time, but it dies with the program. What a finalizer appends after that is
written at once. Nothing is flushed, and the next open finds the same as after a killed process. A process
that ends without its exit functions (a signal, ``os._exit``) loses the gathered rows.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Sequence
from typing import Any

from logstore.clock import SystemClock
from logstore.config import UNLIMITED, TopicConfig
from logstore.errors import LogstoreError, RetriableError, StorageError
from logstore.format.batch import NewBatch
from logstore.format.gathered import Row, record_bytes
from logstore.format.loops import GatheredRows
from logstore.model import Role, TopicPartition
from logstore.partition.encoding.planning import check_keys, check_timestamps
from logstore.partition.encoding.row_encoder import RowEncoder
from logstore.partition.encoding.rows import (
    check_headers,
    check_payload,
    check_timestamp_types,
    plain_timestamp,
)
from logstore.partition.state.context import LogContext
from logstore.partition.writing.growth import MAX_OFFSET, beyond_last
from logstore.partition.writing.guard import Guard
from logstore.schedule import Task
from logstore.turns import take_if_free
from logstore.warning import warn

_NEVER_MS = 2**62
_LAST_FREE_OFFSET = MAX_OFFSET - 2**32
"""Up to this log end no number of gathered rows can reach the largest offset."""
_RETRY_MS = 1_000
"""Gathered records that the disk refused are tried again this often."""


class Gathering:
    """The single appends of one log."""

    def __init__(
        self,
        context: LogContext,
        partition: TopicPartition,
        guard: Guard,
        encoder: RowEncoder,
        rows: GatheredRows,
    ) -> None:
        self._context = context
        self._partition = partition
        self._guard = guard
        self._core = guard.core
        self.encoder = encoder
        """Encodes by the topic's current settings."""
        self.rows = rows
        """The gathered rows. Their gate is open while ordinary rows may be added without the lock."""
        self._now_ms = context.clock.now_ms
        self._fork_flag = context.fork_flag
        self.given_now_ms = None if type(context.clock) is SystemClock else context.clock.now_ms
        """The time of a clock that is not the system's. None: the caller may read the system clock itself."""
        self._linger_pending = False
        self._linger_task: Task | None = None
        """Made when the first row lingers: most logs of a large store have none."""
        self._linger_due_ms = -1
        """No row is overdue before this time."""
        self._gate_until_ms = _NEVER_MS
        """The wall-clock time from which an append must write the gathered rows."""
        self.owes_help = False
        """Whether the last append began a batch, and must now write overdue rows of other logs."""

    def use(self, config: TopicConfig) -> None:
        """Encode by other settings from now on. Call it with the lock held and nothing gathering."""
        self.encoder = RowEncoder(self._context.config, config)
        self.rows.use_rules(self.encoder.rules, self.encoder.max_record_bytes)

    # Coming in

    def append(self, value: Any, key: Any, headers: Any, timestamp_ms: Any) -> int:
        """Append one record when the gate is closed, and open the gate; or append a record that needs a
        closer look. Returns its offset."""
        now_ms = self._now_ms()
        guard = self._guard
        # In a forked child the lock stays held.
        is_within = guard.is_held_here() or guard.is_home_used_here()
        if not (guard.is_closed or self._fork_flag.is_forked or is_within):
            with guard.lock:
                try:
                    if not (guard.is_closed or guard.failure is not None or self._core.role is Role.FOLLOWER):
                        if now_ms >= self._gate_until_ms and self.rows.row_count:
                            self._write_overdue_locked(now_ms)
                        if self._core.log_end_offset > _LAST_FREE_OFFSET:
                            self._check_room_locked()
                        number = self.rows.add(value, key, headers, timestamp_ms, now_ms)
                        if number >= 0:
                            offset = self._after_gathering_locked(number)
                            if self._core.waits.interrupt is not None:
                                self._core.waits.raise_interrupt()
                            return offset
                except BaseException as error:
                    if not self.rows.has_failed:  # nothing was written, or all: an interrupt does no harm
                        self._core.harmless = error
                    self._guard.poison_if_unexpected(error)
                    raise
        return self._append_closely(value, key, headers, timestamp_ms, now_ms)

    def _after_gathering_locked(self, number: int) -> int:
        """Have the newest row written in time, and let others follow without the lock. Returns its offset."""
        core = self._core
        offset = core.log_end_offset + number
        if not number:
            core.note_gathering()
        if not self._linger_pending:
            self._write_soon_locked()
        may_be_many = core.log_end_offset <= _LAST_FREE_OFFSET and core.config.flush_messages == UNLIMITED
        if self._linger_pending and may_be_many:
            self.rows.open_gate(core.log_end_offset, self._gate_until_ms)
            if self._guard.is_closed or self._guard.failure is not None:  # since, without the lock
                self.rows.close_gate()
        return offset

    def _check_room_locked(self) -> None:
        """
        Raises:
            OffsetOutOfRangeError: there is no offset for another row. Gathered, it could never be written,
                and nothing else would be either.
        """
        offset = self._core.log_end_offset + self.rows.row_count
        if offset >= MAX_OFFSET:
            raise beyond_last(self._partition, offset)

    def _append_closely(self, value: Any, key: Any, headers: Any, timestamp_ms: Any, now_ms: int) -> int:
        """Append a record that is not ordinary: it is wrong, its type must be copied, or the batch is
        full."""
        value = check_payload("value", value)
        key = check_payload("key", key)
        headers = check_headers(headers)
        if timestamp_ms is not None:
            timestamp_ms = plain_timestamp(timestamp_ms)
            check_timestamp_types((timestamp_ms,))
        size = record_bytes(key, value, headers)
        row = (key, value, now_ms if timestamp_ms is None else timestamp_ms, headers)
        with self._guard.own_lock(), self._guard as core:
            if core.role is Role.FOLLOWER:
                core.check_no_replica()
            if timestamp_ms is not None:
                check_timestamps((timestamp_ms,), core.config, now_ms, by_unit=True)
            if key is None and core.config.compacts:
                check_keys((key,))
            gathered = self.rows
            if size > gathered.max_record_bytes:
                return self._append_alone_locked(row)
            if core.log_end_offset > _LAST_FREE_OFFSET:
                self._check_room_locked()
            if gathered.must_drain_before(size):
                self.drain_locked()
            return self._after_gathering_locked(gathered.put(row, size))

    def _append_alone_locked(self, row: Row) -> int:
        """Append a record of unusual size as a batch of its own: only encoding shows whether it fits."""
        key, value, stamp_ms, headers = row
        now_ms = self._now_ms()
        batches = self.encoder.encode([(key, value, stamp_ms, headers)], now_ms, None)
        self.drain_locked()
        return self._core.append(batches, now_ms).base_offset

    # In time

    def _write_soon_locked(self) -> None:
        """Write the newest row after the linger time at the latest, or now without linger time."""
        try:
            if self._context.config.linger_ms > 0 and not sys.is_finalizing():  # then nothing writes later
                self._linger_after_locked(self._context.config.linger_ms)
            else:
                self.drain_locked()
        except BaseException:
            if self.rows.row_count:  # else it was written, and an interrupt came meanwhile
                self.rows.remove_last()
            raise

    def _write_overdue_locked(self, now_ms: int) -> None:
        """Write rows that are overdue because this thread has kept the writing thread from running: the
        interpreter switches threads only every 5 ms. The next rows get a full linger time."""
        self.drain_locked()
        linger_ms = self._context.config.linger_ms
        self._gate_until_ms = now_ms + linger_ms
        self._linger_due_ms = self._context.clock.monotonic_ms() + linger_ms

    def _linger_after_locked(self, delay_ms: int) -> None:
        self._linger_pending = True
        try:
            self._linger_for(delay_ms)
        except BaseException:  # no thread could start, or interrupted: the next append asks again
            self._linger_pending = False
            raise
        if self.given_now_ms is None:  # with a manual clock, the test decides how the program ends
            self.owes_help = True
            self._gate_until_ms = self._now_ms() + delay_ms
            _remember(self)

    def _linger_for(self, delay_ms: int) -> None:
        task = self._linger_task
        if task is None:
            task = self._linger_task = Task(f"write {self._partition}", self._linger, None)
        self._context.scheduler.promptly(delay_ms, task)

    def _linger(self) -> None:
        """Write the rows that linger. Never waits for the lock: a thread that holds it for long has written
        the gathered rows first, and no more gather until it is done."""
        taken: list[bool] = []
        try:
            is_within_change = self._guard.is_held_here()  # which has begun the task by a signal handler
            if is_within_change or not take_if_free(self._guard.lock.acquire, taken):
                self._linger_for(1)
                return
            left_ms = self._linger_due_ms - self._context.clock.monotonic_ms()
            if left_ms > 0 and self.rows.row_count:
                self._linger_for(left_ms)
            else:
                self._write_lingering_locked(may_wait=False)
        finally:
            if taken:
                self._guard.lock.release()

    def _linger_behind_flush(self) -> None:
        """Like :meth:`_linger`, but may wait for the disk."""
        with self._guard.lock:
            self._write_lingering_locked(may_wait=True)

    def _write_lingering_locked(self, *, may_wait: bool) -> None:
        self._linger_pending = False
        if self._guard.is_closed or self._guard.failure is not None:
            return
        core = self._core
        core.may_wait, core.has_put_off = may_wait, False
        try:
            with self._guard:
                self.drain_locked()
        except RetriableError:
            if not core.has_put_off:
                raise
            self.rows.has_failed = False
            self._linger_pending = True
            name = f"write {self._partition}"
            self._context.scheduler.after(0, name, self._linger_behind_flush, is_waiting=True)
            return
        except BaseException:
            if self.rows.row_count and self._guard.failure is None:
                self._linger_after_locked(_RETRY_MS)
            raise
        finally:
            core.may_wait = True
        _forget(self)  # only now: the program may end during the write

    def write_at_exit(self) -> None:
        """Write the gathered rows when the program ends without closing the log."""
        if not self._fork_flag.is_forked:  # a forked child may never get the lock
            self._linger_behind_flush()

    # Going out

    def drain_locked(self) -> None:
        """Write the gathered rows as one batch. After an error they stay gathered."""
        gathered = self.rows
        gathered.close_gate()
        if not gathered.row_count:
            return
        gathered.has_failed = True
        now_ms = self._now_ms()
        self._core.append_gathered(self._encode_gathered(now_ms), now_ms, gathered.clear)

    def _encode_gathered(self, now_ms: int) -> Sequence[NewBatch]:
        try:
            return self.encoder.encode_gathered(self.rows, now_ms)
        except BaseException as error:
            self._core.unbegun = error
            raise

    def drain(self) -> None:
        """Write the gathered rows.

        Raises:
            StorageError: the disk refused. The rows stay gathered.
        """
        with self._guard.own_lock(), self._guard:
            self.drain_locked()

    def write_before_waiting_locked(self) -> None:
        """Write the gathered rows before a change that waits for the disk: a kill during the wait must not
        lose them. If the disk refuses, the next append and the next flush report it."""
        gathered = self.rows
        has_failed = gathered.has_failed
        try:
            self.drain_locked()
        except StorageError:
            gathered.has_failed = has_failed


# The end of the program -------------------------------------------------------------------------------------

_gathering: weakref.WeakSet[Gathering] = weakref.WeakSet()


def _remember(gathering: Gathering) -> None:
    """Have its rows written at the end of the program, unless :func:`_forget` comes first."""
    _gathering.add(gathering)


def _forget(gathering: Gathering) -> None:
    """All its rows are written."""
    _gathering.discard(gathering)


def _write_all() -> None:
    for gathering in list(_gathering):
        try:
            gathering.write_at_exit()
        except LogstoreError as error:
            warn("gathered appends are lost at the end of the program: %s", error)


atexit.register(_write_all)
