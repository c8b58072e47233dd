"""A store under random operations, and a model that counts beside it: what both have counted is the same."""

from __future__ import annotations

import random
import threading

import pytest

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.metrics.snapshot import Metrics
from logstore.model import TopicPartition
from logstore.testing import ManualClock, MemoryFiles
from tests.rotation import seed_of_turn

SMALL = TopicConfig(segment_bytes=2_000)
GROUPS = ("a", "b")


class Model:
    """Counts what it does to a store. Offsets and committed offsets are state; all else begins at 0 when the
    store is opened."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.files = MemoryFiles()
        self.ends = {}
        self.starts = {}
        self.committed = {}
        self.open()
        self.add_topic()

    def open(self):
        config = StoreConfig(linger_ms=0, topic=SMALL)
        self.store = logstore.open("/s", files=self.files, clock=ManualClock(), config=config)
        self.expected = {}
        self.durable = dict(self.ends)
        self.consumers = {}
        self.producer = None

    def count(self, name, number, *labels):
        of_name = self.expected.setdefault(f"logstore_{name}", {})
        of_name[labels] = of_name.get(labels, 0) + number

    def partition(self):
        return TopicPartition(*self.random.choice(sorted(self.ends)))

    def log(self, partition):
        return self.store[partition.topic][partition.partition]

    def rows(self):
        return [(b"k", bytes(self.random.randrange(200))) for _ in range(self.random.randint(1, 8))]

    def appended(self, partition, record_count, batch_count=1):
        self.ends[partition] += record_count
        self.count("log_appended_records", record_count, *partition)
        self.count("log_appended_batches", batch_count, *partition)
        self.count("write_seconds", batch_count, partition.topic)

    # What it does

    def add_topic(self):
        name = f"t{len(self.ends)}"
        self.store.create_topic(name, partitions=2)
        for number in range(2):
            for known in (self.ends, self.starts, self.durable):
                known[TopicPartition(name, number)] = 0

    def extend(self):
        partition, rows = self.partition(), self.rows()
        self.log(partition).extend(rows)
        self.appended(partition, len(rows))

    def append(self):
        partition = self.partition()
        count = self.random.randint(1, 4)
        for _ in range(count):
            self.log(partition).append(b"one by one")
        self.appended(partition, count, count)

    def flush(self):
        partition = self.partition()
        self.log(partition).flush()
        self.count("flush_seconds", self.ends[partition] > self.durable[partition], partition.topic)
        self.durable[partition] = self.ends[partition]

    def delete(self):
        partition = self.partition()
        log, before = self.log(partition), self.log(partition).segment_count
        offset = self.random.randint(self.starts[partition], self.ends[partition])
        log.delete_before(offset)
        self.starts[partition] = offset
        self.count("log_deleted_segments", before - log.segment_count, *partition)

    def send(self):
        if self.producer is None:
            self.producer = self.store.producer(acks=1)
        partition, rows = self.partition(), self.rows()
        for key, value in rows:
            self.producer.send(partition.topic, value, key=key, partition=partition.partition)
        self.producer.flush()
        self.count("producer_delivered_records", len(rows))
        self.count("producer_batch_bytes", 1)
        self.appended(partition, len(rows))

    def drop_clients(self):
        """They are gone; what they have counted stays."""
        for consumer in self.consumers.values():
            consumer.close()
        self.consumers.clear()
        self.producer = None

    def poll(self):
        group = self.random.choice(GROUPS)
        consumer = self.consumers.get(group)
        if consumer is None:
            consumer = self.store.consumer(partitions=sorted(self.ends), group=group)
            self.consumers[group] = consumer
        found = consumer.poll(0, max_records=self.random.randint(1, 10))
        self.count("consumer_polls", 1, group)
        self.count("consumer_records", len(found), group)

    def commit(self):
        group, partition = self.random.choice(GROUPS), self.partition()
        offset = self.random.randint(self.starts[partition], self.ends[partition])
        self.store.offsets(group).commit({partition: offset})
        self.committed[group, *partition] = offset

    def reopen(self):
        self.store.close()
        self.open()

    # What it expects

    def check(self):
        behind = {
            (group, *partition): max(self.ends[partition] - consumer.position(partition), 0)
            for group, consumer in self.consumers.items()
            for partition in consumer.assignment
        }
        found = self.store.metrics()
        assert found.incomplete == ()
        assert found.total("logstore_consumers") == len(self.consumers)
        state = {
            "log_end_offset": self.ends,
            "log_high_watermark": self.ends,
            "log_start_offset": self.starts,
            "group_committed_offset": self.committed,
            "consumer_lag": behind,
            "group_lag": {key: self.ends[key[1:]] - offset for key, offset in self.committed.items()},
        }
        for name, expected in state.items():
            assert {
                key: value for key, value in found[f"logstore_{name}"].items() if is_ours(key)
            } == expected
        assert found.total("logstore_partitions") == len(self.ends) + bool(self.committed)
        for name in COUNTED:
            assert counts_of(found, name) == self.expected.get(name, {}), name
        for partition in self.ends:
            log = self.log(partition)
            assert found["logstore_log_size_bytes"][partition] == log.size_bytes
            assert found["logstore_log_segments"][partition] == log.segment_count


COUNTED = [
    f"logstore_{name}"
    for name in (
        *("log_appended_records", "log_appended_batches", "log_deleted_segments", "write_seconds"),
        *("flush_seconds", "producer_delivered_records", "producer_batch_bytes"),
        *("consumer_polls", "consumer_records"),
    )
]
OPERATIONS = ("extend", "append", "flush", "delete", "send", "poll", "commit", "drop_clients")


def is_ours(key):
    """Not of the topic that has the committed offsets, which the model leaves to the store."""
    return "__consumer_offsets" not in key


def counts_of(found: Metrics, name):
    values = {key: getattr(value, "count", value) for key, value in found[name].items() if is_ours(key)}
    return {key: value for key, value in values.items() if value}


def run(seed, step_count):
    model = Model(seed)
    for step in range(step_count):
        rare = {20: "add_topic", 33: "reopen"}
        getattr(model, rare.get(step % 40) or model.random.choice(OPERATIONS))()
        model.expected = {
            name: {key: value for key, value in of_name.items() if value}
            for name, of_name in model.expected.items()
        }
        model.check()
    model.store.close()


@pytest.mark.parametrize("seed", [1, 2, 3, 1000 + seed_of_turn()])
def test_what_is_counted_is_what_was_done(seed):
    run(seed, 80)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2_000, 2_200))
def test_what_is_counted_is_what_was_done_at_length(seed):
    run(seed, 300)


def test_appended_bytes_are_the_size_of_the_log(tmp_path):
    with logstore.open(tmp_path) as store:
        log = store.create_topic("t", config=SMALL)[0]
        for number in range(50):
            log.extend([(b"k", bytes(number * 7))] * 3)
        log.delete_before(80)
        found = store.metrics()
        assert found.total("logstore_log_deleted_bytes") > 0
        left = found.total("logstore_log_appended_bytes") - found.total("logstore_log_deleted_bytes")
        assert left == log.size_bytes == found.total("logstore_log_size_bytes")


def test_threads_lose_no_count(tmp_path):
    """Appends, flushes, requests and snapshots at the same time."""
    with logstore.open(tmp_path) as store:
        topic = store.create_topic("t", partitions=2)
        store.producer(acks=1).close()  # the clients share the broker
        polled = []

        def append(number):
            for _ in range(200):
                topic[number % 2].extend([b"v"] * 3)

        def send(_):
            with store.producer(acks=1, linger_ms=0) as producer:
                for _ in range(200):
                    producer.send("t", b"v", partition=0)

        def flush(_):
            for _ in range(50):
                store.flush()

        def look(_):
            seen = 0
            for _ in range(20):
                now = store.metrics().total("logstore_log_appended_records")
                assert now >= seen
                seen = now

        def poll(_):
            with store.consumer("t") as consumer:
                polled.append(sum(len(consumer.poll(0.01)) for _ in range(50)))

        work = [append, append, append, send, send, flush, look, poll, poll]
        failures = []

        def guard(action, number):
            try:
                action(number)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=guard, args=each[::-1]) for each in enumerate(work)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        found = store.metrics()
        assert found.total("logstore_log_appended_records") == 3 * 200 * 3 + 2 * 200
        assert found.total("logstore_producer_delivered_records") == 2 * 200
        produced = found.histogram("logstore_request_seconds", api="produce").count
        assert produced == found.histogram("logstore_producer_batch_bytes").count
        assert found.total("logstore_log_appended_batches") == 3 * 200 + produced
        assert found.histogram("logstore_write_seconds").count == 3 * 200 + produced
        assert found.total("logstore_consumer_records") == sum(polled)
        assert found.total("logstore_consumer_polls") == 2 * 50
        assert found.total("logstore_consumers") == 0


def test_a_read_only_store_knows_offsets_and_lag(tmp_path):
    with logstore.open(tmp_path) as store:
        store.create_topic("t", partitions=2)[0].extend([b"v"] * 10)
        store.offsets("g").commit({("t", 0): 4})
        with logstore.open(tmp_path, read_only=True) as reader:
            found = reader.metrics()
            own = store.metrics()
            for name in ("log_end_offset", "log_size_bytes", "group_lag", "group_committed_offset"):
                assert found[f"logstore_{name}"] == own[f"logstore_{name}"], name
            assert found.total("logstore_group_lag", group="g", topic="t", partition=0) == 6
            assert dict(found["logstore_groups"]) == {("Empty",): 1}
        with pytest.raises(logstore.errors.ClosedError):
            reader.metrics()


def test_requests_are_counted_by_api_and_error(tmp_path):
    with logstore.open(tmp_path) as store:
        store.create_topic("t")
        with store.producer(transactional_id="x") as producer:
            for number in range(3):
                with producer.transaction():
                    producer.send("t", b"%d" % number)
        with store.producer() as producer, pytest.raises(logstore.errors.UnknownTopicError):
            producer.send("nowhere", b"v")
        found = store.metrics()
        requests = {api: value.count for (api,), value in found["logstore_request_seconds"].items()}
        assert requests["end_transaction"] == requests["produce"] == 3
        assert requests["add_partitions_to_transaction"] == 3
        assert requests["metadata"] == 2
        errors = dict(found["logstore_request_errors"])
        assert errors.pop(("metadata", "UNKNOWN_TOPIC_OR_PARTITION")) == 1
        assert set(errors) <= {("describe_configs", "UNKNOWN_TOPIC_OR_PARTITION")}
        with store.consumer("t", group="g") as consumer:
            assert len(list(consumer.drain())) == 3
            waits = found.histogram("logstore_request_seconds", api="fetch").count
            assert consumer.poll(0.05) == []  # a fetch that waits counts when it is answered
            store["t"][0].extend([b"more"])
            while not consumer.poll(5):
                pass
        assert store.metrics().histogram("logstore_request_seconds", api="fetch").count >= waits + 2
