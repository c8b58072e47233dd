"""Brokers: an Apache Kafka cluster, or a store that another process serves.

Used where the directory cannot be mounted, or where only brokers may be asked. The driver asks for topics and
offsets; each task has its own connection and fetches its range, see
:mod:`~logstore.spark.origins.fetched`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.pending import Pending
from logstore.broker.requests import (
    EARLIEST,
    LATEST,
    NO_EPOCH,
    NO_OFFSET,
    EpochEnd,
    EpochPartition,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResult,
    OffsetsForLeaderEpochRequest,
    TopicMetadata,
)
from logstore.clients.asking import ask
from logstore.connected import RemoteStore, describe_topics
from logstore.errors import UnknownTopicError, UsageError
from logstore.model import Isolation, TopicPartition
from logstore.spark.origins.connection import Connection
from logstore.spark.origins.fetched import FetchedReading, Fetching
from logstore.spark.origins.origin import Bounds, Origin, ReadUpTo, TopicPartitions

if TYPE_CHECKING:
    import pyarrow

    from logstore.partition.watching.pinned import OnDamage

_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class FetchedRange(NamedTuple):
    """Offsets ``[start, stop)`` of a partition, and which topic it was when they were planned."""

    partition: TopicPartition
    topic_id: str | None
    start: int
    stop: int
    isolation: Isolation


class BrokerOrigin(Origin):
    """Topics of brokers."""

    skips_damage = False

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._store: RemoteStore | None = None
        self._topics: dict[str, TopicMetadata] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_store": None, "_topics": None}

    def _opened(self) -> RemoteStore:
        if self._store is None:
            self._store = self._connection.open()
        return self._store

    # Topics

    def _look(self) -> dict[str, TopicMetadata]:
        """The topics as they are now; those that are being made or deleted are left out."""
        found = describe_topics(self._opened(), None)
        self._topics = {each.name: each for each in found if each.error is ErrorCode.NONE}
        return self._topics

    def partitions(self) -> dict[str, TopicPartitions]:
        return {
            name: TopicPartitions(len(topic.partitions), tuple(range(len(topic.partitions))))
            for name, topic in self._look().items()
        }

    def topic_id(self, topic: str) -> str | None:
        """As it was when :meth:`partitions` or :meth:`topic_ids` was last asked."""
        found = (self._topics or self._look()).get(topic)
        if found is None:
            raise UnknownTopicError(f"there is no topic {topic!r} in {self}")
        return None if found.topic_id is None else str(found.topic_id)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str | None]:
        self._look()
        return super().topic_ids(topics)

    # Offsets

    def bounds(self, partition: TopicPartition, isolation: Isolation) -> Bounds:
        found = self.bounds_of([partition], isolation).get(partition)
        if found is None:
            raise UnknownTopicError(f"there is no {partition} in {self}")
        return found

    def bounds_of(
        self, partitions: Iterable[TopicPartition], isolation: Isolation
    ) -> dict[TopicPartition, Bounds]:
        """Two requests to each broker, whatever the number of partitions."""
        wanted = list(partitions)
        both = [self._list_offsets(wanted, which, isolation) for which in (EARLIEST, LATEST)]
        starts, ends = (self._listed(pending) for pending in both)
        return {
            each: Bounds(starts[each], max(starts[each], ends[each]))
            for each in wanted
            if each in starts and each in ends
        }

    def epochs_before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Four requests, most of them to each broker, whatever the number of partitions; some more if leaders
        have changed since the offsets."""
        self._look()
        latest = self._latest_epochs(offsets)
        known = {  # the epochs of which it is known that they end behind the offsets
            each: end.epoch
            for each, end in self._epoch_ends(latest).items()
            if end.end_offset >= offsets[each]
        }
        before = dict.fromkeys(known, NO_EPOCH)  # epochs that end before them
        asked = {each: epoch - 1 for each, epoch in known.items()}
        while asked := {each: epoch for each, epoch in asked.items() if epoch > before[each]}:
            ends = self._epoch_ends(asked)
            for each, epoch in asked.items():
                if each in ends and ends[each].end_offset >= offsets[each]:
                    known[each] = ends[each].epoch
                else:
                    before[each] = epoch
            asked = {each: (before[each] + known[each]) // 2 for each in asked}
        return known

    def parted(self, read: Mapping[TopicPartition, ReadUpTo]) -> dict[TopicPartition, int]:
        """One request to each broker, whatever the number of partitions; some more if logs have parted."""
        found: dict[TopicPartition, int] = {}
        left = dict(read)
        while left:
            ends = self._epoch_ends({each: known.epoch for each, known in left.items()})
            latest = self._latest_epochs(left.keys() - ends.keys())
            asked, left = left, {}
            for each, (offset, epoch) in asked.items():
                answered = ends.get(each)
                if answered is None:  # its leader may have no epoch as late as this
                    following = ReadUpTo(offset, latest.get(each, NO_EPOCH))
                elif answered.epoch == read[each].epoch and answered.end_offset >= offset:
                    continue
                else:
                    found[each] = min(offset, answered.end_offset)
                    following = ReadUpTo(found[each], answered.epoch)
                if NO_EPOCH < following.epoch < epoch:
                    left[each] = following
        return found

    def _latest_epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As the brokers tell them beside the topics; those of partitions that exist."""
        topics, found = self._topics or self._look(), {}
        for each in partitions:
            if each.topic in topics and each.partition < len(topics[each.topic].partitions):
                found[each] = topics[each.topic].partitions[each.partition].leader_epoch
        return found

    def _epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        """Where leader epochs end; those that their leader does not know, or that have none, are left out."""
        if not epochs:
            return {}
        wanted = tuple(EpochPartition(each, epoch) for each, epoch in epochs.items())
        pending = self._opened().broker.offsets_for_leader_epoch(OffsetsForLeaderEpochRequest(wanted))
        answers = ask(pending, "tell of leader epochs", self._opened().config).partitions
        return {each.partition: each for each in answers if each.error is ErrorCode.NONE and each.epoch >= 0}

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        pending = self._list_offsets([partition], timestamp_ms, Isolation.HIGH_WATERMARK)
        offset = self._listed(pending).get(partition, NO_OFFSET)
        return None if offset == NO_OFFSET else offset

    def _list_offsets(
        self, partitions: list[TopicPartition], timestamp_ms: int, isolation: Isolation
    ) -> Pending[ListOffsetsResult]:
        wanted = tuple(ListOffsetsPartition(each, timestamp_ms) for each in partitions)
        return self._opened().broker.list_offsets(ListOffsetsRequest(wanted, isolation))

    def _listed(self, pending: Pending[ListOffsetsResult]) -> dict[TopicPartition, int]:
        """The offsets, without partitions that do not exist."""
        offsets = {}
        for each in ask(pending, "tell of offsets", self._opened().config).partitions:
            if each.error is ErrorCode.NONE:
                offsets[each.partition] = each.offset
            elif each.error not in _UNKNOWN:
                raise error_of(each.error, f"{each.partition} in {self}: {each.message or each.error.name}")
        return offsets

    # Ranges

    def split(
        self, partition: TopicPartition, start: int, stop: int, parts: int, max_count: int | None
    ) -> list[int]:
        """Into equal numbers of offsets, as the connector does: brokers do not tell where batches begin."""
        count = stop - start
        pieces = max(parts, -(-count // max_count) if max_count else 1)
        cuts = (start + count * number // pieces for number in range(1, pieces))
        return sorted({cut for cut in cuts if start < cut < stop})

    def pin(self, partition: TopicPartition, start: int, stop: int, isolation: Isolation) -> FetchedRange:
        return FetchedRange(partition, self.topic_id(partition.topic), start, stop, isolation)

    def reading(self, pinned: FetchedRange, on_damage: OnDamage | None) -> FetchedReading:
        if on_damage is not None:
            raise UsageError("damage cannot be passed over in what brokers send")
        return FetchedReading(
            lambda: self._fetching(pinned), pinned.partition, pinned.start, pinned.stop, pinned.isolation
        )

    def _fetching(self, pinned: FetchedRange) -> Fetching:
        """
        Raises:
            UnknownTopicError: the topic is not the one that was planned.
        """
        self._look()
        if pinned.topic_id not in (None, self.topic_id(pinned.partition.topic)):
            raise UnknownTopicError(
                f"{pinned.partition} was deleted; there is a new topic with its name in {self}"
            )
        store = self._opened()
        return Fetching(store.broker, store.config.request_timeout_ms, self._connection.partition_bytes)

    def read_latest(
        self,
        partition: TopicPartition,
        isolation: Isolation,
        columns: Iterable[str],
        batch_rows: int,
        batch_bytes: int,
    ) -> Iterator[pyarrow.RecordBatch]:
        raise UsageError("a table (latestByKey) cannot be read from brokers")

    def close(self) -> None:
        self._topics = None
        if self._store is not None:
            self._store.close()
            self._store = None

    def __str__(self) -> str:
        return str(self._connection)
