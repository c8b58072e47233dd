"""Sends what has gathered. Each batch is delivered or fails, in the order of its partition.

Knows brokers and their error codes; has no thread. It is driven (:meth:`Sender.drive`) from outside: by the
producer's thread when something is due or was answered, and by any thread whose records have filled a batch.

With idempotence each batch has a sequence, and a broker that has the batch already says where it is. So a
batch can be sent again when its fate is unknown. A broker that misses an earlier sequence refuses a batch;
then neither it nor a later one is in the log. If nothing earlier is on its way, they are stamped again,
with a producer id that the partition has not seen.

Lock: ``_driving`` is held by the one thread that drives. It is never waited for. Callbacks run under it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from logstore.broker.broker import Broker
from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.failures import RETRIABLE, error_of
from logstore.broker.pending import Pending
from logstore.broker.requests import (
    ACKS_NONE,
    InitProducerIdRequest,
    InitProducerIdResult,
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
)
from logstore.clients.accumulator import NEVER_MS, Accumulator, PartitionQueue
from logstore.clients.counts import ProducerCounts
from logstore.clients.outgoing import OutgoingBatch
from logstore.clients.settings import ProducerConfig
from logstore.clients.transactions.transacting import Transacting
from logstore.clock import Clock
from logstore.errors import InvalidRecordError, LogstoreError, RetriableError
from logstore.format.batch import stamp_producer
from logstore.model import ProducerIdentity
from logstore.turns import take_if_free
from logstore.warning import is_due, warn

_SEQUENCE_COUNT: Final = 2**31
_LONG_MS: Final = 5_000
"""Longer than it takes to elect a leader."""

_GAPS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class _InFlight(NamedTuple):
    """A request that was not answered yet."""

    pending: Pending[ProduceResult]
    queue: PartitionQueue
    batch: OutgoingBatch


class Sender:
    """Of one producer."""

    __slots__ = (
        "_accumulator",
        "_acks",
        "_ask_at_ms",
        "_asked",
        "_broker",
        "_clock",
        "_config",
        "_counts",
        "_driver",
        "_driving",
        "_failed",
        "_first_identity",
        "_in_flight",
        "_is_closing",
        "_must_look",
        "_no_id_because",
        "_resume_ms",
        "_retrying",
        "_sending",
        "_told_at",
        "_transacting",
        "_wake",
        "_was_interrupted",
        "flush_count",
    )

    def __init__(
        self,
        broker: Broker,
        accumulator: Accumulator,
        config: ProducerConfig,
        clock: Clock,
        wake: Callable[[], object],
        counts: ProducerCounts,
        transacting: Transacting | None = None,
    ) -> None:
        """``wake`` is called when it is worth driving: from any thread, maybe under a log's lock."""
        self._broker = broker
        self._accumulator = accumulator
        accumulator.is_driven_here = lambda: self.is_driven_here
        self._config = config
        self._acks = config.required_acks
        self._clock = clock
        self._wake = wake
        self._counts = counts
        self._transacting = transacting
        self._driving = threading.Lock()
        self._driver: int | None = None
        self._must_look = False
        self._was_interrupted = False
        self.flush_count = 0
        """How many calls wait for everything to be sent: then nothing lingers."""
        self._in_flight: list[_InFlight] = []
        self._retrying: dict[PartitionQueue, None] = {}
        """Those to look at again, in order: of thousands, each is found at once."""
        self._sending: list[PartitionQueue] = []
        """Those that this step looks at."""
        self._resume_ms = -1
        """Send nothing before, by the monotonic clock: a quota is exceeded."""
        self._is_closing = False
        self._first_identity: tuple[int, int] | None = None
        self._asked: Pending[InitProducerIdResult] | None = None
        self._ask_at_ms = -1
        """Ask for no producer id before, by the monotonic clock: there was none."""
        self._no_id_because = ""
        self._failed: list[OutgoingBatch] | None = None
        self._told_at: dict[str, float] = {}

    def drive(self) -> int:
        """Do what can be done now. Returns when to call again, by the monotonic clock; earlier, if ``wake``
        is called. While another thread drives, that one does it, and its call returns the time."""
        self._must_look = True
        next_ms = NEVER_MS
        taken: list[bool] = []
        while self._must_look:
            try:
                if not take_if_free(self._driving.acquire, taken):
                    break
                self._driver = threading.get_ident()
                self._must_look = False
                if self._was_interrupted:
                    self._find_again()
                next_ms = self._step()
            except BaseException:
                self._was_interrupted = True
                raise
            finally:
                if taken:
                    self._driver = None
                    self._driving.release()  # before any other call, which an interrupt could end
                    taken.clear()
        return next_ms

    @property
    def is_driven_here(self) -> bool:
        """Whether the calling thread is driving, so that it runs in a callback."""
        return self._driver == threading.get_ident()

    def take_error(self) -> LogstoreError | None:
        """The first error since the last call of which no caller was told."""
        failed, self._failed = self._failed, None
        unseen = [batch for batch in failed or () if not batch.was_reported]
        for batch in unseen:
            batch.was_reported = True
        return unseen[0].error if unseen else None

    def _find_again(self) -> None:
        """The last step was interrupted, as by Ctrl-C: take up what it has left half done. What was on its
        way to the broker is sent again, with its sequence."""
        sent = {each.batch for each in self._in_flight}
        accumulator = self._accumulator
        with accumulator.lock:
            queues = list(accumulator.queues())
            for queue in queues:
                for batch in [each for each in queue.in_flight if each not in sent]:
                    if batch not in queue.closed and not batch.is_done:
                        _put_back(queue, batch)
                    queue.in_flight.remove(batch)
                    if batch.is_done:
                        accumulator.forget_locked(batch)
        self._retrying = dict.fromkeys([queue for queue in queues if queue.closed])
        self._was_interrupted = False

    def _step(self) -> int:
        now_ms = self._clock.monotonic_ms()
        late_ms = self._take_results(now_ms)
        accumulator = self._accumulator
        with accumulator.lock:
            due_ms = accumulator.close_due_locked(now_ms, is_flushing=self.flush_count > 0)
            next_ms = min(due_ms, late_ms)
            queues, accumulator.ready = accumulator.ready, []
        if self._retrying or len(queues) > 1:
            queues, self._retrying = list(dict.fromkeys((*queues, *self._retrying))), {}
        self._sending = queues
        for queue in queues:
            self._send(queue, now_ms)
        for queue in self._retrying:
            next_ms = min(next_ms, self._due_ms(queue, now_ms))
        return next_ms

    def _due_ms(self, queue: PartitionQueue, now_ms: int) -> int:
        """When to look at a partition again: it may send then, or its oldest batch is late."""
        due_ms = max(queue.retry_at_ms, self._resume_ms, now_ms + 1)
        if queue.closed:
            late_ms = queue.closed[0].created_ms + self._config.delivery_timeout_ms + 1
            return min(due_ms, max(late_ms, now_ms + 1))
        return due_ms

    def send_the_rest(self) -> None:
        """The producer closes: no quota holds back what is left. It counts for the client's next producer."""
        self._is_closing = True
        self._resume_ms = -1

    def _note_throttle(self, pending: Pending[ProduceResult], now_ms: int) -> None:
        if pending.throttle_time_ms and not self._is_closing:
            self._resume_ms = max(self._resume_ms, now_ms + pending.throttle_time_ms)

    # Sending

    def _send(self, queue: PartitionQueue, now_ms: int) -> None:
        """Send the closed batches of a partition, as many as may be in flight."""
        while queue.closed:
            batch = queue.closed[0]
            if batch.is_done or self._is_late(batch, now_ms):
                self._fail(queue, (batch,), self._late_error(queue, batch))
                continue
            is_blocked = (
                now_ms < queue.retry_at_ms
                or now_ms < self._resume_ms
                or len(queue.in_flight) >= self._config.max_in_flight
                or (queue.retry_at_ms >= 0 and queue.in_flight)
                or _is_beginning(queue)
            )
            if is_blocked or not self._may_stamp(queue, now_ms):
                self._look_again(queue)
                return
            queue.in_flight.append(batch)
            with self._accumulator.lock:
                queue.closed.remove(batch)
            self._produce(queue, batch, now_ms)

    def _look_again(self, queue: PartitionQueue) -> None:
        self._retrying[queue] = None

    def _produce(self, queue: PartitionQueue, batch: OutgoingBatch, now_ms: int) -> None:
        transacting = self._transacting
        if queue.identity is not None and batch.producer is None:
            is_transactional = transacting is not None
            identity = ProducerIdentity(*queue.identity, queue.next_sequence, is_transactional)
            following = (queue.next_sequence + batch.record_count) % _SEQUENCE_COUNT
            stamp_producer(batch.data, identity)
            # Nothing is called in between: an interrupt leaves both, or nothing.
            batch.producer, queue.next_sequence = identity, following
        batch.attempts += 1
        self._counts.retry_count += batch.attempts > 1
        partition = ProducePartition(batch.partition, batch.data)
        left_ms = self._late_from_ms(batch) - 1 - now_ms
        request = ProduceRequest(
            self._acks,
            min(self._config.request_timeout_ms, max(left_ms, 1)),
            (partition,),
            None if transacting is None else transacting.name,
        )
        pending = self._broker.produce(request)
        result = pending.poll()
        if result is None:
            self._in_flight.append(_InFlight(pending, queue, batch))
            pending.on_wake(self._wake)
        else:
            self._note_throttle(pending, now_ms)
            self._take(queue, batch, result.partitions[0], now_ms)

    # Results

    def _take_results(self, now_ms: int) -> int:
        """Returns when the next request is late, if there is no answer until then."""
        late_ms = NEVER_MS
        if not self._in_flight:
            return late_ms
        left = []
        for sent in self._in_flight:
            if sent.batch not in sent.queue.in_flight:
                continue  # it was taken by a step that was interrupted
            result = sent.pending.poll()
            if result is None and self._is_late(sent.batch, now_ms):
                self._give_up(sent.queue, sent.batch)
            elif result is None:
                left.append(sent)
                late_ms = min(late_ms, self._late_from_ms(sent.batch))
                sent.pending.on_wake(self._wake)
            else:
                self._note_throttle(sent.pending, now_ms)
                self._take(sent.queue, sent.batch, result.partitions[0], now_ms)
        self._in_flight = left
        return late_ms

    def _give_up(self, queue: PartitionQueue, batch: OutgoingBatch) -> None:
        """Wait no longer for an answer: the batch may be stored, or still become so. Where it is not, the
        next one is told of a gap."""
        if not batch.is_done:  # by a step that was interrupted
            unknown = "; the last one has no answer, so the records may be stored all the same"
            self._note_failed(batch, RetriableError(f"{self._late_error(queue, batch)}{unknown}"))
        self._land(queue, batch)

    def _take(
        self, queue: PartitionQueue, batch: OutgoingBatch, outcome: ProducedPartition, now_ms: int
    ) -> None:
        self._settle(queue, batch, outcome, now_ms)
        self._land(queue, batch)

    def _land(self, queue: PartitionQueue, batch: OutgoingBatch) -> None:
        """It is in flight no more: it is done, or goes out again."""
        if batch.is_done:
            with self._accumulator.lock:
                self._accumulator.forget_locked(batch)
        queue.in_flight.remove(batch)  # last: if that was interrupted, it is done once more
        if queue.closed:
            self._look_again(queue)

    def _settle(
        self, queue: PartitionQueue, batch: OutgoingBatch, outcome: ProducedPartition, now_ms: int
    ) -> None:
        if outcome.error is NONE or outcome.error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            if queue.in_flight == [batch]:
                queue.retry_at_ms = -1
            queue.refusal = None
            base_offset = -1 if self._acks == ACKS_NONE else outcome.base_offset
            self._counts.note_delivered(batch.record_count, len(batch.data), now_ms - batch.created_ms)
            batch.succeed(base_offset, outcome.log_append_time_ms)
        elif self._may_retry(queue, batch, outcome.error, now_ms):
            queue.retry_at_ms = now_ms + self._config.retry_backoff_ms
            queue.refusal = outcome.message or outcome.error.name
            self._tell_of(queue, now_ms - batch.created_ms)
            with self._accumulator.lock:
                _put_back(queue, batch)
            if outcome.error in _GAPS and not _has_earlier(queue, batch):
                queue.retry_at_ms = -1
                queue.identity, queue.next_sequence = None, -1  # another than the first
        else:
            what = outcome.message or outcome.error.name
            error = error_of(outcome.error, f"{batch.partition}: {what}")
            if isinstance(error, InvalidRecordError):
                error.partition, error.records = batch.partition, outcome.records
            self._note_failed(batch, error, outcome.error)

    def _tell_of(self, queue: PartitionQueue, waited_ms: int) -> None:
        """Otherwise the program would learn of it only when ``delivery_timeout_ms`` is over."""
        name = str(queue.partition)
        if waited_ms >= _LONG_MS and is_due(self._told_at, name):
            warn("records for %s could not be stored for %d s: %s", name, waited_ms // 1000, queue.refusal)

    def _may_retry(self, queue: PartitionQueue, batch: OutgoingBatch, error: ErrorCode, now_ms: int) -> bool:
        """A gap in a transaction closes by itself while an earlier batch is still to be sent again; without
        one, the transaction has lost a batch."""
        is_gap = error in _GAPS and batch.producer is not None
        if is_gap and self._transacting is not None:
            is_gap = _has_earlier(queue, batch)
        return (
            (error in RETRIABLE or is_gap)
            and batch.attempts <= self._config.retries
            and not self._is_late(batch, now_ms)
        )

    def _is_late(self, batch: OutgoingBatch, now_ms: int) -> bool:
        return now_ms >= self._late_from_ms(batch)

    def _late_from_ms(self, batch: OutgoingBatch) -> int:
        return batch.created_ms + self._config.delivery_timeout_ms + 1

    def _late_error(self, queue: PartitionQueue, batch: OutgoingBatch) -> LogstoreError:
        return RetriableError(
            f"{batch.partition}: records were not delivered within delivery_timeout_ms "
            f"({self._config.delivery_timeout_ms}), after {batch.attempts} attempts"
            + _why(queue, batch)
            + (
                "; a quota of the client holds them back"
                if not batch.attempts and self._resume_ms >= 0
                else ""
            )
        )

    def _fail(self, queue: PartitionQueue, batches: tuple[OutgoingBatch, ...], error: LogstoreError) -> None:
        """Closed batches of a partition will not be sent."""
        for batch in batches:
            if not batch.is_done:  # by a step that was interrupted
                self._note_failed(batch, error)
            with self._accumulator.lock:
                self._accumulator.forget_locked(batch)
                queue.closed.remove(batch)

    def _note_failed(self, batch: OutgoingBatch, error: LogstoreError, code: ErrorCode = NONE) -> None:
        if self._transacting is not None:
            self._transacting.note_failure(error, code)
        self._failed = self._failed or []
        self._failed.append(batch)
        self._counts.failed_record_count += batch.record_count
        batch.fail(error)

    # The producer's identity

    def _may_stamp(self, queue: PartitionQueue, now_ms: int) -> bool:
        """Whether batches of the partition can be stamped and sent. A producer has one id for all of its
        partitions; a partition that begins anew gets another, when everything has come back."""
        if self._transacting is not None:
            return self._may_stamp_in_transaction(queue, self._transacting, now_ms)
        if not self._config.enable_idempotence or queue.identity is not None:
            return True
        if queue.in_flight:
            return False
        for batch in queue.closed:
            batch.producer = None
        if queue.next_sequence == 0 and self._first_identity is not None:
            queue.identity = self._first_identity
            return True
        if now_ms < self._ask_at_ms:
            queue.retry_at_ms, queue.refusal = self._ask_at_ms, self._no_id_because
            return False
        if self._asked is None:
            self._asked = self._broker.init_producer_id(InitProducerIdRequest())
        result = self._asked.poll()
        if result is None:
            self._asked.on_wake(self._wake)
            return False
        self._asked = None
        if result.error is not NONE:
            self._take_no_id(queue, result, now_ms)
            return False
        queue.identity, queue.next_sequence = (result.producer_id, result.producer_epoch), 0
        if self._first_identity is None:
            self._first_identity = queue.identity
        return True

    def _take_no_id(self, queue: PartitionQueue, result: InitProducerIdResult, now_ms: int) -> None:
        """The broker gives no producer id. All partitions wait until it is asked again, if that may help."""
        why = f"the broker gives the producer no id: {result.message or result.error.name}"
        if result.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            why += "; the user needs WRITE on the topic, or IDEMPOTENT_WRITE on the cluster"
        if result.error in RETRIABLE:
            self._ask_at_ms, self._no_id_because = now_ms + self._config.retry_backoff_ms, why
            queue.retry_at_ms, queue.refusal = self._ask_at_ms, why
            self._tell_of(queue, now_ms - queue.closed[0].created_ms)
        else:
            self._fail(queue, tuple(queue.closed), error_of(result.error, f"{queue.partition}: {why}"))

    def _may_stamp_in_transaction(self, queue: PartitionQueue, transacting: Transacting, now_ms: int) -> bool:
        """A transaction has its own epoch, and its own sequences. All that have something to send are let in
        together: the coordinator stores all partitions of the transaction each time it lets more in."""
        waiting = (each.partition for each in self._sending if each.closed)
        if not transacting.let(queue.partition, waiting, now_ms):
            if transacting.error is not None:
                self._fail(queue, tuple(queue.closed), transacting.error)
            elif transacting.refusal is not None and queue.closed:
                queue.refusal = transacting.refusal
                self._tell_of(queue, now_ms - queue.closed[0].created_ms)
            return False
        identity = transacting.identity
        if queue.identity != identity:
            queue.identity, queue.next_sequence = identity, 0
        return True


def _why(queue: PartitionQueue, batch: OutgoingBatch) -> str:
    """What was said last, if anything: of the partition, or by the coordinator that does not let it in."""
    if queue.refusal is None:
        return ""
    return f"; the last attempt failed: {queue.refusal}" if batch.attempts else f"; {queue.refusal}"


def _is_beginning(queue: PartitionQueue) -> bool:
    """Whether the first batch of a producer in this partition is under way. A leader that does not know the
    producer yet takes whatever sequence comes first: if it refuses that batch for a moment, as where replicas
    are not in sync yet, it would take the next one in its place."""
    producer = queue.in_flight[0].producer if queue.in_flight else None
    return producer is not None and producer.base_sequence == 0


def _has_earlier(queue: PartitionQueue, batch: OutgoingBatch) -> bool:
    """Whether a batch in front of this one was not delivered yet."""
    others = (*queue.in_flight, *queue.closed)
    return any(other.number < batch.number and other.producer is not None for other in others)


def _put_back(queue: PartitionQueue, batch: OutgoingBatch) -> None:
    """Before the batches that were made after it."""
    if batch in queue.closed:  # by a step that was interrupted
        return
    at = 0
    while at < len(queue.closed) and queue.closed[at].number < batch.number:
        at += 1
    queue.closed.insert(at, batch)
