"""Leaders go back to the replicas that are preferred, by themselves or when an administrator says so. Costs
about 10 s."""

from __future__ import annotations

import pytest

from logstore.model import TopicPartition
from tests.replica.node.cluster import Cluster, eventually
from tests.replica.node.test_node import create, read, send

PARTITIONS = 6
TOPICS = [TopicPartition("t", number) for number in range(PARTITIONS)]


def is_balanced(cluster):
    states = cluster.view.partitions.values()
    return all(each.leader is not None and each.leader.node_id == each.replicas[0] for each in states)


@pytest.fixture
def cluster(tmp_path):
    """A busy machine holds followers up, and who leaves the in-sync replicas must not lead."""
    cluster = Cluster(tmp_path, replica_lag_time_max_ms=3_000)
    yield cluster
    cluster.close()


def skew(cluster):
    """A node goes and comes back: others lead what it has led."""
    create(cluster, partitions=PARTITIONS)
    for each in TOPICS:
        cluster.wait_for_isr(each, 3)
    send(cluster, [b"1"])
    gone = cluster.state_of(TOPICS[0]).replicas[0]
    cluster.stop(gone)
    eventually(lambda: cluster.state_of(TOPICS[0]).leader.node_id != gone)
    cluster.start(gone)
    for each in cluster.view.partitions:
        cluster.wait_for_isr(each, 3)
    return gone


def test_a_node_that_comes_back_leads_again(tmp_path):
    cluster = Cluster(tmp_path, leader_imbalance_check_interval_seconds=1)
    try:
        gone = skew(cluster)
        eventually(lambda: is_balanced(cluster))
        eventually(lambda: TOPICS[0] in cluster.nodes[gone].led)
        send(cluster, [b"2"])
        assert sorted(read(cluster)) == [b"1", b"2"]
    finally:
        cluster.close()


def elect(cluster, kind, partitions):
    """By librdkafka's administrator: what came of each partition, as the name of an error, or None."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    admin = pytest.importorskip("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": ",".join(cluster.addresses)})
    wanted = partitions and [confluent_kafka.TopicPartition(*each) for each in partitions]
    found = client.elect_leaders(getattr(confluent_kafka.ElectionType, kind), wanted).result(30)
    return {(each.topic, each.partition): error and error.name() for each, error in found.items()}


def test_an_administrator_asks_for_it(cluster):
    gone = skew(cluster)
    others = [each for each in TOPICS if cluster.state_of(each).replicas[0] != gone]
    mine = [each for each in TOPICS if each not in others]
    assert not is_balanced(cluster)
    unknown = ("t", PARTITIONS)
    found = elect(cluster, "PREFERRED", [mine[0], others[0], unknown])
    assert found == {
        tuple(mine[0]): None,
        tuple(others[0]): "ELECTION_NOT_NEEDED",
        unknown: "UNKNOWN_TOPIC_OR_PART",
    }
    eventually(lambda: mine[0] in cluster.nodes[gone].led)
    elect(cluster, "PREFERRED", None)
    eventually(lambda: is_balanced(cluster))
    send(cluster, [b"2"])
    assert sorted(read(cluster)) == [b"1", b"2"]


def test_an_administrator_accepts_a_loss(cluster):
    """All that have everything are gone for good."""
    create(cluster)
    partition = TOPICS[0]
    cluster.wait_for_isr(partition, 3)
    keeper = cluster.state_of(partition).replicas[0]
    late = next(each for each in cluster.nodes if each != keeper)
    cluster.stop(late)
    cluster.wait_for_isr(partition, 2)
    send(cluster, [b"1"])
    for each in list(cluster.nodes):
        cluster.crash(each)
    cluster.start(late)
    eventually(lambda: partition in cluster.view.partitions and cluster.nodes[late].is_controller)
    eventually(lambda: cluster.state_of(partition).leader is None)
    assert elect(cluster, "UNCLEAN", [partition]) == {tuple(partition): None}
    assert cluster.leader_of(partition).node_id == late
    assert elect(cluster, "UNCLEAN", [partition]) == {tuple(partition): "ELECTION_NOT_NEEDED"}
    assert read(cluster) == []
