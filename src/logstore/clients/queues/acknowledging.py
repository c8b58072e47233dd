"""What a worker says of its jobs, on its way to the broker. It may say it in any thread.

A request that takes jobs carries what was said of others, so that the broker stores both at once.

Locks: ``_sending`` is held by the thread that sends, also while it waits for the answer. ``_lock`` guards
what gathers; nothing is called with it held.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

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
    ShareFetchRequest,
    ShareFetchResult,
    TopicIdPartition,
)
from logstore.clients.asking import ask
from logstore.clients.queues.job import Job
from logstore.clients.queues.taking import Epochs
from logstore.clients.settings import QueueConfig
from logstore.clock import Clock
from logstore.errors import JobLostError, LogstoreError

_MOST_SHOWN = 4
_NOT_TOLD = (Acknowledgement.GAP, Acknowledgement.UNUSED)
"""The caller never had these."""
_TELL_THE_POLL = (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
_Batches = dict[TopicIdPartition, list[AcknowledgeBatch]]


class Fetched(NamedTuple):
    """Jobs that were taken with the request that said what became of others."""

    result: ShareFetchResult
    asked_ms: int
    """When; monotonic."""
    throttle_time_ms: int


class _Sent(NamedTuple):
    """A request without an answer."""

    pending: Pending[ShareAcknowledgeResult | ShareFetchResult]
    batches: _Batches
    asked_ms: int


class _Gathered(NamedTuple):
    """What a worker has said and not sent."""

    accepted: list[Job]
    batches: _Batches

    def by_partition(self) -> _Batches:
        """All of it."""
        found = {each: list(some) for each, some in self.batches.items()}
        for partition, offsets in _by_partition(self.accepted).items():
            found.setdefault(partition, []).extend(_runs(offsets, Acknowledgement.ACCEPT))
        return found


class Acknowledgements:
    """Of one worker. Accepted jobs gather here; all else is sent at once, with them."""

    def __init__(
        self,
        broker: Broker,
        group: str,
        member_id: str,
        config: QueueConfig,
        clock: Clock,
        epochs: Epochs,
    ) -> None:
        self._broker = broker
        self._group = group
        self._member_id = member_id
        self._config = config
        self._clock = clock
        self._epochs = epochs
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._accepted: list[Job] = []
        self._batches: _Batches = {}
        self._undurable: set[TopicIdPartition] = set()
        """Where something was taken in that is to be durable, and is not."""
        self._leaving: _Gathered | None = None
        """What is being sent, until there is something to wait for. An interrupt, such as Ctrl-C, leaves it
        here."""
        self._unanswered: _Sent | None = None
        self._sent_ms = -(2**62)
        self.fetched: deque[Fetched] = deque()
        """What was taken, in the order in which it came; for the thread that polls."""

    def accept(self, job: Job, now_ms: int, *, may_gather: bool, is_last: bool) -> None:
        """The job is done. Sent at once, unless it may gather and others were sent just before it, or it is
        the last that a loop has, which takes others next.

        Raises:
            LogstoreError: as :meth:`send`.
        """
        with self._lock:
            self._accepted.append(job)
        linger_ms = self._config.linger_ms
        is_due = now_ms - self._sent_ms >= linger_ms
        if not may_gather or (is_due and not (is_last and linger_ms)):
            self.send()

    def add(self, partition: TopicIdPartition, batches: Iterable[AcknowledgeBatch]) -> None:
        """Something else to be sent with the next."""
        fresh = list(batches)
        if fresh:
            with self._lock:
                self._batches.setdefault(partition, []).extend(fresh)

    def give_back(self, jobs: list[Job]) -> None:
        """These were taken, and nothing was done with them."""
        for partition, offsets in _by_partition(jobs).items():
            self.add(partition, _runs(offsets, Acknowledgement.UNUSED))

    def send(self, fetch: ShareFetchRequest | None = None) -> bool:
        """Send all, and wait for the answer. With a request that takes jobs, which does not wait for any: as
        part of it, if there is something to send; what it brings is in :attr:`fetched`. Whether anything was
        sent.

        Raises:
            JobLostError: the lock of a job had run out; what was said of the others counts.
            LogstoreError: the broker could not store it. It is kept, and sent with the next.
            RetriableError: there was no answer in time. The next call goes on waiting for it.
        """
        with self._sending:
            if self._unanswered is not None:
                self._receive()
            if self._leaving is not None:
                self._send_again(self._leaving)
            if not (self._accepted or self._batches or self._undurable):
                return False
            self._send(fetch)
            return True

    def _send_again(self, cut_off: _Gathered) -> None:
        """An interrupt came while this was sent. What had arrived is refused the second time, which is not
        told: it counts."""
        self._send_all(cut_off.by_partition(), None)
        with contextlib.suppress(JobLostError):
            self._receive()

    def _send(self, fetch: ShareFetchRequest | None) -> None:
        with self._lock:
            gathered = _Gathered(self._accepted, self._batches)
            self._leaving, self._accepted, self._batches = gathered, [], {}  # no interrupt comes in between
        batches = gathered.by_partition()
        for partition in self._undurable:
            batches.setdefault(partition, [])
        self._send_all(batches, fetch)
        self._receive()

    def _send_all(self, batches: _Batches, fetch: ShareFetchRequest | None) -> None:
        said = tuple(AcknowledgePartition(each, tuple(some)) for each, some in batches.items())
        asked_ms, is_durable = self._clock.monotonic_ms(), self._config.is_durable
        pending: Pending[ShareAcknowledgeResult | ShareFetchResult]
        if fetch is not None:
            pending = self._broker.share_fetch(fetch._replace(acknowledgements=said, durable=is_durable))
        else:
            request = ShareAcknowledgeRequest(self._group, self._member_id, said, is_durable)
            pending = self._broker.share_acknowledge(request)
        sent = _Sent(pending, batches, asked_ms)
        self._unanswered, self._leaving = sent, None

    def _receive(self) -> None:
        assert self._unanswered is not None
        pending, batches, asked_ms = self._unanswered
        result = ask(pending, "take in what became of jobs", self._config)
        self._unanswered = None
        self._sent_ms = self._clock.monotonic_ms()
        if isinstance(result, ShareFetchResult):
            self._epochs.note(result)
            if result.error in _TELL_THE_POLL:
                self.fetched.append(Fetched(result, asked_ms, pending.throttle_time_ms))
            outcomes = result.acknowledged
        else:
            outcomes = result.partitions
        if result.error is ErrorCode.UNKNOWN_MEMBER_ID:
            outcomes = tuple(
                AcknowledgedPartition(each, result.error, tuple(some)) for each, some in batches.items()
            )
        elif result.error is not ErrorCode.NONE:
            outcomes = tuple(AcknowledgedPartition(each, result.error) for each in batches)
        self._check(outcomes, batches)

    def _check(self, outcomes: Iterable[AcknowledgedPartition], batches: _Batches) -> None:
        self._undurable.clear()
        lost: list[str] = []
        gone: list[str] = []
        failure: LogstoreError | None = None
        for outcome in outcomes:
            refused = [each for each in outcome.refused if each.kind not in _NOT_TOLD]
            told = gone if outcome.error is ErrorCode.UNKNOWN_TOPIC_ID else lost
            told += [f"{outcome.partition} offset {_shown(each)}" for each in refused]
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
            raise JobLostError(
                f"queue {self._group!r}: {_some(lost)}: the lock had run out before this was said, ended "
                "with the node that gave it out, or the log was cut there; another worker may have it. "
                "renew() in time keeps a job"
            )
        if gone:
            raise JobLostError(
                f"queue {self._group!r}: {_some(gone)}: the topic was deleted before this was said; one of "
                "the same name has other jobs"
            )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return f"{', '.join(names[:_MOST_SHOWN])}{more}"


def _shown(batch: AcknowledgeBatch) -> str:
    return str(batch.first) if batch.first == batch.last else f"{batch.first} to {batch.last}"


def _by_partition(jobs: list[Job]) -> dict[TopicIdPartition, list[int]]:
    """The offsets of jobs; most often they are of one partition."""
    if len(jobs) == 1:
        return {_place_of(jobs[0]): [jobs[0].offset]}
    found: dict[TopicIdPartition, list[int]] = {}
    topic_id: uuid.UUID | None = None
    number: int | None = None
    offsets: list[int] = []
    for job in jobs:
        record = job.record
        if record.partition != number or job.topic_id is not topic_id:
            topic_id, number = job.topic_id, record.partition
            offsets = found.setdefault(_place_of(job), [])
        offsets.append(record.offset)
    return found


def _place_of(job: Job) -> TopicIdPartition:
    return TopicIdPartition(job.partition, job.topic_id)


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
