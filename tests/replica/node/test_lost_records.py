"""A node whose disk has lost records leads nothing that others have all of. Costs 2 s each."""

from __future__ import annotations

import re

import pytest

import logstore
from logstore import TopicConfig
from logstore.errors import UsageError
from logstore.model import TopicPartition
from tests.replica.node.cluster import Cluster, eventually

T0 = TopicPartition("t", 0)
COUNT = 100


@pytest.fixture
def stopped(tmp_path):
    """Two nodes that have the same records, and are stopped."""
    cluster = Cluster(tmp_path, count=2)
    with logstore.connect(",".join(cluster.addresses)) as client:
        client.create_topic("t", config=TopicConfig(min_insync_replicas=2), replication_factor=2)
        cluster.wait_for_isr(T0, 2)
        with client.producer(acks="all") as producer:
            for number in range(COUNT):
                producer.send("t", b"%d" % number, partition=0)
                producer.flush()
    for node_id in (2, 1):
        cluster.stop(node_id)
    yield cluster
    cluster.close()


def end_at_both(cluster, tmp_path):
    """What both nodes have in the end. The damaged one comes first."""
    cluster.start(1)
    assert not eventually(lambda: cluster.view.living.get(1)).registration.has_kept(
        cluster.state_of(T0).isr[0], is_durable=True
    )
    cluster.start(2)
    assert cluster.leader_of(T0).node_id == 2
    cluster.wait_for_isr(T0, 2)
    return [cluster.log(node_id, T0).log_end_offset for node_id in (1, 2)]


def damage(tmp_path, at=None):
    path = tmp_path / "node-1" / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 0xFF
    path.write_bytes(data)


def let_it_look_killed(tmp_path):
    """As if the process had been killed before a checkpoint: nothing is known to be durable."""
    directory = tmp_path / "node-1"
    (directory / ".kafka_cleanshutdown").unlink()
    points = directory / "recovery-point-offset-checkpoint"
    points.write_text(re.sub(rf"(?m)^t 0 {COUNT}$", "t 0 0", points.read_text()))
    life = directory / "node.json"
    life.write_text(life.read_text().replace('"was_stopped": true', '"was_stopped": false'))


def test_a_recovery_has_cut_off_more_than_a_write_under_way(stopped, tmp_path):
    let_it_look_killed(tmp_path)
    damage(tmp_path)
    with logstore.open(tmp_path / "node-1") as store:
        assert 0 < store["t"][0].log_end_offset < COUNT
    assert end_at_both(stopped, tmp_path) == [COUNT, COUNT]


def test_a_write_under_way_is_no_loss(stopped, tmp_path):
    let_it_look_killed(tmp_path)
    path = tmp_path / "node-1" / "t-0" / f"{0:020}.log"
    path.write_bytes(path.read_bytes() + path.read_bytes()[:40])
    stopped.start(1)
    assert stopped.leader_of(T0).node_id == 1


def test_a_loss_was_accepted(stopped, tmp_path):
    damage(tmp_path, at=-2)  # a clean stop lets the next open look at the end only
    with logstore.open(tmp_path / "node-1") as store:
        assert T0 in store.damaged
        store["t"].reopen(0, accept_loss=True)
        assert store["t"][0].log_end_offset < COUNT
    assert end_at_both(stopped, tmp_path) == [COUNT, COUNT]


def test_the_end_of_a_log_was_taken_away(stopped, tmp_path):
    with logstore.open(tmp_path / "node-1") as store:
        store["t"][0].truncate_to(10)
    assert end_at_both(stopped, tmp_path) == [COUNT, COUNT]


def test_while_the_node_runs(stopped, tmp_path):
    """It leaves the cluster before it may lead with less."""
    stopped.start(1)
    stopped.start(2)
    stopped.wait_for_isr(T0, 2)
    stopped.stores[1].directory.context.home.note_loss()
    assert eventually(lambda: stopped.nodes[1].failure)
    assert eventually(lambda: T0 in stopped.nodes[2].led)
    stopped.stop(1)
    stopped.start(1)
    stopped.wait_for_isr(T0, 2)


def test_topics_of_a_node_that_does_not_run_are_its_clusters(stopped, tmp_path):
    with logstore.open(tmp_path / "node-1") as store:
        for change in (
            lambda: store.delete_topic("t"),
            lambda: store.create_topic("u"),
            lambda: store["t"].add_partitions(3),
        ):
            with pytest.raises(UsageError, match=r"node\.json"):
                change()
    (tmp_path / "node-1" / "node.json").rename(tmp_path / "away")
    with logstore.open(tmp_path / "node-1") as store:
        store.delete_topic("t")
