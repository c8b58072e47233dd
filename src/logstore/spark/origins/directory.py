"""The files of a directory: of a store, or of a Kafka broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import logstore
from logstore.errors import (
    CorruptionError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logstore.format.header import NO_EPOCH, PREFIX, leader_epoch_at
from logstore.logdir.identity import guessed_topic_id
from logstore.model import Isolation, TopicPartition
from logstore.partition.state.context import make_context
from logstore.partition.watching.pinned import OnDamage, PinnedRange, PinnedReader
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.spark.origins.origin import Bounds, Origin, ReadUpTo, TopicPartitions

if TYPE_CHECKING:
    import pyarrow


class _Batch(NamedTuple):
    base_offset: int
    epoch: int


class DirectoryOrigin(Origin):
    """A directory that every machine of the job has mounted at the same path."""

    def __init__(self, path: str, *, passes_damage: bool = False) -> None:
        """``path`` is absolute. With ``passes_damage``, damage at the end of a log is treated like damage
        elsewhere: records around it stay visible, and readers meet it when they get there."""
        self.path = path
        self._passes_damage = passes_damage
        self._store: logstore.Store | None = None
        self._looked_at: dict[TopicPartition, tuple[ReadOnlyLog, int]] = {}
        """How often logs had changed when their bounds were asked for last."""
        self._alike: dict[TopicPartition, tuple[ReadUpTo, tuple[ReadOnlyLog, int] | None]] = {}
        """What was read of logs that still had it, when they had changed so often."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_store": None, "_looked_at": {}, "_alike": {}}

    def _opened(self) -> logstore.Store:
        if self._store is None:
            self._store = logstore.open(self.path, read_only=True)
        return self._store

    def _log(self, partition: TopicPartition) -> ReadOnlyLog:
        return self._log_of(self._opened(), partition)

    def _log_of(self, store: logstore.Store, partition: TopicPartition) -> ReadOnlyLog:
        topic = store[partition.topic]
        try:
            log: Any = topic[partition.partition]
        except UnknownPartitionError as error:
            raise UnknownTopicError(f"{error} ({store.path})") from None
        assert isinstance(log, ReadOnlyLog)
        log.passes_damage = self._passes_damage
        return log

    def partitions(self) -> dict[str, TopicPartitions]:
        return {
            name: TopicPartitions(len(topic), topic.held_partitions) for name, topic in self._opened().items()
        }

    def topic_id(self, topic: str) -> str | None:
        topic_id = self._opened()[topic].topic_id
        return None if topic_id == guessed_topic_id(topic) else str(topic_id)

    def bounds(self, partition: TopicPartition, isolation: Isolation) -> Bounds:
        log = self._log(partition)
        offsets = log.readable_offsets(isolation)
        self._looked_at[partition] = log, log.change_count
        return Bounds(offsets.start, offsets.stop)

    def epochs_before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """A read of one batch for each partition."""
        for each in offsets:  # a log may have been cut since it was compared
            self._alike.pop(each, None)
        batches = {each: self._batch_with(each, offset - 1) for each, offset in offsets.items()}
        return {each: batch.epoch for each, batch in batches.items() if batch is not None}

    def parted(self, read: Mapping[TopicPartition, ReadUpTo]) -> dict[TopicPartition, int]:
        """A read of one batch for each partition that has changed, and some more for one that has parted."""
        found = {each: self._parted(each, known) for each, known in read.items()}
        return {each: offset for each, offset in found.items() if offset is not None}

    def _parted(self, partition: TopicPartition, known: ReadUpTo) -> int | None:
        now = (known, self._looked_at.get(partition))  # a change from then on is noticed by the next look
        if self._alike.get(partition) == now:
            return None
        last = self._batch_with(partition, known.offset - 1)
        if last is None or last.epoch != known.epoch:  # seldom
            with suppress(UnknownTopicError):
                start, end = self.bounds(partition, Isolation.LOG_END)
                found = self._parted_within(partition, known, start, min(known.offset, end))
                if found is not None:
                    return found
        self._alike[partition] = now
        return None

    def _parted_within(
        self, partition: TopicPartition, known: ReadUpTo, start: int, reach: int
    ) -> int | None:
        """Epochs rise with the offsets. The file of the epochs may be behind the batches."""
        last = self._batch_with(partition, reach - 1) if start < reach else None
        if last is None or last.epoch == known.epoch:
            return None
        if last.epoch < known.epoch:  # the records of that epoch are not here any more
            return reach
        first = self._first_above(partition, known.epoch, range(start, reach))
        if first is None or first.base_offset >= reach:  # compaction has removed what was read
            return None
        return first.base_offset

    def _first_above(self, partition: TopicPartition, epoch: int, offsets: range) -> _Batch | None:
        """The first batch of a later epoch; the last of the offsets is in one, or a later one is."""
        low, high = offsets.start, offsets.stop - 1
        while low < high:
            middle = (low + high) // 2
            batch = self._batch_with(partition, middle)
            if batch is not None and batch.epoch > epoch:
                high = middle
            else:
                low = middle + 1
        return self._batch_with(partition, low)

    def _batch_with(self, partition: TopicPartition, offset: int) -> _Batch | None:
        """The batch with an offset, or the next one; None if it is gone, cannot be read, or has no epoch."""
        with suppress(OffsetOutOfRangeError, CorruptionError, UnknownTopicError):
            data = self._log(partition).fetch(offset, max_bytes=1, isolation=Isolation.LOG_END).data
            if data and (epoch := leader_epoch_at(data, 0)) != NO_EPOCH:
                return _Batch(PREFIX.unpack_from(data)[0], epoch)
        return None

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        return self._log(partition).offset_at(timestamp_ms)

    def split(
        self, partition: TopicPartition, start: int, stop: int, parts: int, max_count: int | None
    ) -> list[int]:
        return self._log(partition).split(start, stop, parts=parts, max_count=max_count)

    def pin(self, partition: TopicPartition, start: int, stop: int, isolation: Isolation) -> PinnedRange:
        return self._log(partition).pin(start, stop, isolation=isolation)

    def reading(self, pinned: PinnedRange, on_damage: OnDamage | None) -> PinnedReader:
        def pin_anew(position: int) -> PinnedRange:
            with logstore.open(self.path, read_only=True) as store:
                log = self._log_of(store, pinned.partition)
                return log.pin(position, pinned.stop, isolation=pinned.isolation)

        return PinnedReader(pinned, make_context(self.path), pin_anew, on_damage)

    def read_latest(
        self,
        partition: TopicPartition,
        isolation: Isolation,
        columns: Iterable[str],
        batch_rows: int,
        batch_bytes: int,
    ) -> Iterator[pyarrow.RecordBatch]:
        log = self._log(partition)
        return iter(
            log.latest_arrow(
                isolation=isolation, columns=columns, batch_rows=batch_rows, batch_bytes=batch_bytes
            )
        )

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def __str__(self) -> str:
        return self.path
