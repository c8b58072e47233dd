"""A record that a worker has taken from a queue, and what is said of it."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Protocol, Self

from logstore.arguments import milliseconds_of, shown
from logstore.broker.share.partition import Acknowledgement
from logstore.errors import JobLostError, UsageError
from logstore.model import Record, TopicPartition

Delay = float | timedelta | datetime
"""Seconds, a duration, or a time with its time zone."""


def time_of(delay: Delay, now_ms: int) -> int:
    """When a delay that begins now is over, in milliseconds since the epoch; 0 if there is none.

    Raises:
        UsageError: it is no delay.
    """
    if isinstance(delay, datetime):
        return milliseconds_of(delay, "delay")
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if type(seconds) not in (int, float) or not 0 <= seconds < 2**32:
        raise UsageError(
            f"delay is {shown(delay)}; it must be seconds or a timedelta, 0 or above, or a datetime"
        )
    return now_ms + int(seconds * 1000) if seconds else 0


def lost(job: Job, lock_ms: int) -> JobLostError:
    """What is raised when something is said of a job too late."""
    return JobLostError(
        f"{job.partition} offset {job.offset}: its lock has run out after record_lock_duration_ms "
        f"({lock_ms} ms), and another worker may have it; renew() in time keeps it"
    )


class Worker(Protocol):
    """Who has a job; see :class:`~logstore.clients.queues.queue.Queue`."""

    def accept(self, job: Job) -> None: ...
    def settle(
        self, job: Job, kind: Acknowledgement, *, delay: Delay | None = None, reason: str = ""
    ) -> None: ...
    def renew(self, job: Job) -> None: ...
    def release_after(self, job: Job, error: BaseException) -> None: ...
    def decoded_key(self, record: Record) -> Any: ...
    def decoded_value(self, record: Record) -> Any: ...
    def seconds_until(self, deadline_ms: int) -> float: ...


class Job:
    """A record that is this worker's until its lock runs out. Made by a
    :class:`~logstore.clients.queues.queue.Queue`.

    Say what became of it: :meth:`accept`, :meth:`release` or :meth:`reject`, once. Or use it in a ``with``
    statement: that accepts it at the end; after an exception it releases it, and the exception goes on.
    """

    __slots__ = ("_worker", "deadline_ms", "delivery_count", "is_over", "record", "topic_id")

    def __init__(
        self, worker: Worker, record: Record, topic_id: uuid.UUID, delivery_count: int, deadline_ms: int
    ) -> None:
        self._worker = worker
        self.record = record
        """The whole record."""
        self.topic_id = topic_id
        """The id of its topic: one that is made later under the same name has another."""
        self.delivery_count = delivery_count
        """How often it was delivered, with this time: 1 at first."""
        self.deadline_ms = deadline_ms
        """When the lock runs out, on the clock that the queue has; see :attr:`seconds_left`."""
        self.is_over = False
        """Whether it was accepted, released or rejected."""

    # The record

    @property
    def value(self) -> Any:
        """The value, decoded by the queue's ``value_deserializer``.

        Raises:
            InvalidRecordError: the deserializer refuses it. The job stays this worker's: reject it.
        """
        return self._worker.decoded_value(self.record)

    @property
    def key(self) -> Any:
        """The key, decoded by the queue's ``key_deserializer``. Raises as :attr:`value`."""
        return self._worker.decoded_key(self.record)

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The record's headers."""
        return self.record.headers

    @property
    def partition(self) -> TopicPartition:
        """Where it is."""
        return TopicPartition(str(self.record.topic), int(self.record.partition or 0))

    @property
    def offset(self) -> int:
        """Its offset there."""
        return self.record.offset

    @property
    def seconds_left(self) -> float:
        """How long it is this worker's; 0 if the lock has run out."""
        return self._worker.seconds_until(self.deadline_ms)

    # What becomes of it

    def accept(self) -> None:
        """It is done, and no worker gets it again.

        That is sent with others, when the worker takes the next job, calls :meth:`.Queue.flush`, or leaves
        the queue; a worker that is killed before has it to do again. Cost: 0.5 µs.

        Raises:
            JobLostError: the lock has run out, and another worker may have it; or its topic was deleted.
            RetriableError: a broker elsewhere does not answer. What was said is kept, and sent with what
                comes next: do not say it again.
            UsageError: it was accepted, released or rejected before.
        """
        self._worker.accept(self)

    def release(self, delay: Delay | None = None, *, reason: str = "") -> None:
        """Another try, by any worker: at once, or after a time. If it was delivered ``delivery_count_limit``
        times, it goes to the dead-letter topic instead. Sent at once.

        Args:
            delay: seconds, a ``timedelta``, or a ``datetime`` with its time zone, before which no worker gets
                it. Kafka's share groups have no such delay: a broker that takes the directory over delivers
                it at once.
            reason: what the dead-letter topic says of it, if it gets there.

        Raises: as :meth:`accept`.
        """
        self._worker.settle(self, Acknowledgement.RELEASE, delay=delay, reason=reason)

    def reject(self, reason: str = "") -> None:
        """It cannot be done: it goes to the dead-letter topic, with the reason in a header. Sent at once.

        Raises: as :meth:`accept`.
        """
        self._worker.settle(self, Acknowledgement.REJECT, reason=reason)

    def renew(self) -> None:
        """Have it for a whole ``record_lock_duration_ms`` from now on (KIP-1222). Sent at once.

        Raises: as :meth:`accept`.
        """
        self._worker.renew(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self.is_over:
            return
        if error is None:
            self.accept()
        else:
            self._worker.release_after(self, error)

    def __repr__(self) -> str:
        state = "over" if self.is_over else f"{self.seconds_left:.1f} s left"
        return f"<Job {self.partition} offset {self.offset}, delivery {self.delivery_count}, {state}>"


def is_job_of(job: object, worker: Worker) -> bool:
    """Whether something is a job, and this worker's."""
    return type(job) is Job and job._worker is worker
