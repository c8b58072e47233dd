"""Groups of a cluster survive the node that coordinates them. Costs about 10 s."""

from __future__ import annotations

import pytest

import logstore
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeat
from logstore.broker.pending import wait_for
from logstore.errors import UnknownGroupError, UnknownTopicError
from logstore.model import TopicPartition
from tests.replica.node.cluster import Cluster, eventually
from tests.replica.node.test_node import T, create, send

GROUPS = TopicPartition("__consumer_offsets", 0)


def take(consumer, count):
    found = []
    while len(found) < count:
        found += consumer.poll(timeout=20.0)
    return [int(record.value) for record in found]


def test_a_group_goes_on_at_another_coordinator(cluster):
    create(cluster)
    cluster.wait_for_isr(GROUPS, 3)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"%d" % number for number in range(10)])
    with (
        logstore.connect(*cluster.addresses) as remote,
        remote.consumer(
            "t", group="g", auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=5
        ) as consumer,
    ):
        assert take(consumer, 5) == [0, 1, 2, 3, 4]
        consumer.commit()
        first = cluster.leader_of(GROUPS).node_id
        cluster.stop(first)
        assert cluster.leader_of(GROUPS).node_id != first
        assert take(consumer, 5) == [5, 6, 7, 8, 9]
        consumer.commit()
    with logstore.connect(*cluster.addresses) as remote:
        assert remote.offsets("g")[T].offset == 10


def test_who_coordinates_no_more_writes_nothing(cluster):
    create(cluster)
    cluster.wait_for_isr(GROUPS, 3)
    coordinator = cluster.leader_of(GROUPS)
    with logstore.connect(*cluster.addresses) as remote:
        remote.offsets("g").commit({T: 0})
        ends = {node_id: cluster.log(node_id, GROUPS).log_end_offset for node_id in cluster.nodes}
        eventually(lambda: len(set(ends.values())) <= 2)
        assert len([node for node in cluster.nodes.values() if node._broker.terms.look() is not None]) == 1
        cluster.crash(coordinator.node_id)
        eventually(lambda: cluster.leader_of(GROUPS))
        remote.offsets("g").commit({T: 0})
        assert remote.offsets("g")[T].offset == 0


def take_by_the_newer_protocol(cluster, count):
    """The coordinator assigns the partitions (KIP-848)."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    settings = {
        "bootstrap.servers": ",".join(cluster.addresses),
        "group.id": "newer",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.subscribe(["t"])
        found = []
        while len(found) < count:
            found += [int(each.value()) for each in consumer.consume(count, timeout=20) if not each.error()]
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()


def test_whoever_coordinates_need_not_have_the_topic(tmp_path):
    """Each partition is on one node, and the coordinator is on another for most of them."""
    cluster = Cluster(tmp_path, replication_factor=1)
    try:
        partitions = [TopicPartition("t", number) for number in range(3)]
        with logstore.connect(*cluster.addresses) as remote:
            remote.create_topic("t", partitions=3)
            for each in partitions:
                cluster.leader_of(each)
            with remote.producer(transactional_id="x") as producer, producer.transaction():
                for number in range(3):
                    producer.send("t", b"%d" % number, partition=number)
            with remote.consumer("t", group="classic", auto_offset_reset="earliest") as consumer:
                assert sorted(take(consumer, 3)) == [0, 1, 2]
                consumer.commit()
            assert sorted(take_by_the_newer_protocol(cluster, 3)) == [0, 1, 2]
            for group in ("classic", "newer"):
                assert set(remote.offsets(group)) == set(partitions)
            with pytest.raises(UnknownTopicError):
                remote.offsets("other").commit({("T", 0): 0})
            with pytest.raises(UnknownTopicError):
                remote.offsets("other").commit({("t", 3): 0})
    finally:
        cluster.close()


def test_groups_are_listed_described_and_deleted(cluster):
    """Whichever node coordinates them, and by whichever client."""
    create(cluster)
    with logstore.connect(*cluster.addresses) as remote:
        assert list(remote.groups()) == []
        for group in ("a", "b"):
            remote.offsets(group).commit({T: 0})
        assert sorted(remote.groups()) == ["a", "b"]
        with pytest.raises(UnknownGroupError):
            remote.groups().delete("c")
        remote.groups().delete("a")
        assert list(remote.groups()) == ["b"]
        admin = pytest.importorskip("confluent_kafka.admin")
        client = admin.AdminClient({"bootstrap.servers": ",".join(cluster.addresses)})
        found = client.list_consumer_groups(request_timeout=20).result()
        assert ([each.group_id for each in found.valid], found.errors) == (["b"], [])
        with remote.queue("t", group="q"):
            assert list(remote.groups()) == ["b"]


def test_committed_offsets_go_with_their_topic(cluster):
    create(cluster)
    create(cluster, "other")
    with logstore.connect(*cluster.addresses) as remote:
        remote.offsets("g").commit({T: 0, ("other", 0): 0})
        remote.delete_topic("t")
        eventually(lambda: set(remote.offsets("g")) == {("other", 0)})
        remote.create_topic("t")
        cluster.leader_of(T)
        assert set(remote.offsets("g")) == {("other", 0)}


def test_times_of_a_group_are_known_to_who_coordinates_it(cluster):
    create(cluster)
    cluster.wait_for_isr(GROUPS, 3)
    coordinator = cluster.leader_of(GROUPS)
    other = next(each for each in cluster.nodes.values() if each is not coordinator)
    other._broker.group_settings.alter("g", {"consumer.heartbeat.interval.ms": "1000"})
    joins = ConsumerGroupHeartbeat("g", "a", rebalance_timeout_ms=9_000, topics=("t",), owned=frozenset())

    def interval_ms():
        found = wait_for(coordinator._broker.consumer_group_heartbeat(joins), 5)
        return found.heartbeat_interval_ms

    eventually(lambda: interval_ms() == 1_000)
