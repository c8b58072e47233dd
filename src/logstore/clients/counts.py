"""What producers and consumers count, and where a store keeps it: also of those that are gone.

Each client counts alone, in the thread that drives it, once per batch, poll or fetch. :class:`ClientCounts`
adds up when asked.

Lock: ``_lock`` of :class:`ClientCounts` guards its lists and totals.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from logstore.clients.positions import Positions
from logstore.clients.settings import DELIVERY_SECONDS
from logstore.counting import BYTES, SECONDS, Histogram
from logstore.errors import LogstoreError
from logstore.model import TopicPartition
from logstore.warning import warn


class Buffer(Protocol):
    """Where records wait to be delivered."""

    def used_bytes(self) -> int:
        """How much memory they take."""
        ...


class ProducerCounts:
    """What one producer has sent."""

    __slots__ = (
        "_buffer",
        "batch_bytes",
        "delivered_bytes",
        "delivered_record_count",
        "delivery_seconds",
        "failed_record_count",
        "retry_count",
    )

    def __init__(self, buffer: Buffer | None = None) -> None:
        self._buffer = None if buffer is None else weakref.ref(buffer)
        """Weak: a store keeps the counts of a producer until that is gone, and the buffer knows it."""
        self.delivered_record_count = 0
        self.delivered_bytes = 0
        """Of encoded batches."""
        self.failed_record_count = 0
        self.retry_count = 0
        """Batches that were sent again."""
        self.batch_bytes = Histogram(BYTES)
        self.delivery_seconds = Histogram(SECONDS)
        """From the first record of a batch until it was delivered; lingering counts."""

    def buffered_bytes(self) -> int:
        """The memory of the records that are not delivered yet."""
        buffer = None if self._buffer is None else self._buffer()
        return 0 if buffer is None else buffer.used_bytes()

    def note_delivered(self, record_count: int, size_bytes: int, elapsed_ms: int) -> None:
        """A batch was delivered."""
        self.delivered_record_count += record_count
        self.delivered_bytes += size_bytes
        self.batch_bytes.observe(size_bytes)
        self.delivery_seconds.observe(elapsed_ms / 1000)

    def add(self, other: ProducerCounts) -> None:
        """Add what another has counted."""
        self.delivered_record_count += other.delivered_record_count
        self.delivered_bytes += other.delivered_bytes
        self.failed_record_count += other.failed_record_count
        self.retry_count += other.retry_count
        self.batch_bytes.add(other.batch_bytes.value)
        self.delivery_seconds.add(other.delivery_seconds.value)


class ConsumerCounts:
    """What one consumer has read."""

    __slots__ = ("commit_count", "fetched_bytes", "is_member", "poll_count", "positions", "record_count")

    def __init__(self, positions: Positions | None = None) -> None:
        self.positions = positions
        """Where it is; None once it is closed."""
        self.is_member = False
        """Whether it joins its group, which is there then until it is deleted."""
        self.poll_count = 0
        self.record_count = 0
        self.fetched_bytes = 0
        self.commit_count = 0

    def add(self, other: ConsumerCounts) -> None:
        """Add what another has counted."""
        self.is_member = self.is_member or other.is_member
        self.poll_count += other.poll_count
        self.record_count += other.record_count
        self.fetched_bytes += other.fetched_bytes
        self.commit_count += other.commit_count

    def offsets(self) -> dict[TopicPartition, int]:
        """The next offset in each of its partitions, where that is known. From any thread."""
        return {} if self.positions is None else self.positions.offsets()


class _Adds(Protocol):
    def add(self, other: Self) -> None: ...


C = TypeVar("C", bound=_Adds)

_FEW: Final = 16


class _Kept(Generic[C]):
    """The counts of clients of one kind, and the sum of those that are gone."""

    def __init__(self, zero: Callable[[], C]) -> None:
        self._zero = zero
        self._gone = zero()
        self._there: list[tuple[weakref.ref[object], C]] = []
        self._look_at_count = _FEW

    def keep(self, client: object, counts: C) -> None:
        if len(self._there) >= self._look_at_count:  # seldom: thousands of clients may be kept
            self._look_at_count = max(2 * len(self.there()), _FEW)
        self._there.append((weakref.ref(client), counts))

    def clients(self) -> list[Any]:
        """Those that still exist."""
        return [client for reference, _ in self._there if (client := reference()) is not None]

    def there(self) -> list[C]:
        """The counts of the clients that still exist; adds up the others."""
        left = []
        for client, counts in self._there:
            if client() is None:
                self._gone.add(counts)
            else:
                left.append((client, counts))
        self._there = left
        return [counts for _, counts in left]

    def total(self) -> C:
        total = self._zero()
        for counts in [*self.there(), self._gone]:
            total.add(counts)
        return total


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """The consumers of one group, or of none."""

    counts: ConsumerCounts
    offsets: dict[TopicPartition, int]
    """The next offset of the open ones, the lowest of each partition."""
    open_count: int


class ClientCounts:
    """The clients of one store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._producers = _Kept(ProducerCounts)
        self._consumers: dict[str, _Kept[ConsumerCounts]] = {}

    def keep_producer(self, producer: object, counts: ProducerCounts) -> None:
        """Count a producer in, also when it is gone."""
        with self._lock:
            self._producers.keep(producer, counts)

    def keep_consumer(self, consumer: object, group: str | None, counts: ConsumerCounts) -> None:
        """Count a consumer in, also when it is gone."""
        with self._lock:
            self._consumers.setdefault(group or "", _Kept(ConsumerCounts)).keep(consumer, counts)

    def close_producers(self) -> None:
        """Close those that still exist: their store is about to be closed."""
        with self._lock:
            producers = self._producers.clients()
        for producer in producers:
            try:
                producer.close(DELIVERY_SECONDS)
            except LogstoreError as error:
                warn("a producer was closed with its store: %s", error)

    def producers(self) -> tuple[ProducerCounts, int]:
        """The sum of all producers, and the bytes that wait in them."""
        with self._lock:
            buffered = sum(counts.buffered_bytes() for counts in self._producers.there())
            return self._producers.total(), buffered

    def forget_groups(self, there: Container[str], used: Container[str]) -> None:
        """Forget what the consumers of groups have counted that were deleted or have expired, and have no
        open consumer. ``there``: the groups that the coordinator knows. ``used``: those with members or
        committed offsets."""
        with self._lock:
            for group, kept in list(self._consumers.items()):
                has_open = any(counts.positions is not None for counts in kept.there())
                total = kept.total()
                was_deleted = total.is_member and group not in there
                if not has_open and group not in used and (was_deleted or total.commit_count):
                    del self._consumers[group]

    def consumers(self) -> dict[str, GroupTotal]:
        """The sum of the consumers of each group; those without one have the group ``""``."""
        with self._lock:
            return {group: _total_of(kept) for group, kept in self._consumers.items()}


def _total_of(kept: _Kept[ConsumerCounts]) -> GroupTotal:
    offsets: dict[TopicPartition, int] = {}
    open_count = 0
    for counts in kept.there():
        open_count += counts.positions is not None
        for partition, offset in counts.offsets().items():
            offsets[partition] = min(offset, offsets.get(partition, offset))
    return GroupTotal(kept.total(), offsets, open_count)
