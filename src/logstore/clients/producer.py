"""The producer: sends records to topics, gathered in batches, and tells what became of each.

A thread of its own sends what has lingered, and what has to be tried again. It starts with a record, and ends
when nothing was sent for a second. Full batches are sent by the thread that fills them. With a clock set by
hand there is no thread: a test calls
:meth:`Producer.run_due`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from logstore.arguments import check_callable, check_callback, plain_text, shown
from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import RETRIABLE, error_of
from logstore.broker.pending import Pending, wait_for
from logstore.broker.requests import DescribeConfigsRequest, DescribedConfig, MetadataRequest, TopicMetadata
from logstore.clients.accumulator import NEVER_MS, Accumulator, PartitionQueue, TopicQueues, check_field
from logstore.clients.counts import ProducerCounts
from logstore.clients.interceptors import Departure, ProducerInterceptor, ProducerRecord
from logstore.clients.looks import Looks
from logstore.clients.outgoing import OnDelivery, Sent
from logstore.clients.sender import Sender
from logstore.clients.settings import ProducerConfig
from logstore.clients.transactions.transacting import RunBackground, Transacting
from logstore.clients.transactions.transaction import Transaction
from logstore.clock import Clock, SystemClock
from logstore.config import UNLIMITED, TopicConfig
from logstore.errors import (
    InvalidRecordError,
    LogstoreError,
    RetriableError,
    UnknownPartitionError,
    UsageError,
)
from logstore.format.loops import partition_for_key
from logstore.lock import ForkFlag
from logstore.model import BoundToProcess, Moment
from logstore.partition.arguments import check_timeout
from logstore.schedule import rest_at_exit, rest_no_more, start_thread
from logstore.serializing import EncoderChoice
from logstore.turns import Bell
from logstore.warning import is_due, warn

T = TypeVar("T")

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""Topic, key, value and the number of partitions -> a partition."""

_ANY_RECORD: Final = TopicConfig(
    max_message_bytes=2**31 - 1, message_timestamp_after_max_ms=UNLIMITED, message_timestamp_unit_check=False
)
"""Of a topic whose settings the client may not know: the right to write does not include that. The broker
checks the records."""
_LONGEST_WAIT_MS = 3_600_000
_LEAST_BACKOFF_MS = 100
"""Between an error of the thread and its next try, whatever ``retry_backoff_ms`` is."""
_END_SECONDS = 1.0
"""How long a program that ends waits for the thread, which may be in a callback."""
_REST_MS = 1_000
"""So long without a record, and the thread ends: thousands of producers may have an open transaction each."""


class Producer(BoundToProcess):
    """Sends records. Made by :meth:`.Store.producer`. Use it in a ``with`` statement, or call :meth:`close`.

    All methods may be called from many threads. Records of one partition that one thread sends stay in their
    order.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        config: ProducerConfig | None = None,
        clock: Clock | None = None,
        partitioner: Partitioner | None = None,
        key_serializer: EncoderChoice | None = None,
        value_serializer: EncoderChoice | None = None,
        interceptors: Iterable[ProducerInterceptor] = (),
        run_background: RunBackground | None = None,
    ) -> None:
        """``run_background``: for a broker whose clock is set by hand.

        Raises:
            LogstoreError: the coordinator refuses the transactional id.
        """
        if partitioner is not None:
            check_callable(partitioner, "partitioner")
        departure = Departure(key_serializer, value_serializer, interceptors)
        self._departure = departure if departure.is_needed else None
        self.config = config or ProducerConfig()
        """The settings."""
        self._broker = broker
        self._clock = clock or SystemClock()
        self._has_thread = isinstance(self._clock, SystemClock)
        self._partitioner = partitioner
        self._fork_flag = ForkFlag.watch()
        self._accumulator = Accumulator(self.config, self._clock, self._tell_sender)
        self._topics = self._accumulator.topics
        self._looks: Looks | None = None
        self._given_now_ms = self._accumulator.given_now_ms
        self._bell = Bell()
        self._wakes_ms = NEVER_MS
        """When the thread wakes by itself, by the monotonic clock. :data:`NEVER_MS` while it is awake, or not
        there: then it has to be told of everything."""
        self.counts = ProducerCounts(self._accumulator)
        """What it has sent."""
        wake, name = self._bell.ring, self.config.transactional_id
        self._transacting = (
            None
            if name is None
            else Transacting(broker, name, self.config, self._clock, wake, run_background)
        )
        self._sender = Sender(
            broker, self._accumulator, self.config, self._clock, wake, self.counts, self._transacting
        )
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_ending = False
        if self._transacting is not None:
            self._transacting.start()

    # Sending

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Any = (),
        timestamp_ms: Moment | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Sent:
        """Send one record, and return at once.

        The key decides the partition, as in Kafka's Java client (murmur2). Records without a key go to one
        partition until it has a batch's worth of them, then to the next (KIP-794).

        Args:
            topic: an existing topic.
            value: bytes, or what the value serializer takes; None for a tombstone.
            key: bytes, or what the key serializer takes; or None (not in a compacted topic).
            partition: its number; by default the key, or the producer's partitioner, decides.
            headers: pairs of str and bytes or None, or a mapping.
            timestamp_ms: milliseconds since the epoch, or a datetime with its time zone; default now.
            on_delivery: called with ``(delivered, error)``, one of which is None; see
                :meth:`.Sent.add_callback`.

        Returns:
            What tells of the record: ``result()`` waits until it is delivered.

        Raises:
            UnknownTopicError: there is no such topic or partition.
            UsageError: an argument is of another type.
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: the record is refused. Nothing was
                sent.
            RetriableError: ``buffer_memory`` was used up for ``max_block_ms``.
            InvalidTransactionStateError: the producer has a transactional id, and no transaction is open, or
                the outcome of its end is not known.
            ClosedError, ForkedError: the producer cannot be used.
            Exception: what an interceptor raises. Nothing was sent.
        """
        try:
            if self._departure is not None:
                self._fork_flag.check_usable("the producer", is_closed=self._is_closed)
                given = ProducerRecord(topic, value, key, partition, headers, timestamp_ms)
                topic, value, key, partition, headers, timestamp_ms = self._departure.prepare(given)
            if on_delivery is not None:
                check_callback(on_delivery, "on_delivery")
            queues = self._topics.get(topic) if type(topic) is str else None
            if (
                queues is None
                or self._partitioner is not None
                or self._is_closed
                or self._fork_flag.is_forked
            ):
                queues = self._queues_of(topic)
            if partition is None and self._partitioner is None:
                queue = queues.sticky if key is None else self._queue_for(topic, queues, key)
            else:
                queue = self._queue_at(topic, queues, partition, key, value)
            batch = queue.open
            now_ms = self._given_now_ms
            number = (
                None
                if batch is None
                else batch.gather(value, key, headers, timestamp_ms, None if now_ms is None else now_ms())
            )
            if batch is None or number is None:
                if self._transacting is not None:  # what has an open batch was let in, for its own thread
                    self._transacting.check_may_send()
                if self._clock.monotonic_ms() >= queues.look_ms:
                    queue = self._look_again(topic, queues, queue, partition, key, value)
                try:
                    batch, number = self._accumulator.add(queue, value, key, headers, timestamp_ms)
                except InvalidRecordError as refused:
                    queue = self._look_again(topic, queues, queue, partition, key, value, refused)
                    batch, number = self._accumulator.add(queue, value, key, headers, timestamp_ms)
                if self._accumulator.ready:
                    self._drive()
            if on_delivery is not None:
                batch.call_when_done(number, on_delivery)
            return Sent(batch, number)
        except LogstoreError as error:
            if self._transacting is not None:
                self._transacting.note_refused(error)
            raise

    def _queue_for(self, topic: str, queues: TopicQueues, key: Any) -> PartitionQueue:
        if type(key) is not bytes:
            key = check_field("key", key)
        number = partition_for_key(key, len(queues.partitions))
        return queues.partitions[number] or self._queue_at(topic, queues, number, key, None)

    def _queue_at(
        self, topic: str, queues: TopicQueues, partition: Any, key: Any, value: Any
    ) -> PartitionQueue:
        """The partition of that number; if it is None, the one that the partitioner chooses.

        Raises:
            UnknownPartitionError: no broker has a partition of that number.
        """
        number = partition
        if number is None:
            assert self._partitioner is not None
            number = self._partitioner(topic, key, value, len(queues.partitions))
        if type(number) is not int:
            raise UsageError(f"partition is {shown(number)}; it must be a whole number")
        queue = queues.at(number)
        if queue is None:  # it may be new
            queues = self._ask_for(topic)
            queue = queues.at(number)
        if queue is None:
            raise UnknownPartitionError(
                f"topic {topic!r} has no partition {number} here; it has {len(queues.partitions)}, from 0 on"
            )
        return queue

    def _look_again(
        self,
        topic: str,
        known: TopicQueues,
        queue: PartitionQueue,
        partition: Any,
        key: Any,
        value: Any,
        refused: InvalidRecordError | None = None,
    ) -> PartitionQueue:
        """Where a record goes by what the topic is like now: it may have other partitions and settings since.
        ``refused`` is raised if it has not: then the record stays refused.

        Raises:
            UnknownTopicError: it is gone.
        """
        try:
            queues = self._look(topic, known) if refused is None else self._ask_for(topic)
        except RetriableError:  # the broker does not answer: go on with what is known
            queues = known
        if queues is not known:
            if partition is None and self._partitioner is None:
                return queues.sticky if key is None else self._queue_for(topic, queues, key)
            return self._queue_at(topic, queues, partition, key, value)
        if refused is not None:
            raise refused
        return queue

    def _look(self, topic: str, known: TopicQueues) -> TopicQueues:
        """What a topic is like now, if the broker tells at once; otherwise what is known of it, until a later
        call finds the answer. A broker that is gone must not stop the program.

        Raises:
            UnknownTopicError: it is gone.
        """
        looks = self._looks
        if looks is None:  # seldom: most send for less than metadata_max_age_ms, and thousands may be kept
            looks = self._looks = Looks(self._broker, self._clock, self.config.metadata_max_age_ms)
        found = looks.look(topic)
        if found is None:
            return known
        wrong = _wrong_in(*found)
        if wrong is None:
            return self._take_in(topic, *found)
        if wrong.error not in RETRIABLE:
            return self._ask_for(topic)
        known.look_ms = self._clock.monotonic_ms() + self.config.metadata_max_age_ms
        return known

    def _queues_of(self, topic: Any) -> TopicQueues:
        """The partitions of a topic; asks the broker for one that is new.

        Raises:
            UnknownTopicError, ClosedError, ForkedError: see :meth:`send`.
        """
        self._fork_flag.check_usable("the producer", is_closed=self._is_closed)
        if self._transacting is not None:
            self._transacting.check_may_send()
        topic = plain_text(topic)
        queues = self._topics.get(topic) if type(topic) is str else None
        if queues is None:
            if type(topic) is not str:
                raise UsageError(f"topic is {shown(topic)}; it must be a name")
            queues = self._ask_for(topic)
        return queues

    def _ask_for(self, topic: str) -> TopicQueues:
        until = time.monotonic() + self.config.max_block_ms / 1000
        while True:
            found = _answer_until(until, self._broker.metadata(MetadataRequest((topic,))))
            described = _answer_until(until, self._broker.describe_configs(DescribeConfigsRequest((topic,))))
            if found is None or described is None:
                raise RetriableError(
                    f"the broker did not tell of topic {topic!r} within max_block_ms "
                    f"({self.config.max_block_ms}): its process may be stopped or overloaded, or the network "
                    "slow; send it again"
                )
            (metadata,), (settings,) = found.topics, described.topics
            wrong = _wrong_in(metadata, settings)
            if wrong is None:
                return self._take_in(topic, metadata, settings)
            pause = self.config.retry_backoff_ms / 1000
            if wrong.error not in RETRIABLE or time.monotonic() + pause > until:
                raise error_of(wrong.error, wrong.message or f"topic {topic!r}: {wrong.error.name}")
            time.sleep(pause)  # its nodes are about to hear of it, or to lead it

    def _take_in(self, topic: str, metadata: TopicMetadata, settings: DescribedConfig) -> TopicQueues:
        known = TopicConfig.setting_names()
        config = _ANY_RECORD
        if settings.error is ErrorCode.NONE:
            config = TopicConfig.from_properties(
                {each.name: each.value for each in settings.settings if each.name in known}
            )
        held = [each.is_somewhere for each in metadata.partitions]
        return self._accumulator.add_topic(topic, held, config)

    # Transactions

    def transaction(self) -> Transaction:
        """All or nothing: what is sent inside of the ``with`` statement counts when it is left, in all topics
        and partitions; after an exception nothing of it does (KIP-98). ``docs/transactions.md`` says more.

        ::

            with store.producer(transactional_id="billing-1") as producer:
                with producer.transaction() as transaction:
                    producer.send("invoices", b"...")
                    transaction.commit_offsets(consumer)

        Raises:
            UsageError: the producer has no transactional id.
            ClosedError, ForkedError: the producer cannot be used.
        """
        self._fork_flag.check_usable("the producer", is_closed=self._is_closed)
        if self._transacting is None:
            raise UsageError(
                "the producer has no transactional id: store.producer(transactional_id='billing-1')"
            )
        return Transaction(self._transacting, self._deliver)

    @property
    def is_fenced(self) -> bool:
        """Whether another producer has taken the transactional id, or the time of a transaction was up:
        nothing more can be sent."""
        return self._transacting is not None and self._transacting.is_fenced

    def _deliver(self) -> None:
        """Flush. With a clock set by hand, what is not delivered at once is an error."""
        self.flush()
        if self._accumulator.undelivered_count and not self._has_thread:
            raise RetriableError("records of the transaction are not delivered yet; call run_due()")

    # The thread

    def _tell_sender(self, due_ms: int) -> None:
        """There is something to send at this time, by the monotonic clock. The thread is not woken if it
        wakes by itself until then: a change of threads takes longer than sending a batch."""
        if not self._has_thread:
            return
        if self._thread is None:
            with self._accumulator.lock:
                if self._thread is None and not self._is_closed:
                    rest_at_exit(self, Producer._rest)
                    self._thread = start_thread(self._run, "logstore-producer", what="for the producer")
        if due_ms < self._wakes_ms:
            self._bell.ring()

    def _drive(self) -> None:
        """Do the thread's work in this one, and tell it what is left."""
        next_ms = self._sender.drive()
        if next_ms < self._wakes_ms:
            self._bell.ring()

    def _run(self) -> None:
        """The thread's loop until there is nothing to send. No error ends it earlier, such as no memory: what
        was sent would never be delivered."""
        accumulator, known_count = self._accumulator, -1
        told_at: dict[str, float] = {}
        while True:
            try:
                next_ms = self._sender.drive()
            except BaseException as error:
                if self._is_ending:
                    return
                if is_due(told_at, type(error).__name__):
                    warn("a producer goes on after %s: %s", type(error).__name__, error)
                next_ms = self._clock.monotonic_ms() + max(self.config.retry_backoff_ms, _LEAST_BACKOFF_MS)
            if self._is_ending or (self._is_closed and not accumulator.undelivered_count):
                return
            is_resting = False
            if accumulator.batch_count != known_count:  # others may follow: be awake before those are due
                known_count, longest_ms = accumulator.batch_count, self.config.linger_ms
            elif accumulator.undelivered_count:
                longest_ms = _LONGEST_WAIT_MS
            else:
                longest_ms, is_resting = _REST_MS, True
            now_ms = self._clock.monotonic_ms()
            self._wakes_ms = min(next_ms, now_ms + longest_ms)
            was_woken = self._bell.wait(max(self._wakes_ms - now_ms, 0) / 1000)
            self._wakes_ms = NEVER_MS
            if is_resting and not was_woken and not self._stays():
                return

    def _stays(self) -> bool:
        """Whether the thread has more to do. First it is gone, and then it looks. Who adds a record counts it
        first, and then looks for a thread. So one of the two sees the other."""
        thread, self._thread = self._thread, None
        if not self._accumulator.undelivered_count and not self._is_closed:
            with self._accumulator.lock:
                if self._thread is None:  # else another was started meanwhile, and rests at the end
                    rest_no_more(self)
            return False
        with self._accumulator.lock:
            if self._thread is not None:
                return False  # another was started meanwhile
            self._thread = thread
            return True

    def _rest(self) -> None:
        """The program ends, and threads with it, wherever they are: a finalizer has to send by itself."""
        self._is_ending, self._has_thread = True, False
        thread = self._thread
        if thread is not None and thread.is_alive():  # not that of a parent process
            self._bell.ring()
            thread.join(_END_SECONDS)

    def run_due(self) -> int:
        """Send what is due, in this thread. For a producer with a clock set by hand, which has no thread.
        Returns when to call again, by its monotonic clock."""
        return self._sender.drive()

    # The end

    def flush(self, timeout: float | None = None) -> None:
        """Return when every record sent before the call is delivered or has failed, and its callbacks have
        returned.

        Raises:
            LogstoreError: the first error of records that have failed since the last flush, unless
                ``result()`` or a callback has reported it already.
            RetriableError: the time is over; they are still tried.
            UsageError: called from a callback, which would wait for itself; or ``timeout`` is no number of
                seconds, 0 or above.
        """
        self._fork_flag.check_usable("the producer", is_closed=False)
        if self._sender.is_driven_here:
            raise UsageError("flush() and close() cannot be called from a callback: they would wait for it")
        self._flush(timeout)
        error = self._sender.take_error()
        if error is not None:
            raise error

    def _flush(self, timeout: float | None) -> None:
        timeout = None if timeout is None else check_timeout(timeout)
        deadline_ms = None if timeout is None else self._clock.monotonic_ms() + int(timeout * 1000)
        waiting = self._accumulator.undelivered()
        self._sender.flush_count += 1
        try:
            for batch in waiting:
                self._drive()
                left = None
                if deadline_ms is not None:
                    left = max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000
                if not self._has_thread and not batch.is_done:
                    break  # a clock set by hand: run_due() goes on
                if not batch.wait_until_told(left):
                    raise RetriableError(
                        f"records for {batch.partition} are not delivered after {timeout:g} s; they are "
                        "tried on"
                    )
        finally:
            self._sender.flush_count -= 1

    def close(self, timeout: float | None = None) -> None:
        """Deliver what was sent, and take no more. An open transaction is aborted, unless a commit without an
        answer has come through. You may call it again.

        A producer that waits because of a quota sends what is left at once. It counts: the client's next
        producer waits for longer.

        Raises:
            LogstoreError, RetriableError, UsageError: as :meth:`flush`. The producer is closed all the same.
                After a time-out, records are tried on until ``delivery_timeout_ms`` is over.
        """
        if self._is_closed:
            return
        self._sender.send_the_rest()
        try:
            self.flush(timeout)
            if self._transacting is not None and self._transacting.is_open:
                self._transacting.end(committed=False)
        finally:
            self._is_closed = True
            self._accumulator.close()
            self._bell.ring()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        transacting = self._transacting
        was_in_doubt = transacting is not None and transacting.is_in_doubt
        try:
            self.close()
        except LogstoreError as failure:
            if error is not None:
                error.add_note(f"and the producer: {failure}")
        else:
            if was_in_doubt and transacting is not None and error is not None:
                error.add_note(
                    f"and the producer was closed with its transaction: {transacting.outcome.value}"
                )

    def __repr__(self) -> str:
        return f"<Producer, {'closed' if self._is_closed else 'open'}>"


def _answer_until(until: float, pending: Pending[T]) -> T | None:
    """What was asked, if it is answered by then, in seconds of the monotonic clock."""
    return wait_for(pending, max(until - time.monotonic(), 0))


def _wrong_in(metadata: TopicMetadata, settings: DescribedConfig) -> TopicMetadata | DescribedConfig | None:
    """The answer that says that a record cannot be sent. The right to write does not include the settings."""
    if metadata.error is not ErrorCode.NONE:
        return metadata
    is_told = settings.error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return settings if is_told and settings.error is not ErrorCode.NONE else None
