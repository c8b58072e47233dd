"""A backup of a node: it comes back as that node, or begins a new cluster. Costs about 2 s each."""

from __future__ import annotations

import shutil

import pytest

import logstore
from logstore.errors import UsageError
from logstore.model import Role, TopicPartition
from logstore.replica import leave_cluster
from tests.replica.node.cluster import Cluster
from tests.replica.node.test_node import read, send

T = TopicPartition("t", 0)


@pytest.fixture
def backed_up(tmp_path):
    """Two nodes, and ``backup`` of the one that led then."""
    cluster = Cluster(tmp_path, count=2)
    with logstore.connect(*cluster.addresses) as client:
        client.create_topic("t", config=logstore.TopicConfig(min_insync_replicas=2), replication_factor=2)
    cluster.wait_for_isr(T, 2)
    send(cluster, [b"1", b"2"])
    cluster.stores[cluster.leader_of(T).node_id].backup(tmp_path / "backup")
    yield cluster
    cluster.close()


def test_a_node_comes_back_with_its_backup(backed_up, tmp_path):
    """Also in the life in which it was made: it is not taken for the disk that was there."""
    led = backed_up.leader_of(T).node_id
    other = 3 - led
    send(backed_up, [b"3"])
    backed_up.crash(led)
    backed_up.crash(other)
    backed_up.wipe(led)
    shutil.copytree(tmp_path / "backup", tmp_path / f"node-{led}")
    backed_up.start(led)
    backed_up.start(other)
    assert backed_up.leader_of(T).node_id == other
    backed_up.wait_for_isr(T, 2)
    assert backed_up.log(led, T).log_end_offset == 3
    assert read(backed_up) == [b"1", b"2", b"3"]


def test_a_backup_begins_a_new_cluster(backed_up, tmp_path):
    backed_up.close()
    shutil.rmtree(tmp_path / "cluster")
    shutil.rmtree(tmp_path / "node-1")
    (tmp_path / "backup").rename(tmp_path / "node-1")
    with logstore.open(tmp_path / "node-1") as store, pytest.raises(UsageError, match=r"node\.json"):
        store.delete_topic("t")
    with pytest.raises(UsageError, match="there is no cluster in"):
        Cluster(tmp_path, 1)
    leave_cluster(tmp_path / "node-1")
    with logstore.open(tmp_path / "node-1") as store:
        assert store["t"][0].role is Role.ALONE
    cluster = Cluster(tmp_path, 1)
    try:
        assert cluster.leader_of(T).node_id == 1
        assert read(cluster) == [b"1", b"2"]
    finally:
        cluster.close()
