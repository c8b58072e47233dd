"""A cluster of processes that is used while it is harmed, and what must be true of it afterwards."""

from __future__ import annotations

import time

import logstore
from logstore.errors import LogstoreError, TopicExistsError
from tests.replica.node import jobs, transfers
from tests.replica.node.cluster import eventually
from tests.replica.node.jobs import Jobs
from tests.replica.node.loads import Load
from tests.replica.node.moves import move
from tests.replica.node.processes import wait_until_well
from tests.replica.node.transfers import Transfers

PARTITIONS = 2
TOPICS = ("t", transfers.TOPIC, jobs.TOPIC)
PLACES = [
    *((topic, number) for topic in TOPICS for number in range(PARTITIONS)),
    ("__consumer_offsets", 0),
    ("__transaction_state", 0),
    ("__share_group_state", 0),
]


class Records(Load):
    """Producers that send numbered values, and a reader."""

    def __init__(self, addresses, history):
        self._addresses = addresses
        self._history = history
        super().__init__(self._send_ours, self._read, self._send_librdkafka)

    def _send_ours(self):
        number = 0
        life = 0
        while not self.is_over.is_set():
            life += 1
            client = f"ours {life}"
            try:
                with (
                    logstore.connect(*self._addresses, request_timeout_ms=5_000) as remote,
                    remote.producer(
                        acks="all", delivery_timeout_ms=20_000, request_timeout_ms=5_000
                    ) as producer,
                ):
                    while not self.is_over.is_set():
                        sent = []
                        for _ in range(20):
                            number += 1
                            value = b"ours-%d" % number
                            partition = number % PARTITIONS
                            self._history.sent((client, partition), value)
                            sent.append(
                                (value, partition, producer.send("t", value=value, partition=partition))
                            )
                        for value, partition, each in sent:
                            self._history.acknowledged(value, partition, each.result().offset)
                        time.sleep(0.005)
            except LogstoreError:
                time.sleep(0.1)  # what became of the rest is not known

    def _send_librdkafka(self):
        try:
            import confluent_kafka
        except ImportError:
            return
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": ",".join(self._addresses),
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": 60_000,
                "linger.ms": 5,
            }
        )

        def delivered(error, message):
            if error is None:
                self._history.acknowledged(message.value(), message.partition(), message.offset())

        number = 0
        while not self.is_over.is_set():
            for _ in range(20):
                number += 1
                value, partition = b"librdkafka-%d" % number, number % PARTITIONS
                self._history.sent(("librdkafka", partition), value)
                while True:
                    try:
                        producer.produce("t", value, partition=partition, on_delivery=delivered)
                        break
                    except BufferError:  # nothing was delivered for a minute
                        producer.poll(0.1)
            producer.poll(0.01)
        producer.flush(60)

    def _read(self):
        reader = 0
        while not self.is_over.is_set():
            begin = "latest" if reader else "earliest"  # else a long run would read all again and again
            reader += 1
            try:
                with (
                    logstore.connect(*self._addresses, request_timeout_ms=5_000) as remote,
                    remote.consumer("t", auto_offset_reset=begin) as consumer,
                ):
                    until = time.monotonic() + 10
                    while not self.is_over.is_set() and time.monotonic() < until:
                        for record in consumer.poll(timeout=0.5):
                            self._history.read(reader, record.partition, record.offset, record.value)
            except LogstoreError:
                time.sleep(0.1)


def has_topic(cluster, topic):
    """Once all nodes have registered: they listen before."""
    with logstore.connect(*cluster.addresses) as remote:
        try:
            remote.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
        except TopicExistsError:
            return True
        except LogstoreError:
            return False
        return True


def try_out(cluster, history, seed, harm, *, least, more_loads=()):
    """Use the cluster while ``harm`` runs; then all partitions are on all nodes again, nothing acknowledged
    is lost, no job of a queue is lost or done twice, and replicas are the same byte for byte. Returns how
    many transactions and jobs there were.

    ``least``: with fewer acknowledged records nothing was tested. ``more_loads``: made of the addresses and
    the history.
    """
    try:
        for topic in TOPICS:
            eventually(lambda topic=topic: has_topic(cluster, topic), 60)
            wait_until_well(cluster, topic, PARTITIONS)
        pairs = Transfers(cluster.addresses, PARTITIONS, seed)
        queue = Jobs(cluster.addresses, PARTITIONS)
        loads = [pairs, queue, *(make(cluster.addresses, history) for make in (Records, *more_loads))]
        try:
            harm()
        finally:
            for load in loads:
                load.stop()
        assert not [each for load in loads for each in load.errors]
        for place in PLACES:
            eventually(lambda place=place: move(cluster, *place, tuple(cluster.nodes)), 60)
        for topic in TOPICS:
            wait_until_well(cluster, topic, PARTITIONS)
        counts = {"transactions": pairs.check(), "jobs": queue.check()}
        for node in cluster.nodes.values():
            node.stop()
        found = cluster.logs("t", PARTITIONS)
    finally:
        cluster.close()
    for number in range(PARTITIONS):
        assert len({found[node_id, number][1] for node_id in cluster.nodes}) == 1, "replicas have other bytes"
    anomalies = history.check({number: found[1, number][0] for number in range(PARTITIONS)})
    assert not anomalies, [str(each) for each in anomalies[:5]]
    assert history.acknowledged_count > least
    return counts
