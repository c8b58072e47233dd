"""A worker of a queue: takes jobs that no other worker has, and says what became of them (KIP-932).

It has no thread. A call takes what is available, and waits in the calling thread if nothing is.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any, Final, NamedTuple, Self

from logstore.arguments import check_callable, shown
from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.pending import Pending, Wake, call_wake, wait_for
from logstore.broker.share.partition import Acknowledgement
from logstore.broker.share.requests import (
    JOINING,
    LEAVING,
    AcknowledgeBatch,
    ShareFetchRequest,
    ShareFetchResult,
    ShareGroupConfig,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    TopicIdPartition,
)
from logstore.clients.asking import ask, late
from logstore.clients.offsets import check_group, check_topics
from logstore.clients.polling import LONG_MS, Polling, wake_none
from logstore.clients.queues.acknowledging import Acknowledgements, Fetched
from logstore.clients.queues.job import Delay, Job, is_job_of, lost, time_of
from logstore.clients.queues.taking import Epochs, jobs_of
from logstore.clients.seats import Seats, WorkerSeat
from logstore.clients.settings import QueueConfig
from logstore.clients.usable import Usable
from logstore.clock import Clock, SystemClock
from logstore.errors import JobLostError, LogstoreError, RetriableError, UsageError
from logstore.model import BoundToProcess, Record
from logstore.partition.arguments import check_timeout
from logstore.serializing import BYTES, DecoderChoice, check_one_way, decode_field
from logstore.warning import warn

_EXAMPLE: Final = 'store.queue("jobs", "more-jobs", group="workers")'
_PAUSE_SECONDS: Final = 0.5
"""Of a loop whose broker cannot answer now."""
_PACE_MS: Final = 50
"""A loop takes as many jobs at a time as it does in so long."""
_MOST_DOUBLINGS: Final = 20
_NOT_A_MEMBER: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_NOT_BEGUN: Final = (CoroutineType, GeneratorType, AsyncGeneratorType)
"""What functions give that have done nothing yet."""


class WorkReport(NamedTuple):
    """What :meth:`Queue.work` has done."""

    accepted_count: int
    """Jobs that were done."""
    released_count: int
    """Tries that ended with an exception."""
    lost_count: int
    """Jobs whose lock ran out before they were done."""


class Queue(BoundToProcess):
    """A worker of a queue. Made by :meth:`.Store.queue`. Use it in a ``with`` statement, or call
    :meth:`close`.

    One thread polls at a time: each worker has a queue object of its own. What becomes of jobs may be said in
    any thread, also while another polls; :meth:`wakeup` and :meth:`stop` may be called in any, too.
    """

    def __init__(
        self,
        broker: Broker,
        topics: Iterable[str],
        group: str,
        *,
        config: QueueConfig | None = None,
        clock: Clock | None = None,
        key_deserializer: DecoderChoice | None = None,
        value_deserializer: DecoderChoice | None = None,
        seats: Seats | None = None,
    ) -> None:
        """``seats``: of the consumers and workers of the same store. Without, one that is dropped stays.

        Raises:
            LogstoreError: the group refuses the worker.
        """
        self.config = config or QueueConfig()
        """The settings."""
        self.group = check_group(group)
        """The group that shares the jobs."""
        self.topics = check_topics(topics, f"give each as text: {_EXAMPLE}")
        """The topics that have them."""
        if not self.topics:
            raise UsageError('a queue needs a topic: store.queue("jobs", group="workers")')
        if self.config.dead_letter_topic in self.topics:
            raise UsageError(
                f"queue {self.group!r}: dead_letter_topic is {self.config.dead_letter_topic!r}, whose jobs "
                "this group does: they would go round and round; name another topic"
            )
        self._broker = broker
        self._clock = clock or SystemClock()
        self._usable = Usable("queue")
        self._key = BYTES if key_deserializer is None else check_one_way(key_deserializer, "key_deserializer")
        self._value = (
            BYTES if value_deserializer is None else check_one_way(value_deserializer, "value_deserializer")
        )
        self.member_id = str(uuid.uuid4())
        """Its name in the group."""
        self._epoch = JOINING
        self._assignment: tuple[TopicIdPartition, ...] = ()
        self._heard_ms = -(2**62)
        self._resume_ms = -(2**62)
        """Until when a quota forbids to take more."""
        self.was_throttled = False
        """Whether the last poll took nothing because of a quota: more may be available."""
        self._turn = 0
        self._epochs = Epochs()
        self._taken: list[Job] = []
        """Jobs that this worker has, and has not been given."""
        self._under_way: Pending[ShareFetchResult] | None = None
        self._asked_for = 0
        """How many jobs."""
        self._failure: LogstoreError | None = None
        """Of a partition that could not be read, while others gave jobs."""
        self._acks = Acknowledgements(
            broker, self.group, self.member_id, self.config, self._clock, self._epochs
        )
        self.pace = 1
        """How many jobs a loop takes at a time."""
        self._is_at_last = False
        """Whether a loop has given its last job, and takes others next."""
        self._wake: Wake | None = None
        self._is_woken_up = False
        self._beating: tuple[Pending[ShareGroupHeartbeatResult], int, int] | None = None
        """A heartbeat without an answer, how long to wait for that, and the epoch that it told."""
        self._is_working = False
        self._is_stopping = False
        self._seats, self._seat = seats, WorkerSeat(self.group, self.member_id)
        if seats is not None:
            seats.give_back()  # those may have other settings
        self._join()
        if seats is not None:
            seats.keep(self, self._seat)

    # Its group

    def _join(self) -> None:
        """Be a member, and hear which partitions there are.

        Raises:
            LogstoreError: the group refuses, or does not answer.
        """
        self._take_in_beat(ask(self._beat(), "answer the worker's heartbeat", self.config), self._epoch)

    def _beat(self) -> Pending[ShareGroupHeartbeatResult]:
        beat = ShareGroupHeartbeat(
            self.group,
            self.member_id,
            self._epoch,
            self.topics,
            self.config.client_id,
            _shared(self.config),
        )
        return self._broker.share_group_heartbeat(beat)

    def _stay(self) -> bool:
        """Be heard of, without waiting for the answer. Returns whether there is one.

        Raises:
            LogstoreError: the group refuses, or has not answered for ``request_timeout_ms``.
        """
        now_ms = self._clock.monotonic_ms()
        if self._beating is None:
            self._beating = self._beat(), now_ms + self.config.request_timeout_ms, self._epoch
        pending, until_ms, told_epoch = self._beating
        result = pending.poll()
        if result is not None:
            self._beating = None
            self._take_in_beat(result, told_epoch)
        elif now_ms >= until_ms:
            self._beating = None
            raise late("answer the worker's heartbeat", self.config)
        return result is not None

    def _take_in_beat(self, result: ShareGroupHeartbeatResult, told_epoch: int) -> None:
        """``told_epoch`` is that of the heartbeat: the answer to a fetch may have said meanwhile that this is
        no member.

        Raises:
            LogstoreError: the group refuses.
        """
        if result.error in _NOT_A_MEMBER and told_epoch != JOINING:
            self._epoch = JOINING
            self._join()
            return
        if result.error is not ErrorCode.NONE:
            raise error_of(result.error, f"queue {self.group!r}: {result.message or result.error.name}")
        self._epoch = result.member_epoch
        if result.assignment != self._assignment:
            self._drop_fetch()
        self._assignment = result.assignment
        self._heard_ms = self._clock.monotonic_ms()

    # Taking jobs

    def poll(self, timeout: float | None = None, *, max_jobs: int | None = None) -> list[Job]:
        """Take jobs that no other worker has. Waits for some if none are available. They are this worker's
        for ``record_lock_duration_ms``.

        What is available is: new records, and those that were released or whose lock has run out. Within a
        partition the lowest offset comes first; jobs are not kept in the order of the partition.

        Args:
            timeout: how many seconds to wait at most: then the list is empty. By default without end.
            max_jobs: the most jobs; by default ``max_poll_records``.

        Raises:
            CorruptionError: a batch is damaged; names the partition and the offsets.
            UnknownTopicError: a topic is gone.
            JobLostError: the lock of a job that was accepted had run out before that was sent.
            RetriableError: :meth:`wakeup` was called; or a broker elsewhere does not answer. Poll again.
            UsageError: another thread polls.
            ClosedError, ForkedError: the queue cannot be used; it or its store was closed, also while this
                call waits.
        """
        polling = self.begin_poll(timeout, max_jobs=max_jobs)
        return self._usable.alone(polling.wait)

    def begin_poll(self, timeout: float | None = None, *, max_jobs: int | None = None) -> Polling[list[Job]]:
        """Begin a :meth:`poll`, and do not wait: for an event loop. Arguments and errors are those of
        :meth:`poll`."""
        self._check_usable()
        most = self.config.max_poll_records if max_jobs is None else max_jobs
        if type(most) is not int or most < 1:
            raise UsageError(f"max_jobs is {shown(most)}; it must be a whole number, 1 or above")
        timeout_ms = None if timeout is None else int(check_timeout(timeout) * 1000)
        return Polling(
            lambda left_ms: self._poll_now(left_ms, most),
            list,
            self._clock,
            timeout_ms,
            self._on_wake,
            self._due_ms,
        )

    def _poll_now(self, left_ms: int, most: int) -> list[Job] | None:
        until_ms = self._clock.monotonic_ms() + left_ms
        while True:
            self._check_usable()
            if self._seats:
                self._seats.give_back()
            if self._is_working and self._is_stopping:
                raise _StoppedError
            if self._is_woken_up:
                self._is_woken_up = False
                raise _WokenUpError("wakeup() was called; poll again to go on")
            self._take_in_fetched()
            if found := self._give(most):
                return found
            now_ms = self._clock.monotonic_ms()
            is_due = now_ms - self._heard_ms >= self.config.metadata_max_age_ms
            if is_due or self._under_way is not None or now_ms < self._resume_ms:
                self._acks.send()
            elif self._acks.send(self._request(most, 0)):
                continue
            if is_due and not self._stay() and self._epoch == JOINING:
                return None  # nothing can be taken before
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if not self._fetch(max(until_ms - self._clock.monotonic_ms(), 0), most):
                return None

    def _give(self, most: int) -> list[Job]:
        """Jobs that were taken before, without those whose lock has run out meanwhile."""
        found: list[Job] = []
        while self._taken and len(found) < most:
            now_ms, left = self._clock.monotonic_ms(), most - len(found)
            taken, self._taken = self._taken[:left], self._taken[left:]
            found += [job for job in taken if job.deadline_ms > now_ms]
        return found

    def _fetch(self, wait_ms: int, most: int) -> bool:
        """Begin a fetch, or take in what one has brought. Whether it is worth looking again at once."""
        asked_ms = self._clock.monotonic_ms()
        if most < self._asked_for:
            self._drop_fetch()
        self.was_throttled = asked_ms < self._resume_ms
        if self.was_throttled:
            return False
        if self._under_way is None:
            self._asked_for = most
            wait_ms = min(wait_ms, self.config.metadata_max_age_ms)  # topics may be made again meanwhile
            self._under_way = self._broker.share_fetch(self._request(most, wait_ms))
        result = self._under_way.poll()
        if result is None:
            return False
        throttle_time_ms = self._under_way.throttle_time_ms
        self._under_way = None
        self._asked_for = 0
        self._epochs.note(result)
        self._receive(Fetched(result, asked_ms, throttle_time_ms))
        return bool(result.partitions) or wait_ms > 0 or self._epoch == JOINING

    def _request(self, most: int, wait_ms: int) -> ShareFetchRequest:
        partitions = self._assignment
        if partitions:
            self._turn = (self._turn + 1) % len(partitions)
            partitions = partitions[self._turn :] + partitions[: self._turn]
        return ShareFetchRequest(
            self.group,
            self.member_id,
            partitions,
            most,
            wait_ms,
            self.config.max_partition_fetch_bytes,
        )

    def _take_in_fetched(self) -> None:
        """Take in the jobs that came with the answer to what was said of others."""
        while self._acks.fetched:
            self._receive(self._acks.fetched.popleft())

    def _receive(self, fetched: Fetched) -> None:
        result, asked_ms, throttle_time_ms = fetched
        if throttle_time_ms:
            self._resume_ms = self._clock.monotonic_ms() + throttle_time_ms
        if result.error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._epoch, self._heard_ms = JOINING, -(2**62)
            return
        if result.error is not ErrorCode.NONE:
            raise error_of(result.error, f"queue {self.group!r}: {result.message or result.error.name}")
        self._take_in(result, asked_ms + result.lock_duration_ms)

    def _take_in(self, result: ShareFetchResult, deadline_ms: int) -> None:
        for fetched in result.partitions:
            if fetched.error is ErrorCode.UNKNOWN_TOPIC_ID:
                self._heard_ms = -(2**62)  # the next heartbeat tells of the topic that has the name now
                continue
            try:
                if fetched.error is not ErrorCode.NONE:
                    message = fetched.message or fetched.error.name
                    raise error_of(fetched.error, f"{fetched.partition}: {message}")
                jobs, gaps = jobs_of(self, fetched, deadline_ms)
            except LogstoreError as error:
                self._failure = self._failure or error
                continue
            self._taken += jobs
            self._acks.add(fetched.partition, gaps)

    def _drop_fetch(self) -> None:
        if self._under_way is not None:
            self._under_way.cancel()
            self._under_way = None
            self._asked_for = 0

    def _due_ms(self) -> int:
        now_ms = self._clock.monotonic_ms()
        due_ms = self._heard_ms + self.config.metadata_max_age_ms - now_ms
        if self._beating is not None:
            due_ms = self._beating[1] - now_ms
        if self._resume_ms > now_ms:
            due_ms = min(due_ms, self._resume_ms - now_ms)
        return max(min(due_ms, LONG_MS), 0)

    def _on_wake(self, wake: Wake | None) -> None:
        self._wake = wake
        for pending in (self._under_way, None if self._beating is None else self._beating[0]):
            if pending is not None:
                pending.on_wake(wake or wake_none)
        if self._is_woken_up or self._usable.is_over or (self._is_working and self._is_stopping):
            call_wake(wake)

    def __iter__(self) -> Iterator[Job]:
        """Every job from here on, without end; waits for more. A loop takes few jobs at a time where each
        takes long, so that the others find some, and many where they are short. Errors are those of
        :meth:`poll`: begin another loop then, or let :meth:`work` do that."""
        while True:
            yield from self.one_by_one(self.poll(max_jobs=self.pace))

    def drain(self) -> Iterator[Job]:
        """Every job that is available, until none is: those of other workers, and those that were put off,
        are not waited for. While a quota forbids to take more, it waits."""
        while found := self._usable.alone(self.begin_poll_available().wait):
            yield from self.one_by_one(found)

    def begin_poll_available(self) -> Polling[list[Job]]:
        """Begin to take as many jobs as a loop takes at a time, for an event loop. Waits for the answer of a
        broker, which takes a while if it is elsewhere; without a job if none is available. Errors are those
        of :meth:`poll`."""
        self._check_usable()
        most = self.pace

        def step(_: int) -> list[Job] | None:
            found = self._poll_now(0, most)
            is_answered = self._under_way is None and not self.was_throttled
            return [] if found is None and is_answered else found

        return Polling(step, self._nothing_comes, self._clock, None, self._on_wake, self._due_ms)

    def _nothing_comes(self) -> list[Job]:
        """With a clock set by hand: nothing happens while a call waits."""
        if self.was_throttled:
            raise RetriableError("a quota is exceeded; let the clock go on, and drain again")
        return []

    def give_back(self, jobs: list[Job]) -> None:
        """Jobs that the caller of a poll has not used come with the next."""
        self._taken[:0] = jobs

    def one_by_one(self, jobs: list[Job]) -> Iterator[Job]:
        """Jobs of a poll, without those whose lock has run out meanwhile. Those that are not used come with
        the next poll. How long the caller takes sets :attr:`pace`."""
        now_ms = self._clock.monotonic_ms
        began_ms = now_ms()
        given = 0
        try:
            for job in jobs:
                given += 1
                if job.deadline_ms > now_ms():
                    self._is_at_last = given == len(jobs)
                    yield job
        finally:
            self._is_at_last = False
            self.give_back(jobs[given:])
        took_ms = now_ms() - began_ms
        pace = _PACE_MS * len(jobs) // max(took_ms, 1)
        self.pace = max(min(pace, 2 * len(jobs), self.config.max_poll_records), 1)

    def work(self, function: Callable[[Job], object], *, until_empty: bool = False) -> WorkReport:
        """Do jobs, until :meth:`stop`: call ``function`` with each, and accept those with which it returns,
        unless it has said what becomes of the job itself. After an exception the job is released, to be tried
        again after ``retry_backoff_ms``; the exception becomes a warning.

        Args:
            function: does a job.
            until_empty: end when nothing is available.

        It goes on when locks were lost, and, unless it is to end, when a broker that is elsewhere does not
        answer: warnings tell.

        Raises:
            UsageError: ``function`` is an async function or a generator.
            RetriableError: :meth:`wakeup` was called.
            LogstoreError: the log or the disk failed.
        """
        check_callable(function, "function")
        self._is_working = True
        try:
            return self._work(function, until_empty)
        finally:
            self._is_working = self._is_stopping = False

    def _work(self, function: Callable[[Job], object], until_empty: bool) -> WorkReport:
        accepted = released = late = 0
        for job in self._until_stopped(until_empty):
            try:
                result = function(job)
            except Exception as error:
                warn("queue %r: %s: %s: %s", self.group, job, type(error).__name__, error)
                released += 1
                self.release_after(job, error)
                continue
            if isinstance(result, _NOT_BEGUN):
                raise UsageError(
                    f"function gave {shown(result)}, and has done nothing; it must be a plain function. "
                    "Async functions are for the work() of logstore.aio"
                )
            try:
                if not job.is_over:
                    job.accept()
                accepted += 1
            except (JobLostError, RetriableError) as error:
                time.sleep(self.pause_after(error))
                late += 1
        try:
            self.flush()
        except JobLostError as error:
            warn("queue %r: %s", self.group, error)
        return WorkReport(accepted, released, late)

    @staticmethod
    def goes_on_after(error: LogstoreError, *, until_empty: bool) -> bool:
        """Whether :meth:`work` polls again after this."""
        if isinstance(error, RetriableError):  # at an end it would have to know whether there is anything
            return not (until_empty or isinstance(error, _WokenUpError))
        return isinstance(error, JobLostError)

    def pause_after(self, error: LogstoreError) -> float:
        """Warn, and return for how many seconds to do nothing: a broker that cannot answer now is not asked
        all the time."""
        warn("queue %r: %s", self.group, error)
        return _PAUSE_SECONDS if isinstance(error, RetriableError) else 0.0

    def _until_stopped(self, until_empty: bool) -> Iterator[Job]:
        while not self._is_stopping:
            try:
                polling = self.begin_poll_available() if until_empty else self.begin_poll(max_jobs=self.pace)
                found = self._usable.alone(polling.wait)
            except _StoppedError:
                return
            except (JobLostError, RetriableError) as error:
                if not self.goes_on_after(error, until_empty=until_empty):
                    raise
                time.sleep(self.pause_after(error))
                continue
            if until_empty and not found:
                return
            for job in self.one_by_one(found):
                yield job
                if self._is_stopping:
                    return

    def stop(self) -> None:
        """End :meth:`work` after the present job; the next one, if none is going on. From any thread, and
        from a signal handler."""
        self._is_stopping = True
        self._wake_poll()

    def wakeup(self) -> None:
        """Let a waiting :meth:`poll`, or the next one, end with ``RetriableError``. From any thread."""
        self._is_woken_up = True
        self._wake_poll()

    # What becomes of jobs

    def accept(self, job: Job) -> None:
        """What :meth:`.Job.accept` does."""
        if not is_job_of(job, self):
            raise _not_ours(job)
        if job.is_over or self._usable.is_over or self._usable.is_forked or self._epochs.have_changed:
            self._check_open_job(job)
        now_ms = self._clock.monotonic_ms()
        if job.deadline_ms <= now_ms:
            raise lost(job, self.config.record_lock_duration_ms)
        job.is_over = True
        self._acks.accept(job, now_ms, may_gather=not self._usable.is_polled, is_last=self._is_at_last)

    def _check_open_job(self, job: Job) -> int:
        """What time it is.

        Raises:
            UsageError: it is no job of this queue; or it is over, or the queue is closed.
            JobLostError: the lock has run out, or the record is gone.
        """
        if not is_job_of(job, self):
            raise _not_ours(job)
        self._usable.check_open()
        if job.is_over:
            raise UsageError(f"{job} was accepted, released or rejected before")
        if self._epochs.have_changed and self._epochs.have_cut_off(job):
            raise JobLostError(
                f"{job.partition} offset {job.offset}: the log was cut there, and has other records now"
            )
        now_ms = self._clock.monotonic_ms()
        if job.deadline_ms <= now_ms:
            raise lost(job, self.config.record_lock_duration_ms)
        return now_ms

    def settle(
        self, job: Job, kind: Acknowledgement, *, delay: Delay | None = None, reason: str = ""
    ) -> None:
        """What :meth:`.Job.release` and :meth:`.Job.reject` do."""
        self._check_open_job(job)
        available_at_ms = 0 if delay is None else time_of(delay, self._clock.now_ms())
        if type(reason) is not str:
            raise UsageError(f"reason is {shown(reason)}; it must be text; str() makes text of an exception")
        job.is_over = True
        batch = AcknowledgeBatch(job.offset, job.offset, kind, available_at_ms, reason)
        self._acks.add(TopicIdPartition(job.partition, job.topic_id), [batch])
        self._acks.send()

    def release_after(self, job: Job, error: BaseException) -> None:
        """Release a job that was not done because of an error, for its next try after
        ``retry_backoff_ms``. It may be lost already."""
        backoff_ms = self.config.retry_backoff_ms << min(job.delivery_count - 1, _MOST_DOUBLINGS)
        reason = f"{type(error).__name__}: {error}"
        try:
            if not job.is_over:
                self.settle(job, Acknowledgement.RELEASE, delay=backoff_ms / 1000, reason=reason)
        except (JobLostError, RetriableError) as late:
            warn("queue %r: %s", self.group, late)

    def renew(self, job: Job) -> None:
        """What :meth:`.Job.renew` does."""
        now_ms = self._check_open_job(job)
        batch = AcknowledgeBatch(job.offset, job.offset, Acknowledgement.RENEW)
        self._acks.add(TopicIdPartition(job.partition, job.topic_id), [batch])
        self._acks.send()
        job.deadline_ms = now_ms + self.config.record_lock_duration_ms

    def flush(self) -> None:
        """Return when what was said of jobs is known to the group; with ``acks="all"`` when no power cut can
        undo it.

        Raises:
            JobLostError: the lock of a job had run out; names it.
            StorageError: the disk refused. What was said is kept for another call.
            RetriableError: a broker elsewhere did not answer. What was said may count all the same; if it
                does not, the jobs come again.
        """
        self._usable.check_open()
        self._acks.send()

    # Values

    def decoded_key(self, record: Record) -> Any:
        """The key of a record, by the queue's deserializer."""
        return record.key if self._key is BYTES else decode_field(self._key, record, "key")

    def decoded_value(self, record: Record) -> Any:
        """The value of a record, by the queue's deserializer."""
        return record.value if self._value is BYTES else decode_field(self._value, record, "value")

    def seconds_until(self, deadline_ms: int) -> float:
        """How long it is until then, by the queue's clock; 0 if it is over."""
        return max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000

    # The end

    def close(self) -> None:
        """Send what was said of jobs, and leave the group: jobs that were taken and not settled go to the
        others at once. You may call it again.

        Raises:
            LogstoreError: as :meth:`flush`.
        """
        if self._usable.is_closed:
            return
        self._usable.close(self._wake_poll)
        if self._usable.is_forked:
            return
        try:
            if not self._usable.is_store_closed:
                self._take_in_fetched()
                self._acks.give_back(self._taken)
                self._acks.send()
        finally:
            self._drop_fetch()
            self._taken.clear()
            beat = ShareGroupHeartbeat(self.group, self.member_id, LEAVING)
            wait_for(self._broker.share_group_heartbeat(beat), self.config.request_timeout_ms / 1000)
            self._seat.member_id = ""

    def note_closed_store(self) -> None:
        """Its store is closed: from now on calls raise ``ClosedError``, and so does a poll that waits. What
        was said of jobs is sent. From any thread."""
        self._usable.is_store_closed = True
        self._wake_poll()
        if self._usable.is_closed or self._usable.is_forked:
            return
        try:
            self._acks.send()
        except LogstoreError as error:
            warn("queue %r: %s", self.group, error)

    def _wake_poll(self) -> None:
        call_wake(self._wake)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close()
        except LogstoreError as second:  # the exception of the block is the one that counts
            warn("queue %r: %s", self.group, second)

    def _check_usable(self) -> None:
        self._usable.check()

    def __repr__(self) -> str:
        return f"<Queue {', '.join(self.topics)} of group {self.group!r}>"


def _not_ours(job: object) -> UsageError:
    """What is raised for what is no job of a queue."""
    if isinstance(job, Job):
        return UsageError(f"{job!r} is another queue's; that one takes it, as job.accept() and the others do")
    return UsageError(f"job is {shown(job)}; it must be one of the jobs that this queue has given")


class _StoppedError(Exception):
    """:meth:`Queue.stop` ends the work."""


class _WokenUpError(RetriableError):
    """:meth:`Queue.wakeup` ends a poll."""


def _shared(config: QueueConfig) -> ShareGroupConfig:
    """The settings that are the group's."""
    names = [name for name in ShareGroupConfig._fields if hasattr(config, name)]
    return ShareGroupConfig(**{name: getattr(config, name) for name in names})
