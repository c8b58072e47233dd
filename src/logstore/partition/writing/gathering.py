"""Single appends gather into batches, and are written in time.

Each gets its offset at once, and its row waits until there are enough of them, or until the linger time is
over. Rows are checked before they gather, so that only the disk can refuse them. Most need not even take the
lock: the first of a batch takes it, sees to the linger time and opens a gate, and while that is open the
compiled :class:`GatheredRows` does the rest of an append in one step.

Three see to it that no row lingers for longer than its time. A thread of the scheduler, which never waits for
the disk, writes what is due. The append that finds its own log's rows overdue writes them. And each append
that begins a batch writes two of other logs, if they are overdue: appends cannot outrun the writing.

At the end of a program that has not closed its logs, what still gathers is written on the way out: the
background thread would do so within the linger time, but it dies with the program. No more than that is done:
nothing is flushed, and the next open finds what a killed process leaves. A process that ends without its exit
functions (a signal, ``os._exit``) loses what was gathering.
"""

from __future__ import annotations

import atexit
import weakref
from typing import Any

from logstore.clock import SystemClock
from logstore.config import UNLIMITED, TopicConfig
from logstore.errors import LogstoreError, RetriableError, StorageError
from logstore.format.gathered import Row, record_bytes
from logstore.format.loops import GatheredRows
from logstore.model import TopicPartition
from logstore.partition.encoding.planning import check_keys, check_timestamps
from logstore.partition.encoding.row_encoder import RowEncoder
from logstore.partition.encoding.rows import (
    check_headers,
    check_payload,
    check_timestamp_types,
    plain_timestamp,
)
from logstore.partition.state.context import LogContext
from logstore.partition.writing.guard import Guard
from logstore.partition.writing.log_end import LogEnd
from logstore.schedule import Task
from logstore.turns import take_if_free
from logstore.warning import warn

_NEVER_MS = 2**62
_RETRY_MS = 1_000
"""Gathered records that the disk refused are tried again this often."""


class Gathering:
    """Of one log."""

    def __init__(
        self,
        context: LogContext,
        partition: TopicPartition,
        guard: Guard,
        log_end: LogEnd,
        encoder: RowEncoder,
        rows: GatheredRows,
    ) -> None:
        self._context = context
        self._partition = partition
        self._guard = guard
        self._core = guard.core
        self._log_end = log_end
        self.encoder = encoder
        """By the topic's present settings."""
        self.rows = rows
        """What gathers. Its gate is open while ordinary rows may be added without the lock."""
        self._now_ms = context.clock.now_ms
        self._fork_flag = context.fork_flag
        self.given_now_ms = None if type(context.clock) is SystemClock else context.clock.now_ms
        """None: whoever can ask the machine's clock by himself does."""
        self._linger_pending = False
        self._linger_task = Task(f"write {partition}", self._linger, None)
        self._linger_due_ms = -1
        """Before it no row has lingered for its time."""
        self._gate_until_ms = _NEVER_MS
        """By the wall clock: when an append must write the rows that are there."""
        self.owes_help = False
        """Whether this append began a batch, and has to write some of other logs that are overdue."""

    def use(self, config: TopicConfig) -> None:
        """Encode by other settings from now on. With the lock, and nothing gathering."""
        self.encoder = RowEncoder(self._context.config, config)
        self.rows.use_rules(self.encoder.rules, self.encoder.max_record_bytes)

    # Coming in

    def append(self, value: Any, key: Any, headers: Any, timestamp_ms: Any) -> int:
        """Append one record while the gate is closed, and open it; or one that needs a closer look. Returns
        its offset."""
        now_ms = self._now_ms()
        if not (self._guard.is_closed or self._fork_flag.is_forked):  # in a forked child the lock stays held
            with self._guard.lock:
                try:
                    if not (self._guard.is_closed or self._guard.failure is not None):
                        if now_ms >= self._gate_until_ms and self.rows.row_count:
                            self._write_overdue_locked(now_ms)
                        number = self.rows.add(value, key, headers, timestamp_ms, now_ms)
                        if number >= 0:
                            return self._after_gathering_locked(number)
                except BaseException as error:
                    if self.rows.has_failed:  # else nothing was written, and an interrupt is no harm
                        self._guard.poison_if_unexpected(error)
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
            self.rows.open_gate(core.log_end_offset, self._gate_until_ms)
            if self._guard.is_closed or self._guard.failure is not None:  # since, without the lock
                self.rows.close_gate()
        return offset

    def _append_closely(self, value: Any, key: Any, headers: Any, timestamp_ms: Any, now_ms: int) -> int:
        """Append one record about which something is out of the ordinary: it is wrong, or of a type that is
        copied, or the batch is full."""
        value = check_payload("value", value)
        key = check_payload("key", key)
        headers = check_headers(headers)
        if timestamp_ms is not None:
            timestamp_ms = plain_timestamp(timestamp_ms)
            check_timestamp_types((timestamp_ms,))
        size = record_bytes(key, value, headers)
        row = (key, value, now_ms if timestamp_ms is None else timestamp_ms, headers)
        with self._guard.own_lock(), self._guard as core:
            if timestamp_ms is not None:
                check_timestamps((timestamp_ms,), core.config, now_ms, by_unit=True)
            if key is None and core.config.compacts:
                check_keys((key,))
            gathered = self.rows
            if size > gathered.max_record_bytes:
                return self._append_alone_locked(row)
            if gathered.must_drain_before(size):
                self.drain_locked()
            return self._after_gathering_locked(gathered.put(row, size))

    def _append_alone_locked(self, row: Row) -> int:
        """A record of unusual size is a batch of its own: only encoding it tells whether it fits."""
        key, value, stamp_ms, headers = row
        batches = self.encoder.encode([(key, value, stamp_ms, headers)], self._now_ms(), None)
        self.drain_locked()
        return self._log_end.write(batches).base_offset

    # In time

    def _write_soon_locked(self) -> None:
        """Write the newest row after the linger time at the latest; now, if there is none."""
        try:
            if self._context.config.linger_ms > 0:
                self._linger_after_locked(self._context.config.linger_ms)
            else:
                self.drain_locked()
        except BaseException:
            self.rows.remove_last()
            raise

    def _write_overdue_locked(self, now_ms: int) -> None:
        """Rows have lingered for their time, and this thread has kept the one that was to write them from
        running: the interpreter lets others in every 5 ms only. What comes next lingers anew."""
        self.drain_locked()
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
        if self.given_now_ms is None:  # with a clock set by hand the program ends as a test says
            self.owes_help = True
            self._gate_until_ms = self._now_ms() + delay_ms
            _remember(self)

    def _linger(self) -> None:
        """Write what lingers. Never waits for the lock: whoever holds it for long has written what gathered
        before it was there, and until then no more gathers."""
        taken: list[bool] = []
        try:
            if not take_if_free(self._guard.lock.acquire, taken):
                self._context.scheduler.promptly(1, self._linger_task)
                return
            left_ms = self._linger_due_ms - self._context.clock.monotonic_ms()
            if left_ms > 0 and self.rows.row_count:
                self._context.scheduler.promptly(left_ms, self._linger_task)
            else:
                self._write_lingering_locked(may_wait=False)
        finally:
            if taken:
                self._guard.lock.release()

    def _linger_behind_flush(self) -> None:
        """The same where the disk must be waited for."""
        with self._guard.lock:
            self._write_lingering_locked(may_wait=True)

    def _write_lingering_locked(self, *, may_wait: bool) -> None:
        self._linger_pending = False
        if self._guard.is_closed or self._guard.failure is not None:
            return
        core = self._core
        core.may_wait, core.has_put_off_roll = may_wait, False
        try:
            self.drain()
        except RetriableError:
            if not core.has_put_off_roll:
                raise
            self.rows.has_failed = False
            self._linger_pending = True
            name = f"roll {self._partition}"
            self._context.scheduler.after(0, name, self._linger_behind_flush, is_waiting=True)
            return
        except StorageError:
            self._linger_after_locked(_RETRY_MS)
            raise
        finally:
            core.may_wait = True
        _forget(self)  # not before: the program would end in the middle of it

    def write_at_exit(self) -> None:
        """Write what was gathered, since the program ends and the log was not closed."""
        if not self._fork_flag.is_forked:  # in a forked child the lock may never be released
            self._linger_behind_flush()

    # Going out

    def drain_locked(self) -> None:
        """Write what was gathered as one batch. On an error it stays gathered."""
        gathered = self.rows
        gathered.close_gate()
        if not gathered.row_count:
            return
        gathered.has_failed = True
        self._log_end.write(self.encoder.encode_gathered(gathered, self._now_ms()))
        gathered.clear()

    def drain(self) -> None:
        """Write what was gathered.

        Raises:
            StorageError: the disk refused. It stays gathered.
        """
        with self._guard.own_lock(), self._guard:
            self.drain_locked()

    def write_before_waiting_locked(self) -> None:
        """In front of a change that waits for the disk: a kill must not take what gathers meanwhile. A disk
        that refuses it says so to the next append and the next flush."""
        gathered = self.rows
        has_failed = gathered.has_failed
        try:
            self.drain_locked()
        except StorageError:
            gathered.has_failed = has_failed


# The end of the program -------------------------------------------------------------------------------------

_gathering: weakref.WeakSet[Gathering] = weakref.WeakSet()


def _remember(gathering: Gathering) -> None:
    """Ask it at the end of the program, unless it is forgotten before."""
    _gathering.add(gathering)


def _forget(gathering: Gathering) -> None:
    """It has written what it had."""
    _gathering.discard(gathering)


def _write_all() -> None:
    for gathering in list(_gathering):
        try:
            gathering.write_at_exit()
        except LogstoreError as error:
            warn("appends that were gathering are lost with the end of the program: %s", error)


atexit.register(_write_all)
