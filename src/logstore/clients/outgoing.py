"""A batch on its way: records gather in it, it is encoded once, and sent until it is delivered or has failed.

Lock: ``_lock`` of a batch guards who waits for its outcome. No callback runs with it held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from logstore.arguments import check_callable
from logstore.errors import LogstoreError, RetriableError, UsageError
from logstore.format.batch import decode_batch
from logstore.format.gathered import RowRules
from logstore.format.loops import GatheredRows
from logstore.model import ProducerIdentity, TopicPartition
from logstore.partition.arguments import check_timeout
from logstore.warning import warn

OnDelivery = Callable[["Delivered | None", "LogstoreError | None"], object]
"""Called once for its record: with where it is, or with the error."""

NO_OFFSET: Final = -1


class Delivered(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int
    """-1 if the broker was not asked (``acks=0``), or has had the record and no longer knows where it is: it
    was sent again after the log had been reopened."""
    timestamp_ms: int


class OutgoingBatch:
    """Records of one partition."""

    __slots__ = (
        "_base_offset",
        "_callbacks",
        "_changed",
        "_error",
        "_lock",
        "_log_append_time_ms",
        "_stamps",
        "attempts",
        "created_ms",
        "data",
        "gather",
        "is_done",
        "is_driven_here",
        "is_forgotten",
        "is_told",
        "number",
        "partition",
        "producer",
        "record_count",
        "rows",
        "size_bytes",
        "was_reported",
    )

    def __init__(
        self, partition: TopicPartition, rules: RowRules, max_record_bytes: int, created_ms: int
    ) -> None:
        self.partition = partition
        self.rows = GatheredRows(rules, max_record_bytes)
        self.gather = self.rows.gather
        """Adds an ordinary record and returns its number, without a lock; None if it cannot."""
        self.created_ms = created_ms
        """By the monotonic clock."""
        self.data: bytearray | memoryview = bytearray()
        """The encoded batch, once it is closed."""
        self.record_count = 0
        """How many records a closed batch has."""
        self.size_bytes = 0
        self.number = -1
        """Rises from batch to batch of the partition."""
        self.producer: ProducerIdentity | None = None
        """With which it was stamped."""
        self.attempts = 0
        self.is_done = False
        self.is_driven_here: Callable[[], bool] = lambda: False
        """See :attr:`.Accumulator.is_driven_here`."""
        self.is_forgotten = False
        """Whether it takes no memory of the producer's any more."""
        self.is_told = False
        """Whether the callbacks have returned, too."""
        self.was_reported = False
        """Whether a caller was told of the error."""
        self._base_offset = NO_OFFSET
        self._log_append_time_ms = -1
        self._error: LogstoreError | None = None
        self._lock = threading.Lock()
        self._changed: threading.Condition | None = None
        """Made when a thread waits."""
        self._stamps: list[int] | None = None
        self._callbacks: list[tuple[int, OnDelivery]] = []

    def is_full_for(self, size_bytes: int, rules: RowRules) -> bool:
        """Whether a record of so many bytes belongs into the next batch, whatever memory there is."""
        return bool(self.rows.row_count) and self.rows.size_bytes + size_bytes > rules.limit_bytes

    # The outcome

    def succeed(self, base_offset: int, log_append_time_ms: int) -> None:
        """The records are delivered."""
        self._base_offset, self._log_append_time_ms = base_offset, log_append_time_ms
        self._finish()

    def fail(self, error: LogstoreError) -> None:
        """The records will not be delivered, or it is not known whether they are."""
        self._error = error
        self._finish()

    def _finish(self) -> None:
        with self._lock:
            self.is_done = True
            callbacks, self._callbacks = self._callbacks, []
            if self._changed is not None:
                self._changed.notify_all()
        try:
            for number, callback in callbacks:
                self._tell(number, callback)
        finally:
            with self._lock:
                self.is_told = True
                if self._changed is not None:
                    self._changed.notify_all()

    def _tell(self, number: int, callback: OnDelivery) -> None:
        try:
            if self._error is None:
                callback(self.outcome(number), None)
            else:
                self.was_reported = True
                callback(None, self._error)
        except Exception as error:
            warn("the callback of a record of %s failed: %s", self.partition, error)

    def call_when_done(self, number: int, callback: OnDelivery) -> None:
        """Call ``callback`` with the outcome of a record; now, if there is one."""
        with self._lock:
            if not self.is_done:
                self._callbacks.append((number, callback))
                return
        self._tell(number, callback)

    def wait(self, timeout: float | None) -> bool:
        """Whether there is an outcome, after so many seconds at most."""
        return self._wait_for(lambda: self.is_done, timeout)

    def wait_until_told(self, timeout: float | None) -> bool:
        """Whether there is an outcome and the callbacks have returned, after so many seconds at most."""
        return self._wait_for(lambda: self.is_told, timeout)

    def _wait_for(self, is_there: Callable[[], bool], timeout: float | None) -> bool:
        with self._lock:
            if self._changed is None and not is_there():
                self._changed = threading.Condition(self._lock)
            return self._changed is None or self._changed.wait_for(is_there, timeout)

    def outcome(self, number: int) -> Delivered:
        """Where a record is.

        Raises:
            LogstoreError: it was not delivered.
        """
        if self._error is not None:
            self.was_reported = True
            raise self._error
        offset = NO_OFFSET if self._base_offset < 0 else self._base_offset + number
        if self._log_append_time_ms >= 0:
            stamp_ms = self._log_append_time_ms
        else:
            if self._stamps is None:
                self._stamps = [record.timestamp_ms for record in decode_batch(self.data)]
            stamp_ms = self._stamps[number]
        return Delivered(self.partition.topic, self.partition.partition, offset, stamp_ms)

    @property
    def error(self) -> LogstoreError | None:
        """Why the records were not delivered."""
        return self._error


class Sent:
    """A record that was handed to a producer. Keeps its batch in memory while it is kept."""

    __slots__ = ("_batch", "_number")

    def __init__(self, batch: OutgoingBatch, number: int) -> None:
        self._batch = batch
        self._number = number

    def result(self, timeout: float | None = None) -> Delivered:
        """Wait until the record is delivered, and return where it is.

        Args:
            timeout: how many seconds to wait at most.

        Raises:
            RetriableError: the time is over; the record is still on its way.
            UsageError: called from a callback of the same producer, for a record that is still on its way:
                it would wait for itself; or ``timeout`` is no number of seconds, 0 or above.
            LogstoreError: it was not delivered.
        """
        if not self._batch.is_done and self._batch.is_driven_here():
            raise UsageError(
                "result() of a record that is still on its way cannot be called from a callback: it would "
                "wait for itself; add_callback() tells of the record"
            )
        if not self._batch.wait(None if timeout is None else check_timeout(timeout)):
            raise RetriableError(
                f"a record for {self._batch.partition} is not delivered after {timeout:g} s; it is tried on"
            )
        return self._batch.outcome(self._number)

    @property
    def is_done(self) -> bool:
        """Whether the record is delivered, or has failed."""
        return self._batch.is_done

    def add_callback(self, callback: OnDelivery) -> None:
        """Call ``callback(delivered, error)`` when the record is delivered or has failed: one of the two is
        None. It runs in the thread that learns of it, or in this one, and must be short.

        Raises:
            UsageError: it is no function.
        """
        check_callable(callback, "callback")
        self._batch.call_when_done(self._number, callback)

    def __repr__(self) -> str:
        state = "delivered" if self._batch.is_done and self._batch.error is None else "on its way"
        return f"<Sent to {self._batch.partition}: {'failed' if self._batch.error else state}>"
