"""One partition of ``__consumer_offsets``: its log, and the table that says what the log says.

The log is the truth, and the table follows it: each look first applies what was appended since the last one,
by this object or by anybody else (another process, if the log is open for reading only). A log that was
opened again, cut or replaced is read again.

Lock: ``_lock`` guards the table, and is held while something is appended: two commits are in the table in the
order of the log. Never during an fsync.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from logstore.broker.internal_topic import InternalTopic, parts_of
from logstore.broker.offsets.replay import replay
from logstore.broker.offsets.table import OffsetTable, Row
from logstore.clock import Clock
from logstore.errors import RecordTooLargeError
from logstore.format.batch import encode_batch
from logstore.format.header import NO_EPOCH, NO_PRODUCER_ID
from logstore.format.names import OFFSETS_TOPIC
from logstore.model import AppendOrigin, ProducerIdentity
from logstore.partition.log import Log
from logstore.partition.watching.read_only import ReadOnlyLog

T = TypeVar("T")


class OffsetsPartition:
    """One partition, in memory and on disk."""

    def __init__(self, topic: InternalTopic, number: int, clock: Clock) -> None:
        self._topic = topic
        self._number = number
        self._clock = clock
        self._lock = threading.Lock()
        self._table = OffsetTable()
        self._log: Log | ReadOnlyLog | None = None
        """The log that the table was read from."""
        self._next_offset = 0
        """The first one that the table does not know."""
        self._looked_ms = 0

    @property
    def is_loaded(self) -> bool:
        """Whether a look costs no more than what was appended since the last one."""
        return self._log is not None and self._log is self._topic.log(self._number)

    def load(self) -> None:
        """Read the log, unless that was done.

        Raises:
            CorruptionError, UnsupportedVersionError: a record cannot be read.
        """
        self.look(lambda _: None)

    def look(self, action: Callable[[OffsetTable], T]) -> T:
        """The result of an action on the table, which then says all that the log says. The action must not
        wait.

        Raises:
            UnknownTopicError: the topic is not there, or the partition is not held here.
            CorruptionError, UnsupportedVersionError: a record cannot be read.
        """
        log = self._topic.log(self._number)  # first: in a forked child the lock may stay held
        with self._lock:
            self._follow_locked(log)
            return action(self._table)

    def append(
        self,
        rows: Sequence[Row],
        what: str,
        *,
        producer: ProducerIdentity | None = None,
        flush: bool = False,
    ) -> None:
        """Append rows as one batch: after a crash all of them are there, or none. ``what`` they are, an error
        says.

        Raises:
            RecordTooLargeError: they do not fit into one batch.
            StorageError: the disk refused: nothing was appended, or the flush failed.
        """
        log = self._topic.log_to_change(self._number)
        batch = self._encode(log, rows, what, producer)
        with self._lock:
            self._append_locked(log, batch, rows if producer is None else None)
        if flush:
            log.flush()

    def change(
        self,
        choose: Callable[[OffsetTable], Sequence[Row]],
        *,
        what: str = "changes",
        flush: bool = False,
    ) -> None:
        """Append the rows that are chosen of the table, which stays as it is meanwhile. In several batches
        if they are many. ``what`` they are, for an error.

        Raises:
            CorruptionError, UnsupportedVersionError: a record cannot be read.
            StorageError: the disk refused; some of them may have been appended.
        """
        log = self._topic.log_to_change(self._number)
        with self._lock:
            self._follow_locked(log)
            rows = choose(self._table)
            for part in parts_of(rows):
                self._append_locked(log, self._encode(log, part, what, None), part)
        if flush and rows:
            log.flush()

    def _encode(
        self, log: Log, rows: Sequence[Row], what: str, producer: ProducerIdentity | None
    ) -> bytearray:
        keys, values = zip(*rows, strict=True)
        batch = encode_batch(
            keys,
            values,
            self._clock.now_ms(),
            producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
            producer_epoch=NO_EPOCH if producer is None else producer.producer_epoch,
            transactional=producer is not None,
        )
        limit_bytes = min(log.config.max_message_bytes, log.config.segment_bytes)
        if len(batch) > limit_bytes:
            raise RecordTooLargeError(
                f"{what} would take {len(batch)} bytes in one batch, and topic {OFFSETS_TOPIC} allows "
                f"{limit_bytes} (max_message_bytes, segment_bytes): commit fewer partitions at a time, or "
                "shorter metadata"
            )
        return batch

    def _append_locked(self, log: Log, batch: bytearray, rows: Iterable[Row] | None) -> None:
        """What is not given as rows, or comes behind something that the table does not know yet, the next
        look reads from the log."""
        result = log.append_batch(batch, origin=AppendOrigin.COORDINATOR)
        assert result is not None
        if rows is not None and self._log is log and self._next_offset == result.base_offset:
            self._table.apply(rows, result.base_offset)
            self._next_offset = result.last_offset + 1

    def _follow_locked(self, log: Log | ReadOnlyLog) -> None:
        end = log.log_end_offset
        if log is self._log and end == self._next_offset:
            return
        now_ms = self._clock.monotonic_ms()
        # By the time that compaction may take a tombstone, one that was not seen would be missed.
        is_late = now_ms - self._looked_ms > log.config.delete_retention_ms // 2
        if log is not self._log or end < self._next_offset or is_late:
            self._table, self._next_offset = OffsetTable(), 0
        self._log = None  # until all went well
        self._next_offset = replay(log, self._table, self._next_offset, end)
        self._log, self._looked_ms = log, now_ms
