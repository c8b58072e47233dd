"""Groups and transactions of confluent-kafka and kafka-python, over sockets."""

from __future__ import annotations

import contextlib
import logging
import threading
import time

import pytest

import logstore
import logstore.testing
from tests.broker.rig import batch_of

confluent_kafka = pytest.importorskip("confluent_kafka")
confluent_admin = pytest.importorskip("confluent_kafka.admin")
kafka = pytest.importorskip("kafka")
kafka_admin = pytest.importorskip("kafka.admin")
kafka_errors = pytest.importorskip("kafka.errors")

# kafka-python reads its schemas by a function that Python has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*Use files:DeprecationWarning")

PARTITIONS = 4
COUNT = 40
PATIENCE_SECONDS = 30


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        topic = store.create_topic("t", partitions=PARTITIONS)
        for number in range(COUNT):
            topic.append(b"%d" % number, partition=number % PARTITIONS)
        store.create_topic("out")
        yield store


@pytest.fixture
def address(store):
    with store.listen() as listener:
        yield listener.address


@pytest.fixture(autouse=True)
def silence():
    """A client that is closed last complains that the listener is gone."""
    logger = logging.getLogger("kafka")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield logger
    logger.setLevel(before)


def until(what):
    """Ask until it is so."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def values_in(store, name):
    return sorted(record.value for record in store[name].read(isolation=logstore.Isolation.COMMITTED))


ALL = sorted(b"%d" % number for number in range(COUNT))


class Reads(threading.Thread):
    """A consumer of kafka-python in a thread of its own. Its polls are long: a join that the end of a poll
    cuts off may never end."""

    def __init__(self, address):
        super().__init__()
        self.found = []
        self.assigned = set()
        self.must_end = False
        self.options = {
            "bootstrap_servers": address,
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 100,
        }
        self.start()

    def run(self):
        consumer = kafka.KafkaConsumer("t", **self.options)
        while not self.must_end:
            rows = consumer.poll(2000 if not self.assigned else 200)
            self.found += [record.value for each in rows.values() for record in each]
            if rows:
                with contextlib.suppress(kafka_errors.CommitFailedError):  # another one joins
                    consumer.commit()
            self.assigned = consumer.assignment()
        consumer.close()

    def end(self):
        self.must_end = True
        self.join()


def test_two_consumers_of_kafka_python_share_a_topic(address):
    """2 s. One leaves, and the other goes on with all partitions."""
    readers = [Reads(address) for _ in range(2)]
    admin = kafka.KafkaAdminClient(bootstrap_servers=address)

    def committed():
        return [each.offset for each in admin.list_group_offsets("g")["g"].values()]

    try:
        until(lambda: [len(each.assigned) for each in readers] == [2, 2])
        until(lambda: sorted({value for each in readers for value in each.found}) == ALL)
        described = admin.describe_groups(["g"])["g"]
        assert (described["group_state"], len(described["members"])) == ("Stable", 2)
        readers[0].end()
        until(lambda: len(readers[1].assigned) == PARTITIONS)
        until(lambda: committed() == [COUNT // PARTITIONS] * PARTITIONS)
        assert admin.delete_groups(["g"]) == {"g": "NonEmptyGroupError"}
    finally:
        for each in readers:
            each.end()
    assert admin.delete_groups(["g"]) == {"g": "OK"}
    admin.close()


def test_what_confluent_kafka_reads_and_writes_in_transactions(store, address):
    """1 s."""
    base = {"bootstrap.servers": address, "log_level": 0}
    consumer = confluent_kafka.Consumer(
        {**base, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    producer = confluent_kafka.Producer({**base, "transactional.id": "shop"})
    producer.init_transactions(PATIENCE_SECONDS)
    read = []

    def transform():
        rows = consumer.consume(COUNT, 0.5)
        if not consumer.assignment():
            return False  # while it joins, it has no generation, with which Kafka refuses a member's offsets
        producer.begin_transaction()
        for row in rows:
            producer.produce("out", row.value())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_SECONDS)
        producer.commit_transaction(PATIENCE_SECONDS)
        read.extend(row.value() for row in rows)
        return len(read) == COUNT

    producer.begin_transaction()
    producer.produce("out", b"never")
    offsets = [confluent_kafka.TopicPartition("t", 0, 5)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_SECONDS)
    producer.abort_transaction(PATIENCE_SECONDS)
    assert values_in(store, "out") == []
    consumer.subscribe(["t"])
    until(transform)
    assert sorted(read) == values_in(store, "out") == ALL
    committed = consumer.committed(consumer.assignment(), PATIENCE_SECONDS)
    assert [each.offset for each in committed] == [COUNT // PARTITIONS] * PARTITIONS
    admin = confluent_admin.AdminClient(base)
    (listed,) = admin.list_consumer_groups().result().valid
    assert (listed.group_id, listed.state.name) == ("g", "STABLE")
    newer = confluent_kafka.Producer({**base, "transactional.id": "shop"})
    newer.init_transactions(PATIENCE_SECONDS)
    with pytest.raises(confluent_kafka.KafkaException, match="fenced"):
        transform()
    consumer.close()


def test_kafka_python_finds_and_ends_a_transaction_that_hangs(store, address):
    log = store["t"][1]
    an_hour_ago_ms = int(time.time() * 1000) - 3_600_000
    stamp = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 0, "transactional": True}
    log.append_batch(batch_of([b"hangs"], an_hour_ago_ms, **stamp))
    admin = kafka.KafkaAdminClient(bootstrap_servers=address)
    partition = kafka.TopicPartition("t", 1)
    (known,) = admin.describe_producers([partition])[partition].active_producers
    assert (known.producer_id, known.producer_epoch) == (7, 3)
    assert known.current_transaction_start_offset == COUNT // PARTITIONS
    admin.abort_transaction(kafka_admin.AbortTransactionSpec(partition, 7, 3))
    assert log.open_transactions() == {}
    assert values_in(store, "t") == ALL
    admin.close()


def test_a_topic_vanishes_while_librdkafka_reads_it_and_another():
    """It takes an answer without records for a broken one, and hangs up."""
    said = []
    with logstore.testing.kafka(topics={"t": 1, "out": 1}) as servers:
        servers.store["t"].append(b"v")
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": str(servers), "group.id": "g"}, logger=Recorder(said)
        )
        consumer.assign([confluent_kafka.TopicPartition(name, 0, 0) for name in ("t", "out")])
        until(lambda: consumer.poll(0.01) is not None)
        servers.store.delete_topic("t")
        before = len(servers.requests("Fetch"))
        until(lambda: consumer.poll(0.01) or len(servers.requests("Fetch")) > before + 1)
        servers.store["out"].append(b"goes on")

        def goes_on():
            found = consumer.poll(0.01)
            return found is not None and found.value() == b"goes on"

        until(goes_on)
        consumer.close()
    assert not [each for each in said if "PROTOERR" in each]


class Recorder(logging.Logger):
    """What a client logs, in a list."""

    def __init__(self, said):
        super().__init__("client")
        self._said = said

    def handle(self, record):
        self._said.append(record.getMessage())
