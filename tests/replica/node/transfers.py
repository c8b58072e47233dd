"""Transactions on a cluster under faults: each writes one value to all partitions of a topic, and a committed
offset; some are aborted. What was committed is in all of them once, and nothing else is."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter

import logstore
from logstore.errors import LogstoreError
from logstore.model import Isolation, TopicPartition
from tests.replica.node.loads import Load

TOPIC = "pairs"
COUNTED = TopicPartition(TOPIC, 0)
NAMES = ("ours", "librdkafka")


class Transfers(Load):
    """Producers of transactions."""

    def __init__(self, addresses, partitions, seed):
        self._addresses = addresses
        self._partitions = partitions
        self._seed = seed
        self.committed = set()
        self.aborted = set()
        super().__init__(self._run_ours, self._run_librdkafka)

    def _values(self, name):
        """Values, and whether their transaction is to be committed."""
        chance = random.Random(f"{self._seed} {name}")
        for number in itertools.count():
            if self.is_over.is_set():
                return
            yield b"%s-%d" % (name.encode(), number), chance.random() < 0.8

    def _run_ours(self):
        values = self._values("ours")
        while not self.is_over.is_set():
            try:
                with (
                    logstore.connect(*self._addresses, request_timeout_ms=5_000) as remote,
                    remote.producer(
                        transactional_id="ours", delivery_timeout_ms=20_000, request_timeout_ms=5_000
                    ) as producer,
                ):
                    for number, (value, is_good) in enumerate(values):
                        transaction = producer.transaction().__enter__()
                        for partition in range(self._partitions):
                            producer.send(TOPIC, value=value, partition=partition)
                        transaction.commit_offsets("g", {COUNTED: number})
                        if is_good:
                            transaction.commit()
                            self.committed.add(value)
                        else:
                            transaction.abort()
                            self.aborted.add(value)
            except LogstoreError:
                time.sleep(0.1)  # what became of the last one is not known

    def _run_librdkafka(self):
        try:
            import confluent_kafka
        except ImportError:
            return
        values = self._values("librdkafka")
        while not self.is_over.is_set():
            try:
                producer = confluent_kafka.Producer(
                    {
                        "bootstrap.servers": ",".join(self._addresses),
                        "transactional.id": "librdkafka",
                        "transaction.timeout.ms": 20_000,
                        "message.timeout.ms": 15_000,
                        "linger.ms": 0,
                    }
                )
                producer.init_transactions(30)
                for value, is_good in values:
                    producer.begin_transaction()
                    for partition in range(self._partitions):
                        producer.produce(TOPIC, value, partition=partition)
                    if is_good:
                        producer.commit_transaction(30)
                        self.committed.add(value)
                    else:
                        producer.abort_transaction(30)
                        self.aborted.add(value)
            except confluent_kafka.KafkaException:
                time.sleep(0.1)

    def check(self):
        """By what a client reads once all is well. Returns how many transactions were committed."""
        with logstore.connect(*self._addresses) as remote:
            for name in NAMES:  # what is open still is aborted by the next producer
                with remote.producer(transactional_id=name) as producer, producer.transaction():
                    for partition in range(self._partitions):
                        producer.send(TOPIC, f"last of {name}".encode(), partition=partition)
            last = {f"last of {name}".encode() for name in NAMES}
            found = [Counter() for _ in range(self._partitions)]
            deadline = time.monotonic() + 60
            with remote.consumer(
                TOPIC, auto_offset_reset="earliest", isolation=Isolation.COMMITTED
            ) as consumer:
                while not all(last <= there.keys() for there in found):
                    assert time.monotonic() < deadline
                    for record in consumer.poll(1.0):
                        found[record.partition][record.value] += 1
        for there in found:
            assert there == found[0], "a transaction is in one partition only"
            assert set(there.values()) == {1}, "a transaction is there twice"
        assert not self.committed - found[0].keys(), "a committed transaction is lost"
        assert not self.aborted & found[0].keys(), "an aborted transaction is there"
        return len(self.committed)
