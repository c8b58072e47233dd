"""Between a cluster of nodes and a stock broker: a node's directory goes to the broker and back, and a store
follows the broker. Cost: 25 s, for three starts of a broker."""

from __future__ import annotations

import pytest

import logstore
from logstore import Isolation, replica
from logstore.model import TopicPartition
from tests.interop import clients
from tests.interop.clients import NewRecord
from tests.interop.kafka import KafkaBroker, require_kafka
from tests.replica.node.cluster import Cluster, eventually
from tests.replica.node.test_moving import is_at, place

pytestmark = pytest.mark.interop

T = TopicPartition("t", 0)
GROUPS = TopicPartition("__consumer_offsets", 0)


def fill(cluster):
    """Records of two leaders, with codecs, a transaction of each end, and a group."""
    with logstore.connect(*cluster.addresses) as remote:
        remote.create_topic("t", config=logstore.TopicConfig(min_insync_replicas=2))
        cluster.wait_for_isr(T, 3)
        for codec in ("none", "zstd", "lz4"):
            with remote.producer(acks="all", compression=codec) as producer:
                for number in range(50):
                    producer.send("t", f"{codec}-{number}".encode(), key=b"k")
        first = cluster.leader_of(T).node_id
        cluster.stop(first)
        assert cluster.leader_of(T).node_id != first
        with remote.producer(transactional_id="x") as producer:
            with producer.transaction():
                producer.send("t", b"committed")
            with pytest.raises(ZeroDivisionError), producer.transaction():
                fail(producer)
        with remote.producer(acks="all") as producer:
            producer.send("t", b"last")
        remote.offsets("g").commit({T: 100})
    cluster.start(first)
    cluster.wait_for_isr(T, 3)
    ends = {cluster.log(each, T).log_end_offset for each in cluster.nodes}
    eventually(lambda: {cluster.log(each, T).high_watermark for each in cluster.nodes} == ends)


def fail(producer):
    producer.send("t", b"aborted").result()
    raise ZeroDivisionError


def committed_of(cluster):
    with (
        logstore.connect(*cluster.addresses) as remote,
        remote.consumer("t", auto_offset_reset="earliest", isolation=Isolation.COMMITTED) as consumer,
    ):
        found = []
        while records := consumer.poll(timeout=1.0):
            found += [(each.offset, each.value) for each in records]
        return found


def test_a_nodes_directory_goes_to_a_broker_and_back(tmp_path):
    require_kafka()
    cluster = Cluster(tmp_path / "nodes")
    try:
        fill(cluster)
        written = committed_of(cluster)
    finally:
        cluster.close()
    assert len(written) == 152
    groups = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 1}
    with KafkaBroker(tmp_path / "kafka", config=groups) as broker:
        broker.create_topics({"t": 1}, {"t": {"retention.ms": -1}})
        assert broker.stop()
        logstore.handover(tmp_path / "nodes" / "node-2", broker.log_dir, topics=["t"])
        broker.start()
        theirs = clients.consume(broker.bootstrap, "t", isolation="read_committed")
        assert [(each.offset, each.value) for each in theirs] == written
        clients.produce(broker.bootstrap, "t", [[NewRecord(b"k", b"by the broker")]])
        theirs = clients.consume(broker.bootstrap, "t", isolation="read_committed")
        clients.commit_group_offsets(broker.bootstrap, "g", {("t", 0): 77})
        assert broker.stop()
        logstore.handover(broker.log_dir, tmp_path / "again" / "node-1", topics=["t", "__consumer_offsets"])
    again = Cluster(tmp_path / "again", 1)
    try:
        again.leader_of(T)
        assert committed_of(again) == [(each.offset, each.value) for each in theirs]
        for node_id in (2, 3):
            again.start(node_id)
        for each in (T, GROUPS):
            place(again, (2, 3, 1), each)
            eventually(lambda each=each: is_at(again, (2, 3, 1), each))
        again.stop(1)
        with logstore.connect(*again.addresses) as remote:
            with remote.producer(acks="all") as producer:
                producer.send("t", b"by a node")
            assert remote.offsets("g")[T].offset == 77
        found = committed_of(again)
        assert found[:-1] == [(each.offset, each.value) for each in theirs]
        assert found[-1][1] == b"by a node"
    finally:
        again.close()


def test_a_store_follows_a_broker_that_dies(tmp_path):
    """The copy is byte for byte the broker's, and can be read while the broker is away."""
    require_kafka()
    with KafkaBroker(tmp_path / "kafka") as broker, logstore.open(tmp_path / "copy") as store:
        broker.create_topics({"t": 1}, {"t": {}})
        rows = [NewRecord(b"k", b"%d" % number) for number in range(100)]
        clients.produce(broker.bootstrap, "t", [rows])
        with replica.follow(store, broker.bootstrap, topics=["t"]) as standby:
            eventually(lambda: "t" in store and store["t"][0].log_end_offset == 100)
            broker.kill()
            assert len(list(store["t"][0].read())) == 100
            broker.start(same_ports=True)
            clients.produce(broker.bootstrap, "t", [rows])
            eventually(lambda: store["t"][0].log_end_offset == 200, 60)
            assert standby.failure is None
        ours = bytes(store["t"][0].fetch(0, max_bytes=1 << 20, isolation=Isolation.LOG_END).data)
        assert broker.stop()
    with logstore.open(broker.log_dir, read_only=True) as theirs:
        assert bytes(theirs["t"][0].fetch(0, max_bytes=1 << 20, isolation=Isolation.LOG_END).data) == ours
