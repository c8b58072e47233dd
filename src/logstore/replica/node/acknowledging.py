"""Batches that are in the leader's log, and wait until all in-sync replicas have them.

Lock: ``_lock`` guards how many are left. Nothing is called with it held.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Promise
from logstore.broker.requests import ProducedPartition, ProduceResult
from logstore.replica.node.partition import PartitionReplica
from logstore.schedule import Scheduler, Task


class Awaited(NamedTuple):
    """One batch."""

    number: int
    """Which of the outcomes is its."""
    replica: PartitionReplica
    next_offset: int
    leader_epoch: int


class Acknowledgement:
    """One request's. :attr:`promise` is completed when all of it is decided, or time is over."""

    def __init__(
        self,
        scheduler: Scheduler,
        outcomes: list[ProducedPartition],
        awaited: Sequence[Awaited],
        timeout_ms: int,
    ) -> None:
        self.promise: Promise[ProduceResult] = Promise()
        self._outcomes = outcomes
        self._lock = threading.Lock()
        self._left = {each.number for each in awaited}
        self._task = Task("acknowledge a produce request", self._expire, None)
        scheduler.promptly(max(timeout_ms, 0), self._task)
        for each in awaited:
            each.replica.when_replicated(
                each.next_offset,
                each.leader_epoch,
                lambda code, number=each.number: self._finish(number, code),  # type: ignore[misc]
            )

    def _finish(self, number: int, code: ErrorCode) -> None:
        with self._lock:
            if number not in self._left:
                return
            self._left.discard(number)
            if code is not NONE:
                self._refuse_locked(number, code, "another replica leads now, and may not have the batch")
            is_last = not self._left
        if is_last:
            self._complete()

    def _refuse_locked(self, number: int, code: ErrorCode, why: str) -> None:
        partition = self._outcomes[number].partition
        self._outcomes[number] = ProducedPartition(partition, code, message=why)

    def _expire(self) -> None:
        with self._lock:
            late, self._left = self._left, set()
            for number in late:
                why = "the batch is in the leader's log, and not in all in-sync replicas in time"
                self._refuse_locked(number, ErrorCode.REQUEST_TIMED_OUT, why)
        if late:
            self._complete()

    def _complete(self) -> None:
        self._task.cancel()
        self.promise.complete(ProduceResult(tuple(self._outcomes)))
