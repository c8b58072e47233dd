"""Where records gather before they are sent: an open batch for each partition, and the closed ones behind it.

Knows topics, their partitions and the rules for records; does not know who sends. Most records are added by
one compiled call that takes no lock (:attr:`OutgoingBatch.gather`); all others by :meth:`Accumulator.add`.

Lock: :attr:`Accumulator.lock` guards which batch is open, the closed ones, and the memory that is in use.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from logstore.clients.outgoing import NO_OFFSET, OutgoingBatch
from logstore.clients.settings import ProducerConfig
from logstore.clock import Clock, SystemClock
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import ClosedError, RecordTooLargeError, RetriableError, UsageError
from logstore.format.gathered import RowRules, record_bytes
from logstore.model import TopicPartition
from logstore.partition.encoding.planning import check_keys, check_timestamps
from logstore.partition.encoding.row_encoder import RowEncoder
from logstore.partition.encoding.rows import (
    check_headers,
    check_payload,
    check_timestamp_types,
    plain_timestamp,
)
from logstore.turns import held_here

NEVER_MS: Final = 2**62
"""By any clock."""

_FIRST_BYTES: Final = 2_048
_GROWTH: Final = 4
"""A batch first takes as much of ``buffer_memory`` as the last one of its partition needed, at least the
first bytes, and then some times more: thousands of partitions have batches open that stay small."""

handed_over_at: Final[ContextVar[float | None]] = ContextVar("handed_over_at", default=None)
"""Since when the record that this thread sends has waited for it (``time.monotonic()``): ``max_block_ms``
counts from then on."""


class PartitionQueue:
    """The batches of one partition that are not delivered yet, oldest first."""

    __slots__ = (
        "batch_count",
        "closed",
        "encoder",
        "identity",
        "in_flight",
        "last_bytes",
        "next_sequence",
        "open",
        "partition",
        "refusal",
        "retry_at_ms",
    )

    def __init__(self, partition: TopicPartition, encoder: RowEncoder) -> None:
        self.partition = partition
        self.encoder = encoder
        self.open: OutgoingBatch | None = None
        """What records gather in."""
        self.closed: list[OutgoingBatch] = []  # a few; an empty list takes a tenth of a deque's memory
        """Encoded, and waiting to be sent."""
        self.in_flight: list[OutgoingBatch] = []
        """Sent, and waiting for the result."""
        self.batch_count = 0
        self.last_bytes = 0
        """How large the last batch became."""
        self.identity: tuple[int, int] | None = None
        """The producer id and epoch that its batches are stamped with."""
        self.next_sequence = 0
        self.retry_at_ms = -1
        """Send nothing before, by the monotonic clock: the oldest batch has failed and is tried again."""
        self.refusal: str | None = None
        """Why the last attempt failed."""


class TopicQueues:
    """The partitions of a topic, and the one that records without a key go to."""

    __slots__ = (
        "_batch_size",
        "_sticky_bytes",
        "_sticky_number",
        "config",
        "look_ms",
        "partitions",
        "sticky",
    )

    def __init__(
        self, partitions: list[PartitionQueue | None], config: TopicConfig, batch_size: int, look_ms: int
    ) -> None:
        self.partitions = partitions
        """By number; None for those that no broker has."""
        self.config = config
        """The topic's settings, as far as they are rules for records."""
        self.look_ms = look_ms
        """When to ask the broker again, by the monotonic clock."""
        self._batch_size = batch_size
        self._sticky_bytes = 0
        self._sticky_number = -1
        self.sticky: PartitionQueue = self._next_sticky()

    def is_like(self, held: list[bool], config: TopicConfig) -> bool:
        """Whether the topic has these partitions and settings."""
        return [each is not None for each in self.partitions] == held and self.config == config

    def at(self, number: int) -> PartitionQueue | None:
        """The partition of that number; None if no broker has it."""
        return self.partitions[number] if 0 <= number < len(self.partitions) else None

    def note_bytes(self, queue: PartitionQueue, size_bytes: int) -> None:
        """A batch of so many bytes was closed. After a whole batch's worth, records without a key go to the
        next partition (KIP-794)."""
        if queue is self.sticky:
            self._sticky_bytes += size_bytes
            if self._sticky_bytes >= self._batch_size:
                self._sticky_bytes = 0
                self.sticky = self._next_sticky()

    def _next_sticky(self) -> PartitionQueue:
        count = len(self.partitions)
        for _ in range(count):
            self._sticky_number = (self._sticky_number + 1) % count
            queue = self.partitions[self._sticky_number]
            if queue is not None:
                return queue
        raise AssertionError("a topic without partitions")


class Accumulator:
    """Of one producer."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_config",
        "_has_room",
        "_is_closed",
        "_is_held_here",
        "_is_short",
        "_lost",
        "_opened",
        "_tell_sender",
        "_used_bytes",
        "batch_count",
        "given_now_ms",
        "is_driven_here",
        "lock",
        "ready",
        "topics",
        "undelivered_count",
    )

    def __init__(self, config: ProducerConfig, clock: Clock, tell_sender: Callable[[int], object]) -> None:
        """``tell_sender`` is told when there is something to send, by the monotonic clock."""
        self._config = config
        self._clock = clock
        self.given_now_ms = None if type(clock) is SystemClock else clock.now_ms
        """None: the compiled code asks the machine's clock by itself."""
        self._tell_sender = tell_sender
        self.is_driven_here: Callable[[], bool] = lambda: False
        """Whether the calling thread is sending, so that it runs in a callback. The sender sets this."""
        self.lock = threading.RLock()
        self._is_held_here = held_here(self.lock)
        self._has_room: threading.Condition | None = None
        """Made when a thread waits for memory."""
        self._used_bytes = 0
        self._is_closed = False
        self._opened: list[tuple[OutgoingBatch, PartitionQueue]] = []
        """The open batches, oldest first, and some that were closed since."""
        self._is_short = False
        """Whether a thread waits for memory: then nothing lingers."""
        self.topics: dict[str, TopicQueues] = {}
        self._lost: tuple[PartitionQueue, ...] = ()
        """Partitions that their topics have lost since."""
        self.ready: list[PartitionQueue] = []
        """Partitions with closed batches."""
        self.undelivered_count = 0
        """Batches, open ones among them."""
        self.batch_count = 0
        """The same, with all that were delivered."""

    # Topics

    def add_topic(self, name: str, held: list[bool], config: TopicConfig) -> TopicQueues:
        """A topic whose partitions are ``held`` by a broker, or not, by their numbers: a new one, or one that
        may have changed since it was added. Batches that are under way keep their place."""
        look_ms = self._clock.monotonic_ms() + self._config.metadata_max_age_ms
        with self.lock:
            config, known = _shared(config), self.topics.get(name)
            if known is not None and known.is_like(held, config):
                known.look_ms = look_ms
                return known
            encoder = _encoder_for(config, self._config)
            queues = {each.partition: each for each in self._lost if each.partition.topic == name}
            if known is not None:
                queues.update((each.partition, each) for each in known.partitions if each is not None)
            partitions = [
                _queue_for(queues, TopicPartition(name, number), encoder) if is_held else None
                for number, is_held in enumerate(held)
            ]
            topic = TopicQueues(partitions, config, self._config.batch_size, look_ms)
            self.topics[name] = topic
            others = [each for each in self._lost if each.partition.topic != name]
            self._lost = (*others, *queues.values())
            return topic

    def queues(self) -> Iterator[PartitionQueue]:
        """Of all topics, those among them that have lost partitions since."""
        for topic in self.topics.values():
            yield from filter(None, topic.partitions)
        yield from self._lost

    def undelivered(self) -> list[OutgoingBatch]:
        """The batches that are not delivered yet, or being told to callbacks. Oldest first in a partition."""
        with self.lock:
            return [
                batch
                for queue in self.queues()
                for batch in (*queue.in_flight, *queue.closed, *([queue.open] if queue.open else ()))
            ]

    # Records

    def add(
        self, queue: PartitionQueue, value: Any, key: Any, headers: Any, timestamp_ms: Any
    ) -> tuple[OutgoingBatch, int]:
        """Add a record for which :attr:`OutgoingBatch.gather` had no room, or that it would not take. Returns
        its batch and its number there.

        Raises:
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: the topic's rules refuse it.
            RetriableError: there was no memory within ``max_block_ms``.
            ClosedError: the producer is closed.
            UsageError: this thread is within another call.
        """
        now_ms = self._clock.now_ms()
        value, key, headers = check_field("value", value), check_field("key", key), check_headers(headers)
        stamp_ms = now_ms
        config = queue.encoder.config
        if timestamp_ms is not None:
            stamp_ms = plain_timestamp(timestamp_ms)
            check_timestamp_types((stamp_ms,))
            check_timestamps((stamp_ms,), config, now_ms, by_unit=True)
        if key is None and config.compacts:
            check_keys((key,))
        size_bytes = record_bytes(key, value, headers)
        if size_bytes > self._config.buffer_memory:
            raise RecordTooLargeError(
                f"the record takes {size_bytes} bytes, more than buffer_memory, {self._config.buffer_memory}"
            )
        row = (key, value, stamp_ms, headers)
        if self._is_held_here():
            raise UsageError(
                "send() was called by a signal handler or a finalizer that has interrupted the producer in "
                "this thread. Let that set a flag or an event, and send elsewhere"
            )
        if size_bytes > queue.encoder.max_record_bytes:
            return self._add_alone(queue, row, size_bytes, now_ms)
        with self.lock:
            batch = self._batch_for_locked(queue, size_bytes)
            number = batch.rows.put(row, size_bytes)
            self._let_others_follow_locked(batch)
            return batch, number

    def _add_alone(
        self, queue: PartitionQueue, row: Any, size_bytes: int, now_ms: int
    ) -> tuple[OutgoingBatch, int]:
        """A record of unusual size is a batch of its own: only encoding it tells whether it fits."""
        key, value, stamp_ms, headers = row
        (data,) = queue.encoder.encode([(key, value, stamp_ms, headers)], now_ms)
        with self.lock:
            self._wait_for_room_locked(size_bytes)
            self.close_open_locked(queue)
            batch = self._new_batch(queue, queue.encoder.rules)
            self._close_locked(queue, batch, data, 1, size_bytes, is_new=True)
        self._tell_sender(batch.created_ms)
        return batch, 0

    def _batch_for_locked(self, queue: PartitionQueue, size_bytes: int) -> OutgoingBatch:
        """The open batch, with room for a record."""
        self._check_open_locked()
        while True:
            batch = queue.open
            if batch is not None and not batch.rows.must_drain_before(size_bytes):
                return batch
            if batch is not None and not batch.is_full_for(size_bytes, queue.encoder.rules):
                more_bytes = self._growth_of(batch, size_bytes)
                if not self._wait_for_room_locked(more_bytes):  # else it may have been closed
                    self._reserve_locked(batch, queue, more_bytes)
                continue
            if batch is not None:
                self.close_open_locked(queue)
                self.topics[queue.partition.topic].note_bytes(queue, self._config.batch_size)
            reserved_bytes = self._first_bytes_of(queue, size_bytes)
            if self._wait_for_room_locked(reserved_bytes):
                continue  # another thread may have opened a batch meanwhile
            return self._open_batch_locked(queue, reserved_bytes)

    def _first_bytes_of(self, queue: PartitionQueue, size_bytes: int) -> int:
        least = max(min(_FIRST_BYTES, self._config.batch_size), size_bytes)
        wanted = max(min(queue.last_bytes, self._config.batch_size), least)
        return wanted if self._has_room_for(wanted) else least

    def _growth_of(self, batch: OutgoingBatch, size_bytes: int) -> int:
        needed = batch.rows.size_bytes + size_bytes - batch.size_bytes
        wanted = min(batch.size_bytes * _GROWTH, self._config.batch_size) - batch.size_bytes
        return wanted if wanted > needed and self._has_room_for(wanted) else needed

    def _reserve_locked(self, batch: OutgoingBatch, queue: PartitionQueue, more_bytes: int) -> None:
        """Let a batch take more of ``buffer_memory``."""
        self._used_bytes += more_bytes
        batch.size_bytes += more_bytes
        batch.rows.use_rules(_rules_within(queue.encoder, batch.size_bytes), queue.encoder.max_record_bytes)

    def _let_others_follow_locked(self, batch: OutgoingBatch) -> None:
        """Until the batch is closed, other records may be added without the lock: in a transaction, by the
        thread that has begun it, which is this one."""
        batch.rows.open_gate(0, NEVER_MS, self._config.transactional_id is not None)

    def _new_batch(self, queue: PartitionQueue, rules: RowRules) -> OutgoingBatch:
        now_ms = self._clock.monotonic_ms()
        batch = OutgoingBatch(queue.partition, rules, queue.encoder.max_record_bytes, now_ms)
        batch.is_driven_here = self.is_driven_here
        return batch

    def _open_batch_locked(self, queue: PartitionQueue, size_bytes: int) -> OutgoingBatch:
        batch = self._new_batch(queue, _rules_within(queue.encoder, size_bytes))
        batch.size_bytes = size_bytes
        self._opened.append((batch, queue))
        self._tell_sender(batch.created_ms + self._config.linger_ms)
        used_bytes, undelivered_count, batch_count = self._counts_with(size_bytes, 1)
        # From here on values only move: an interrupt leaves all of it, or nothing.
        queue.open, self._used_bytes = batch, used_bytes
        self.undelivered_count, self.batch_count = undelivered_count, batch_count
        return batch

    def _counts_with(self, more_bytes: int, more_batches: int) -> tuple[int, int, int]:
        """The counts of what is not delivered, and of all batches, with so much more."""
        return (
            self._used_bytes + more_bytes,
            self.undelivered_count + more_batches,
            self.batch_count + more_batches,
        )

    def _wait_for_room_locked(self, size_bytes: int) -> bool:
        """Wait until ``size_bytes`` more may be kept. Returns whether it waited.

        Raises:
            RetriableError, ClosedError: see :meth:`add`.
        """
        self._check_open_locked()
        if self._has_room_for(size_bytes):
            return False
        self._is_short = True
        self._tell_sender(self._clock.monotonic_ms())
        if self._has_room is None:
            self._has_room = threading.Condition(self.lock)
        if not self._has_room.wait_for(
            lambda: self._is_closed or self._has_room_for(size_bytes), self._seconds_to_block()
        ):
            raise RetriableError(
                f"{self._used_bytes} bytes wait to be delivered, and there was no room for more within "
                f"max_block_ms ({self._config.max_block_ms}); {self._why_full_locked()}"
            )
        self._check_open_locked()
        return True

    def _seconds_to_block(self) -> float:
        """How long the caller may still wait for memory."""
        waits_since = handed_over_at.get()
        waited_seconds = 0 if waits_since is None else time.monotonic() - waits_since
        return max(self._config.max_block_ms / 1000 - waited_seconds, 0)

    def _why_full_locked(self) -> str:
        """Why nothing is delivered; or else what to do."""
        for queue in self.queues():
            if queue.refusal is not None:
                return f"the last attempt for {queue.partition} failed: {queue.refusal}"
        return f"send less, or raise buffer_memory ({self._config.buffer_memory})"

    def _has_room_for(self, size_bytes: int) -> bool:
        return not self._used_bytes or self._used_bytes + size_bytes <= self._config.buffer_memory

    def _check_open_locked(self) -> None:
        if self._is_closed:
            raise ClosedError("the producer is closed")

    # Batches

    def close_open_locked(self, queue: PartitionQueue) -> None:
        """Encode what has gathered, and let it wait to be sent."""
        batch = queue.open
        if batch is None:
            return
        rows = batch.rows
        rows.close_gate()
        if not rows.row_count:  # an interrupt came before its first record
            queue.open = None
            batch.succeed(NO_OFFSET, -1)
            self.forget_locked(batch)
            return
        (data,) = queue.encoder.encode_gathered(rows, self._clock.now_ms())
        self._close_locked(queue, batch, data, rows.row_count, rows.size_bytes)
        rows.clear()

    def _close_locked(
        self,
        queue: PartitionQueue,
        batch: OutgoingBatch,
        data: bytearray | memoryview,
        record_count: int,
        size_bytes: int,
        *,
        is_new: bool = False,
    ) -> None:
        self.ready.append(queue)  # first, and maybe in vain or twice: an interrupt must not come in between
        closed, number = [*queue.closed, batch], queue.batch_count
        next_number, more_bytes = number + 1, size_bytes - batch.size_bytes
        used_bytes, undelivered_count, batch_count = self._counts_with(more_bytes, is_new)
        # From here on values only move: an interrupt leaves all of it, or nothing.
        batch.data, batch.record_count = data, record_count
        batch.number, batch.size_bytes = number, size_bytes
        self._used_bytes, self.undelivered_count = used_bytes, undelivered_count
        self.batch_count, queue.batch_count = batch_count, next_number
        queue.closed = closed
        if not is_new:
            queue.last_bytes, queue.open = size_bytes, None

    def close_due_locked(self, now_ms: int, *, is_flushing: bool) -> int:
        """Close the batches that have lingered for their time; all, if records are to be flushed or somebody
        waits for memory. Returns when the next is due, by the monotonic clock."""
        closes_all = is_flushing or self._is_short
        self._is_short = False
        done_count, next_ms = 0, NEVER_MS
        for batch, queue in self._opened:
            if queue.open is batch:
                due_ms = batch.created_ms + self._config.linger_ms
                if due_ms > now_ms and not closes_all:
                    next_ms = due_ms
                    break
                self.close_open_locked(queue)
                self.topics[queue.partition.topic].note_bytes(queue, batch.size_bytes)
            done_count += 1
        del self._opened[:done_count]
        return next_ms

    def forget_locked(self, batch: OutgoingBatch) -> None:
        """A batch is delivered, or has failed: its memory may be used again. Said twice, it counts once."""
        if not batch.is_forgotten:
            used_bytes, undelivered_count, _ = self._counts_with(-batch.size_bytes, -1)
            batch.is_forgotten = True
            self._used_bytes, self.undelivered_count = used_bytes, undelivered_count
        if self._has_room is not None:
            self._has_room.notify_all()

    def used_bytes(self) -> int:
        """How much of ``buffer_memory`` is in use."""
        return self._used_bytes

    def close(self) -> None:
        """Take no more records."""
        with self.lock:
            self._is_closed = True
            if self._has_room is not None:
                self._has_room.notify_all()
            for batch, queue in self._opened:
                if queue.open is batch:
                    batch.rows.close_gate()


def _rules_within(encoder: RowEncoder, size_bytes: int) -> RowRules:
    """Those of a batch that has so much memory."""
    rules = encoder.rules
    return rules._replace(limit_bytes=size_bytes) if size_bytes < rules.limit_bytes else rules


def _queue_for(
    known: dict[TopicPartition, PartitionQueue], partition: TopicPartition, encoder: RowEncoder
) -> PartitionQueue:
    """The one that is known, which is taken out, or a new one."""
    queue = known.pop(partition, None) or PartitionQueue(partition, encoder)
    queue.encoder = encoder
    return queue


def check_field(name: str, payload: Any) -> bytes | None:
    """A key or value as bytes.

    Raises:
        InvalidRecordError: it is neither bytes-like nor None.
    """
    return check_payload(name, payload, serializing='store.producer({name}_serializer="{kind}")')


def _encoder_for(topic: TopicConfig, config: ProducerConfig) -> RowEncoder:
    """Encodes by the topic's rules, with the producer's codec and size of batches."""
    return _shared_encoder(topic, config.compression, config.batch_size)


@lru_cache(maxsize=64)
def _shared_encoder(topic: TopicConfig, compression: str, batch_size: int) -> RowEncoder:
    """Thousands of producers may send to few topics."""
    codec = "producer" if compression == "none" else compression
    rules = replace(topic, compression_type=codec, message_timestamp_type="CreateTime")
    return RowEncoder(StoreConfig(batch_bytes=batch_size), rules)


@lru_cache(maxsize=64)
def _shared(topic: TopicConfig) -> TopicConfig:
    """The same settings, in one object for all producers."""
    return topic
