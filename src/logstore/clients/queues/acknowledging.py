"""What a worker says of its jobs, on its way to the broker. It may say it in any thread.

Locks: ``_sending`` is held by the thread that sends, also while it waits for the answer. ``_lock`` guards
what gathers; nothing is called with it held.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.pending import Pending
from logstore.broker.share.partition import Acknowledgement
from logstore.broker.share.requests import (
    AcknowledgeBatch,
    AcknowledgedPartition,
    AcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResult,
)
from logstore.clients.asking import ask
from logstore.clients.queues.job import Job
from logstore.clients.settings import QueueConfig
from logstore.clock import Clock
from logstore.errors import JobLostError, LogstoreError
from logstore.model import TopicPartition

_MOST_SHOWN = 4
_NOT_TOLD = (Acknowledgement.GAP, Acknowledgement.UNUSED)
"""The caller never had these."""
_Batches = dict[TopicPartition, list[AcknowledgeBatch]]


class Acknowledgements:
    """Of one worker. Accepted jobs gather here; all else is sent at once, with them."""

    def __init__(self, broker: Broker, group: str, member_id: str, config: QueueConfig, clock: Clock) -> None:
        self._broker = broker
        self._group = group
        self._member_id = member_id
        self._config = config
        self._clock = clock
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._accepted: list[Job] = []
        self._batches: _Batches = {}
        self._undurable: set[TopicPartition] = set()
        """Where something was taken in that is to be durable, and is not."""
        self._unanswered: tuple[Pending[ShareAcknowledgeResult], _Batches] | None = None
        self._sent_ms = -(2**62)

    def accept(self, job: Job, now_ms: int, *, may_gather: bool) -> None:
        """The job is done. Sent at once, unless it may gather and others were sent just before it.

        Raises:
            LogstoreError: as :meth:`send`.
        """
        with self._lock:
            self._accepted.append(job)
        if not may_gather or now_ms - self._sent_ms >= self._config.linger_ms:
            self.send()

    def add(self, partition: TopicPartition, batches: Iterable[AcknowledgeBatch]) -> None:
        """Something else to be sent with the next."""
        fresh = list(batches)
        if fresh:
            with self._lock:
                self._batches.setdefault(partition, []).extend(fresh)

    def give_back(self, jobs: list[Job]) -> None:
        """These were taken, and nothing was done with them."""
        for partition, offsets in _by_partition(jobs).items():
            self.add(partition, _runs(offsets, Acknowledgement.UNUSED))

    def send(self) -> None:
        """Send all, and wait for the answer.

        Raises:
            JobLostError: the lock of a job had run out; what was said of the others counts.
            LogstoreError: the broker could not store it. It is kept, and sent with the next.
            RetriableError: there was no answer in time. The next call goes on waiting for it.
        """
        with self._sending:
            if self._unanswered is not None:
                self._receive()
            if self._accepted or self._batches or self._undurable:
                self._send()

    def _send(self) -> None:
        with self._lock:
            accepted, self._accepted = self._accepted, []
            batches, self._batches = self._batches, {}
        for partition, offsets in _by_partition(accepted).items():
            batches.setdefault(partition, []).extend(_runs(offsets, Acknowledgement.ACCEPT))
        for partition in self._undurable:
            batches.setdefault(partition, [])
        request = ShareAcknowledgeRequest(
            self._group,
            self._member_id,
            tuple(AcknowledgePartition(each, tuple(said)) for each, said in batches.items()),
            self._config.is_durable,
        )
        self._unanswered = self._broker.share_acknowledge(request), batches
        self._receive()

    def _receive(self) -> None:
        assert self._unanswered is not None
        pending, batches = self._unanswered
        result = ask(pending, "take in what became of jobs", self._config)
        self._unanswered = None
        self._sent_ms = self._clock.monotonic_ms()
        self._check(result.partitions, batches)

    def _check(self, outcomes: Iterable[AcknowledgedPartition], batches: _Batches) -> None:
        self._undurable.clear()
        lost: list[str] = []
        failure: LogstoreError | None = None
        for outcome in outcomes:
            refused = [each for each in outcome.refused if each.kind not in _NOT_TOLD]
            lost += [f"{outcome.partition} offset {_shown(each)}" for each in refused]
            is_stored = outcome.error in (ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE)
            if not is_stored and (outcome.was_stored or not outcome.refused):
                if outcome.was_stored:
                    self._undurable.add(outcome.partition)
                else:
                    self.add(outcome.partition, batches[outcome.partition])
                message = outcome.message or outcome.error.name
                failure = failure or error_of(outcome.error, f"{outcome.partition}: {message}")
        if failure is not None:
            raise failure
        if lost:
            more = f" and {len(lost) - _MOST_SHOWN} more" if len(lost) > _MOST_SHOWN else ""
            raise JobLostError(
                f"queue {self._group!r}: {', '.join(lost[:_MOST_SHOWN])}{more}: the lock had run out before "
                "this was said, and another worker may have it; renew() in time keeps a job"
            )


def _shown(batch: AcknowledgeBatch) -> str:
    return str(batch.first) if batch.first == batch.last else f"{batch.first} to {batch.last}"


def _by_partition(jobs: list[Job]) -> dict[TopicPartition, list[int]]:
    """The offsets of jobs; most often they are of one partition."""
    if len(jobs) == 1:
        return {jobs[0].partition: [jobs[0].offset]}
    found: dict[TopicPartition, list[int]] = {}
    topic: str | None = None
    number: int | None = None
    offsets: list[int] = []
    for job in jobs:
        record = job.record
        if record.partition != number or record.topic != topic:
            topic, number = record.topic, record.partition
            offsets = found.setdefault(job.partition, [])
        offsets.append(record.offset)
    return found


def _runs(offsets: list[int], kind: Acknowledgement) -> Iterable[AcknowledgeBatch]:
    """Offsets as runs of offsets that follow each other."""
    offsets.sort()
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            yield AcknowledgeBatch(first, last, kind)
            first = offset
        last = offset
    yield AcknowledgeBatch(first, last, kind)
