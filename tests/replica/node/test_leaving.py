"""A coordinator that is lost for good: one node's copy becomes a new cluster. Costs about 3 s."""

from __future__ import annotations

import pytest

import logstore
from logstore.errors import UsageError
from logstore.model import Role, TopicPartition
from logstore.replica import leave_cluster
from tests.replica.node.cluster import Cluster
from tests.replica.node.test_moving import place
from tests.replica.node.test_node import read, send

T = TopicPartition("t", 0)


@pytest.fixture
def lost(tmp_path):
    """The nodes 1 and 2 had a topic and a group. Their coordinator is away."""
    cluster = Cluster(tmp_path, 2, replication_factor=2)
    try:
        with logstore.connect(*cluster.addresses) as remote:
            remote.create_topic("t", config=logstore.TopicConfig(min_insync_replicas=2))
            cluster.wait_for_isr(T, 2)
            send(cluster, [b"1", b"2"])
            with remote.consumer("t", group="g", auto_offset_reset="earliest") as consumer:
                assert consumer.poll(10, max_records=1)
                consumer.commit()
    finally:
        cluster.close()
    (tmp_path / "cluster").rename(tmp_path / "lost")
    return tmp_path


def test_what_one_node_has_becomes_a_new_cluster(lost):
    leave_cluster(lost / "node-1")
    cluster = Cluster(lost, 1)
    try:
        assert cluster.leader_of(T).node_id == 1
        assert read(cluster) == [b"1", b"2"]
        with logstore.connect(*cluster.addresses) as remote:
            assert remote.offsets("g")[T].offset == 1
        with pytest.raises(UsageError, match="belongs to cluster"):
            cluster.start(2)
        cluster.wipe(2)
        cluster.start(2)
        place(cluster, (1, 2))
        cluster.wait_for_isr(T, 2)
    finally:
        cluster.close()


def test_the_old_cluster_refuses_the_directory(lost):
    leave_cluster(lost / "node-1")
    (lost / "lost").rename(lost / "cluster")
    with pytest.raises(UsageError, match="belongs to cluster"):
        Cluster(lost, 1)


def test_a_call_that_was_interrupted_is_made_again(lost, monkeypatch):
    def stop(directory):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("logstore.logdir.directory.LogDirectory.leave", stop)
        with pytest.raises(KeyboardInterrupt):
            leave_cluster(lost / "node-1")
    with pytest.raises(UsageError, match="there is no cluster in"):
        Cluster(lost, 1)
    leave_cluster(lost / "node-1")
    with logstore.open(lost / "node-1") as store:
        assert store["t"][0].role is Role.ALONE
        store["t"].append(b"3")
    with pytest.raises(UsageError, match="has no cluster to leave"):
        leave_cluster(lost / "node-1")


def test_a_partition_that_only_another_node_has_can_be_brought_along(tmp_path):
    cluster = Cluster(tmp_path, 2, replication_factor=1)
    try:
        with logstore.connect(*cluster.addresses) as remote:
            remote.create_topic("t", partitions=2)
            with remote.producer(acks="all") as producer:
                for number in (0, 1):
                    producer.send("t", b"%d" % number, partition=number).result()
    finally:
        cluster.close()
    with logstore.open(tmp_path / "node-1") as store:
        (missing,) = {0, 1} - set(store["t"].held_partitions)
        (tmp_path / "node-2" / f"t-{missing}").rename(tmp_path / "node-1" / f"t-{missing}")
        store["t"].hold([missing])
    (tmp_path / "cluster").rename(tmp_path / "lost")
    leave_cluster(tmp_path / "node-1")
    cluster = Cluster(tmp_path, 1)
    try:
        for number in (0, 1):
            cluster.leader_of(TopicPartition("t", number))
        assert sorted(read(cluster)) == [b"0", b"1"]
    finally:
        cluster.close()
