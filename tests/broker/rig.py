"""A broker under test: a directory on a clock set by hand, and words for what the tests ask of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from logstore.broker.broker import Broker
from logstore.broker.local import LocalBroker
from logstore.broker.pending import Pending
from logstore.broker.requests import (
    ACKS_LEADER,
    CreateTopicsRequest,
    FetchPartition,
    FetchRequest,
    FetchResult,
    NewTopic,
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
)
from logstore.config import StoreConfig, TopicConfig
from logstore.format.batch import decode_batch, encode_batch
from logstore.logdir.directory import LogDirectory
from logstore.model import Isolation, TopicPartition
from logstore.testing import ManualClock, MemoryFiles

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


class Rig:
    """A broker with the topic ``t`` of two partitions."""

    def __init__(self, *, partitions: int = 2, files: Any = None, **settings: Any) -> None:
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
        topics = CreateTopicsRequest((NewTopic("t", partitions),))
        assert not self.now(self.broker.create_topics(topics)).topics[0].error

    def pass_time(self, ms: int) -> None:
        """Let time pass, and what is due in it be done."""
        self.clock.advance(ms)
        self.directory.context.scheduler.run_due()

    def now(self, pending: Pending[Any]) -> Any:
        """The result, which is there at once."""
        result = pending.poll()
        assert result is not None
        return result

    def produce(self, *values: bytes, to: TopicPartition = T0, acks: int = ACKS_LEADER, **fields: Any):
        """Produce a batch. Returns what became of it, if that is known at once."""
        result = self.ask(batch_of(values, self.clock.now_ms(), **fields), to=to, acks=acks).poll()
        return None if result is None else result.partitions[0]

    def ask(self, data: bytes, *, to: TopicPartition = T0, acks: int = ACKS_LEADER, timeout_ms: int = 1000):
        return self.broker.produce(ProduceRequest(acks, timeout_ms, (ProducePartition(to, data),)))

    def fetch(self, *wanted: FetchPartition, **options: Any) -> Pending[FetchResult]:
        return self.broker.fetch(FetchRequest(wanted, **options))


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
    "batch_of",
    "values_of",
    "wakes_of",
]
