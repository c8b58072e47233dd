"""A broker under test: a directory on a clock set by hand, and words for what the tests ask of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.local import LocalBroker
from logstore.broker.pending import Pending
from logstore.broker.requests import (
    ACKS_LEADER,
    CreateTopicsRequest,
    EpochPartition,
    FetchPartition,
    FetchRequest,
    FetchResult,
    InitProducerIdRequest,
    MetadataRequest,
    NewTopic,
    OffsetCommitRequest,
    OffsetsForLeaderEpochRequest,
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
)
from logstore.broker.transactions.requests import (
    AddOffsetsToTransaction,
    AddPartitionsToTransaction,
    EndTransaction,
    TransactionalProducer,
)
from logstore.config import StoreConfig, TopicConfig
from logstore.format.batch import decode_batch, encode_batch
from logstore.logdir.directory import LogDirectory
from logstore.model import Isolation, OffsetAndMetadata, TopicPartition
from logstore.partition.log import Log
from logstore.testing import ManualClock, MemoryFiles

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


class Rig:
    """A broker with the topic ``t`` of two partitions; None: of those in ``files``."""

    def __init__(self, *, partitions: int | None = 2, files: Any = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.files = files or MemoryFiles()
        self.directory = LogDirectory(
            "/data",
            files=self.files,
            clock=self.clock,
            config=StoreConfig(topic=TopicConfig(**settings)),
            seed=1,
        )
        self.broker: Broker = LocalBroker(self.directory)
        if partitions is not None:
            topics = CreateTopicsRequest((NewTopic("t", partitions),))
            assert not self.now(self.broker.create_topics(topics)).topics[0].error

    def pass_time(self, ms: int) -> None:
        """Let time pass, and what is due in it be done."""
        self.clock.advance(ms)
        self.directory.context.scheduler.run_due()

    @property
    def log(self) -> Log:
        return self.directory.log(T0)

    def told_epoch(self) -> int:
        """The leader epoch of ``t-0`` in the metadata."""
        (topic,) = self.now(self.broker.metadata(MetadataRequest(("t",)))).topics
        epoch: int = topic.partitions[0].leader_epoch
        return epoch

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Where an epoch of ``t-0`` ended."""
        asked = OffsetsForLeaderEpochRequest((EpochPartition(T0, epoch),))
        (found,) = self.now(self.broker.offsets_for_leader_epoch(asked)).partitions
        assert found.error is ErrorCode.NONE
        return found.epoch, found.end_offset

    def now(self, pending: Pending[Any]) -> Any:
        """The result, which is there at once."""
        result = pending.poll()
        assert result is not None
        return result

    def soon(self, pending: Pending[Any]) -> Any:
        """The result, after what is due now was done: flushes, and what waits for them."""
        for _ in range(100):
            result = pending.poll()
            if result is not None:
                return result
            self.pass_time(0)
        raise AssertionError("no answer comes")

    def produce(self, *values: bytes, to: TopicPartition = T0, acks: int = ACKS_LEADER, **fields: Any):
        """Produce a batch. Returns what became of it, if that is known at once."""
        result = self.ask(batch_of(values, self.clock.now_ms(), **fields), to=to, acks=acks).poll()
        return None if result is None else result.partitions[0]

    def ask(self, data: bytes, *, to: TopicPartition = T0, acks: int = ACKS_LEADER, timeout_ms: int = 1000):
        return self.broker.produce(ProduceRequest(acks, timeout_ms, (ProducePartition(to, data),)))

    def fetch(self, *wanted: FetchPartition, **options: Any) -> Pending[FetchResult]:
        return self.broker.fetch(FetchRequest(wanted, **options))


class Transactional:
    """A producer with a transactional id, which speaks to a broker as Kafka's clients do."""

    def __init__(self, rig: Rig, name: str = "shop", *, timeout_ms: int = 60_000, takes_epoch: bool = False):
        self.rig, self.name, self.timeout_ms, self.takes_epoch = rig, name, timeout_ms, takes_epoch
        self.producer_id = self.epoch = -1
        self.sequences: dict[TopicPartition, int] = {}

    def start(self, **asks: int) -> ErrorCode:
        request = InitProducerIdRequest(self.name, self.timeout_ms, **asks)
        result = self.rig.soon(self.rig.broker.init_producer_id(request))
        if result.error is ErrorCode.NONE:
            self._go_on_with(result)
        return result.error

    def _go_on_with(self, result: Any) -> None:
        if (result.producer_id, result.producer_epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = result.producer_id, result.producer_epoch
            self.sequences.clear()

    @property
    def me(self) -> TransactionalProducer:
        return TransactionalProducer(self.name, self.producer_id, self.epoch)

    def add(self, *partitions: TopicPartition) -> ErrorCode:
        request = AddPartitionsToTransaction(self.me, partitions)
        (error,) = set(self.rig.soon(self.rig.broker.add_partitions_to_transaction(request)).errors.values())
        return error

    def write(self, *values: bytes, to: TopicPartition = T0) -> ErrorCode:
        """A batch, to a partition that was added."""
        sequence = self.sequences.get(to, 0)
        stamp = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "transactional": True}
        data = batch_of(values, self.rig.clock.now_ms(), base_sequence=sequence, **stamp)
        request = ProduceRequest(ACKS_LEADER, 1000, (ProducePartition(to, data),), self.name)
        error = self.rig.now(self.rig.broker.produce(request)).partitions[0].error
        if error is ErrorCode.NONE:
            self.sequences[to] = sequence + len(values)
        return error

    def send(self, *values: bytes, to: TopicPartition = T0) -> ErrorCode:
        """Add the partition, and write to it."""
        return self.add(to) or self.write(*values, to=to)

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> ErrorCode:
        error = self.rig.soon(
            self.rig.broker.add_offsets_to_transaction(AddOffsetsToTransaction(self.me, group))
        )
        if error is not ErrorCode.NONE:
            return error
        values = {
            partition: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }
        request = OffsetCommitRequest(group, values, transaction=self.me)
        return self.rig.now(self.rig.broker.offset_commit(request)).error

    def end(self, *, committed: bool = True) -> ErrorCode:
        request = EndTransaction(self.me, committed, self.takes_epoch)
        result = self.rig.soon(self.rig.broker.end_transaction(request))
        if result.error is ErrorCode.NONE:
            self._go_on_with(result)
        return result.error


def batch_of(values: Iterable[bytes], now_ms: int, **fields: Any) -> bytes:
    values = list(values)
    return bytes(encode_batch([None] * len(values), values, now_ms, **fields))


def values_of(data: bytes) -> list[bytes]:
    """The values in fetched bytes, all batches of them."""
    values: list[bytes] = []
    data = bytes(data)
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        values += [record.value for record in decode_batch(data[:size])]
        data = data[size:]
    return values


def wakes_of(pending: Pending[Any]) -> list[str]:
    """A list that grows when the request is woken."""
    wakes: list[str] = []
    pending.on_wake(lambda: wakes.append("woken"))
    return wakes


__all__ = [
    "T0",
    "T1",
    "FetchPartition",
    "Isolation",
    "ProducedPartition",
    "Rig",
    "Transactional",
    "batch_of",
    "values_of",
    "wakes_of",
]
