"""Reads a range of offsets from brokers, as columns.

The next answer is fetched while the last one is decoded. So a task holds two answers, and what it has decoded
of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.pending import Pending, wait_for
from logstore.broker.requests import FetchedPartition, FetchPartition, FetchRequest, FetchResult
from logstore.clients.received import ReceivedRecords
from logstore.errors import LogstoreError, OffsetOutOfRangeError, RetriableError
from logstore.format.loops import Columns
from logstore.model import Isolation, TopicPartition

if TYPE_CHECKING:
    from logstore.partition.reading.arrow import ColumnPlan

_WAIT_MS: Final = 500
"""Of a fetch. The range exists, so it is answered at once but for a leader that has just changed."""


class Fetching(NamedTuple):
    """Whom to ask, and how."""

    broker: Broker
    timeout_ms: int
    partition_bytes: int


class FetchedReading:
    """One pass over a range. See :class:`.Reading`."""

    def __init__(
        self,
        begin: Callable[[], Fetching],
        partition: TopicPartition,
        start: int,
        stop: int,
        isolation: Isolation,
    ) -> None:
        """``begin`` is called when the first records are wanted."""
        self._begin = begin
        self._partition = partition
        self._stop = stop
        self._isolation = isolation
        self._taken = start
        """The offset up to which everything is in the columns."""
        self._position = start

    @property
    def position(self) -> int:
        """The offset to continue from: everything below it was returned, or does not exist."""
        return self._position

    def columns(self, plan: ColumnPlan) -> Iterator[Any]:
        """The records as pyarrow record batches within the plan's limits.

        Raises:
            CorruptionError: a batch is damaged. Everything before it was returned.
            OffsetOutOfRangeError: the next records were deleted or cut off meanwhile.
            UnknownTopicError: the topic was deleted.
            RetriableError: the brokers do not answer in time.
        """
        columns = Columns(plan.wanted)
        try:
            for _ in self._fill(columns, plan):
                yield from self._finish(columns, plan)
        except LogstoreError:
            yield from self._finish(columns, plan)
            raise
        yield from self._finish(columns, plan)

    def _finish(self, columns: Columns, plan: ColumnPlan) -> Iterator[Any]:
        from logstore.partition.reading import arrow  # the driver plans without pyarrow

        if columns.row_count:
            batch = arrow.record_batch(columns.finish(), plan.schema)
            yield from arrow.split(batch, plan.row_limit, plan.byte_limit)
        self._position = self._taken

    def _fill(self, columns: Columns, plan: ColumnPlan) -> Iterator[None]:
        """Take the records in, and yield when the columns must be finished first."""
        fetching = self._begin()
        pending: Pending[FetchResult] | None = self._ask(fetching, self._taken)
        try:
            while pending is not None:
                fetched = self._answer(fetching, pending)
                following = self._stop if fetched is None else fetched.next_offset
                pending = self._ask(fetching, following) if following < self._stop else None
                if fetched is not None:
                    received = ReceivedRecords(fetched, self._taken, self._stop)
                    while not received.is_over:
                        taken = received.fill(columns, plan.row_limit, plan.byte_limit)
                        self._taken = max(self._taken, min(taken, self._stop))
                        if not received.is_over:
                            yield
                self._taken = min(following, self._stop)
        finally:
            if pending is not None:
                pending.cancel()

    def _ask(self, fetching: Fetching, offset: int) -> Pending[FetchResult]:
        wanted = FetchPartition(self._partition, offset, fetching.partition_bytes)
        request = FetchRequest(
            (wanted,), _WAIT_MS, max_bytes=fetching.partition_bytes, isolation=self._isolation
        )
        return fetching.broker.fetch(request)

    def _answer(self, fetching: Fetching, pending: Pending[FetchResult]) -> FetchedPartition | None:
        """What comes at ``_taken``; None if nothing is left of the range.

        Raises:
            OffsetOutOfRangeError: the log ends before the range does.
            LogstoreError: what the broker answers.
        """
        deadline = time.monotonic() + fetching.timeout_ms / 1000
        while True:
            result = wait_for(pending, (fetching.timeout_ms + _WAIT_MS) / 1000)
            if result is None:
                pending.cancel()
                raise RetriableError(f"{self._name()}: no broker has answered in {fetching.timeout_ms} ms")
            (fetched,) = result.partitions
            if fetched.error is not ErrorCode.NONE:
                raise error_of(fetched.error, f"{self._name()}: {fetched.message or fetched.error.name}")
            if fetched.data:
                return fetched
            end = self._end_of(fetched)
            if end >= self._stop:
                return None  # compaction has left a gap
            if time.monotonic() >= deadline:
                raise self._late(end)
            pending = self._ask(fetching, self._taken)  # a new leader may not know yet what is replicated

    def _late(self, end: int) -> LogstoreError:
        """``end``: where the log ends, -1 if no leader has told."""
        if end < 0:
            return RetriableError(f"{self._name()}: no leader has given anything in time")
        return OffsetOutOfRangeError(f"{self._name()}: the log ends at {end}")

    def _end_of(self, fetched: FetchedPartition) -> int:
        """Where the log ends for this reader; -1 if the leader has not answered yet."""
        if self._isolation is Isolation.COMMITTED:
            return fetched.last_stable_offset
        return fetched.high_watermark

    def _name(self) -> str:
        return f"offsets {self._taken} to {self._stop - 1} of {self._partition}"
