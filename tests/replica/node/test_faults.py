"""Nodes as processes under load, killed, stopped and halted, while partitions move from some to others;
nothing acknowledged is lost, and transactions are in all partitions or in none.

The load comes from our own client and, if it is there, from librdkafka. 30 s for six faults; ``make soak``
has 300.
"""

from __future__ import annotations

import random
import signal
import time

import pytest

import logstore
from logstore.errors import LogstoreError, TopicExistsError
from logstore.testing import History
from tests.figures import report
from tests.replica.coordination import server
from tests.replica.node import transfers
from tests.replica.node.cluster import eventually
from tests.replica.node.loads import Load
from tests.replica.node.moves import draw_goal, move
from tests.replica.node.processes import Processes, wait_until_well
from tests.replica.node.transfers import Transfers
from tests.rotation import rotating, seed_of_turn

PARTITIONS = 2
PLACES = [
    *((topic, number) for topic in ("t", transfers.TOPIC) for number in range(PARTITIONS)),
    ("__consumer_offsets", 0),
    ("__transaction_state", 0),
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
                producer.produce("t", value, partition=partition, on_delivery=delivered)
            producer.poll(0.01)
        producer.flush(60)

    def _read(self):
        reader = 0
        while not self.is_over.is_set():
            reader += 1
            try:
                with (
                    logstore.connect(*self._addresses, request_timeout_ms=5_000) as remote,
                    remote.consumer("t", auto_offset_reset="earliest") as consumer,
                ):
                    until = time.monotonic() + 10
                    while not self.is_over.is_set() and time.monotonic() < until:
                        for record in consumer.poll(timeout=0.5):
                            self._history.read(reader, record.partition, record.offset, record.value)
            except LogstoreError:
                time.sleep(0.1)


def inject(cluster, rng, counts):
    """One fault, and its end. Before it a partition may be sent elsewhere."""
    node = rng.choice(list(cluster.nodes.values()))
    if rng.random() < 0.5:
        place = rng.choice(PLACES)
        counts["moves"] = counts.get("moves", 0) + move(cluster, *place, draw_goal(rng, cluster.nodes))
        time.sleep(rng.uniform(0, 0.5))
    kind = rng.choice(["kill", "kill", "stop", "halt", "halt for long"])
    counts[kind] = counts.get(kind, 0) + 1
    if kind == "kill":
        node.kill()
        time.sleep(rng.uniform(0, 1.5))
        node.start()
    elif kind == "stop":
        node.stop()
        time.sleep(rng.uniform(0, 1))
        node.start()
    else:
        node.signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.1, 1) if kind == "halt" else rng.uniform(2.5, 4))
        node.signal(signal.SIGCONT)
    time.sleep(rng.uniform(0.2, 1.5))


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


def run(path, seed, fault_count, coordinator="cluster"):
    rng = random.Random(seed)
    history = History()
    cluster = Processes(path, coordinator)
    counts: dict[str, int] = {}
    try:
        for topic in ("t", transfers.TOPIC):
            eventually(lambda topic=topic: has_topic(cluster, topic), 60)
            wait_until_well(cluster, topic, PARTITIONS)
        loads = [Records(cluster.addresses, history), Transfers(cluster.addresses, PARTITIONS, seed)]
        try:
            for _ in range(fault_count):
                inject(cluster, rng, counts)
        finally:
            for load in loads:
                load.stop()
        assert not [each for load in loads for each in load.errors]
        for place in PLACES:
            eventually(lambda place=place: move(cluster, *place, tuple(cluster.nodes)), 60)
        wait_until_well(cluster, "t", PARTITIONS)
        wait_until_well(cluster, transfers.TOPIC, PARTITIONS)
        counts["transactions"] = loads[1].check()
        for node in cluster.nodes.values():
            node.stop()
        found = cluster.logs("t", PARTITIONS)
    finally:
        cluster.close()
    for number in range(PARTITIONS):
        replicas = [found[node_id, number] for node_id in cluster.nodes]
        assert len({data for _, data in replicas}) == 1, "replicas have other bytes"
    logs = {number: found[1, number][0] for number in range(PARTITIONS)}
    anomalies = history.check(logs)
    assert not anomalies, [str(each) for each in anomalies[:5]]
    assert history.acknowledged_count > 20 * fault_count
    return history, counts


@pytest.fixture
def place(request, tmp_path):
    """What the nodes have in common: files, or a ZooKeeper server."""
    if request.param == "files":
        yield "cluster"
        return
    reason = server.unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    zookeeper = server.ZooKeeperServer(tmp_path / "zookeeper")
    zookeeper.start()
    yield f"zookeeper://{zookeeper.address}/logstore"
    zookeeper.kill()


def run_and_report(path, place, fault_count, figure):
    started = time.monotonic()
    history, counts = run(path, seed_of_turn(), fault_count, place)
    report(
        figure,
        count=fault_count,
        failures=0,
        seconds=time.monotonic() - started,
        detail=f"{history.acknowledged_count} records acknowledged; of faults and transactions {counts}",
    )


@pytest.mark.slow
@pytest.mark.parametrize("place", rotating(["files", "zookeeper"], 2), indirect=True)
def test_some_faults(place, tmp_path):
    """30 s to 60 s."""
    run_and_report(tmp_path, place, 6, "faults of nodes")


@pytest.mark.soak
@pytest.mark.parametrize("place", ["files", "zookeeper"], indirect=True)
def test_many_faults(place, tmp_path):
    """Some 20 minutes each."""
    run_and_report(tmp_path, place, 300, "faults of nodes, at length")
