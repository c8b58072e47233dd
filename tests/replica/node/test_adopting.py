"""A store becomes a cluster: its topics, groups and transactions go on. Costs about 5 s."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

import logstore
from logstore import bridge, replica
from logstore.errors import CorruptionError, DiskFullError, RetriableError, UsageError
from logstore.files import OsFiles
from logstore.logdir.group_settings import write_group_settings
from logstore.model import Role, TopicPartition
from logstore.replica.coordination.control import TreeControl
from logstore.replica.coordination.files import FileCoordinator
from logstore.replica.coordination.session import TreeSession
from logstore.replica.node.controller import adopting
from tests.replica.node.cluster import Cluster, eventually
from tests.replica.node.test_moving import holders, is_at, place
from tests.replica.node.test_node import read, send

T = TopicPartition("t", 0)
INTERNAL = [TopicPartition(name, 0) for name in ("__consumer_offsets", "__transaction_state")]


LEAVES_ONE_OPEN = """
import os, sys, logstore
store = logstore.open(sys.argv[1])
producer = store.producer(transactional_id="x")
producer.transaction().__enter__()
producer.send("t", b"open").result()
os._exit(0)
"""


def fill(path, **config):
    """A store that was used for a while: with records in several leader epochs, a group, a transaction."""
    with logstore.open(path, **config) as store:
        log = store.create_topic("t", config=logstore.TopicConfig(segment_bytes=4_000))[0]
        for number in range(100):
            log.append(b"%d" % number)
        log.assign_leader_epoch(7)
        with store.producer(transactional_id="x") as producer, producer.transaction():
            producer.send("t", b"100")
        store.offsets("g").commit({T: 90})
        return store["t"].topic_id, log.log_end_offset


@pytest.mark.parametrize("kind", ["standby", "bridge"])
def test_a_copy_is_no_first_node_until_it_is_the_stores_own(tmp_path, kind):
    """0.3 s each. Its topics would be left behind, and the cluster begin with none."""
    with logstore.open(tmp_path / "leader") as leader, leader.listen() as listener:
        leader.create_topic("t")
        leader["t"][0].append(b"1", flush=True)
        with logstore.open(tmp_path / "copy") as copy:
            if kind == "bridge":
                with logstore.connect(listener.address) as remote:
                    bridge.pull(remote, copy, "t").run(until_end=True)
            else:
                standby = replica.follow(copy, listener.address)
                eventually(lambda: "t" in copy and copy["t"][0].log_end_offset == 1)
                standby.close()
            coordinator = FileCoordinator(tmp_path / "common", cluster_id=copy.cluster_id)
            way = "set_role" if kind == "bridge" else f"follow.store, '{listener.address}'..promote"
            for begin in (
                lambda: adopting.cluster_id_for(copy),
                lambda: replica.Node(copy, 1, coordinator=coordinator),
            ):
                with pytest.raises(UsageError, match=f"topic 't' of .*copy is a copy of .*{way}"):
                    begin()
            if kind == "bridge":
                copy["t"][0].set_role(Role.ALONE)
            else:
                replica.follow(copy, listener.address).promote()
            with (
                replica.Node(copy, 1, coordinator=coordinator) as node,
                logstore.connect(node.address) as cluster,
            ):
                eventually(lambda: "t" in cluster.topics())
            coordinator.close()


def test_a_store_becomes_a_cluster(tmp_path):
    topic_id, end = fill(tmp_path / "node-1")
    cluster = Cluster(tmp_path, 1)
    try:
        node = cluster.leader_of(T)
        assert node.view.topics["t"].topic_id == topic_id
        assert dict(node.view.topics["t"].config) == {"segment.bytes": "4000"}
        assert cluster.state_of(T).leader_epoch == 8
        with logstore.connect(node.address) as remote:
            assert remote.offsets("g")[T].offset == 90
            with remote.consumer("t", group="g", isolation=logstore.Isolation.COMMITTED) as consumer:
                assert [each.value for each in consumer.poll(10)] == [b"%d" % each for each in range(90, 101)]
                consumer.commit()
        for node_id in (2, 3):
            cluster.start(node_id)
        for each in (T, *INTERNAL):
            place(cluster, (1, 2, 3), each)
            eventually(lambda each=each: is_at(cluster, (1, 2, 3), each))
        assert holders(cluster) == {1, 2, 3}
        cluster.stop(1)
        with logstore.connect(*cluster.addresses) as remote:
            assert remote.offsets("g")[T].offset == end
            with remote.producer(transactional_id="x") as producer, producer.transaction():
                producer.send("t", b"101")
        assert read(cluster) == [b"%d" % each for each in range(102)]
        cluster.start(1)
        cluster.wait_for_isr(T, 3)
    finally:
        cluster.close()


def test_a_transaction_that_was_open_is_ended_in_the_cluster(tmp_path):
    with logstore.open(tmp_path / "node-1") as store:
        store.create_topic("t")
    subprocess.run([sys.executable, "-c", LEAVES_ONE_OPEN, str(tmp_path / "node-1")], check=True)
    cluster = Cluster(tmp_path, 1)
    try:
        cluster.leader_of(T)
        with logstore.connect(*cluster.addresses) as remote:
            with remote.producer(transactional_id="x") as producer, producer.transaction():
                producer.send("t", b"committed")
            with remote.consumer(
                "t", auto_offset_reset="earliest", isolation=logstore.Isolation.COMMITTED
            ) as consumer:
                assert [each.value for each in consumer.poll(10)] == [b"committed"]
    finally:
        cluster.close()


def test_only_the_first_node_takes_its_topics_along(tmp_path):
    cluster = Cluster(tmp_path, 2)
    try:
        fill(tmp_path / "node-3")
        with pytest.raises(UsageError, match="belongs to cluster"):
            cluster.start(3)
    finally:
        cluster.close()


def test_groups_in_many_partitions_stay_behind(tmp_path, caplog):
    fill(tmp_path / "node-1", config=logstore.StoreConfig(offsets_topic_num_partitions=4))
    cluster = Cluster(tmp_path, 1)
    try:
        cluster.leader_of(T)
        assert "it has 4 partitions, and in a cluster one" in caplog.text
        assert len(read(cluster)) == 101
    finally:
        cluster.close()


def test_what_was_replicated_is_not_taken_for_a_store(tmp_path):
    """The coordinator has lost what it had: nobody knows which replica has everything."""
    cluster = Cluster(tmp_path, 2, replication_factor=2)
    with logstore.connect(*cluster.addresses) as remote:
        remote.create_topic("t")
    cluster.leader_of(T)
    send(cluster, [b"1"])
    cluster.close()
    (tmp_path / "cluster").rename(tmp_path / "lost")
    with pytest.raises(UsageError, match="there is no cluster in"):
        Cluster(tmp_path, 1)
    assert not (tmp_path / "cluster").exists()
    with logstore.open(tmp_path / "node-1") as store:
        cluster_id = store.cluster_id
    FileCoordinator(tmp_path / "cluster", cluster_id=cluster_id).close()
    with pytest.raises(CorruptionError, match="older copy, or another cluster"):
        Cluster(tmp_path, 1)


FAILURES = (RetriableError("no answer"), DiskFullError(errno.ENOSPC, "No space left on device"))


@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_settings_of_groups_are_taken_along_however_slow_the_coordinator_is(tmp_path, monkeypatch, error):
    """Else a group of them had Kafka's from then on, without a dead-letter topic, say. Costs 1 s."""
    fill(tmp_path / "node-1")
    write_group_settings(OsFiles(), str(tmp_path / "node-1"), {"w": {"share.delivery.count.limit": "7"}})
    configure, failures = TreeSession.configure_group, iter(range(2))

    def fail(session, group, change):
        if next(failures, None) is not None:
            raise error
        return configure(session, group, change)

    monkeypatch.setattr(TreeSession, "configure_group", fail)
    cluster = Cluster(tmp_path, 1)
    try:
        cluster.leader_of(T)
        assert cluster.view.groups == {"w": {"share.delivery.count.limit": "7"}}
    finally:
        cluster.close()


@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_topics_are_taken_along_when_the_coordinator_is_there_again(tmp_path, monkeypatch, error):
    """Else they stayed behind until another controller began. Costs 1 s."""
    fill(tmp_path / "node-1")
    create, failures = TreeControl.create_topic, iter(range(2))

    def fail(*arguments, **options):
        if next(failures, None) is not None:
            raise error
        return create(*arguments, **options)

    monkeypatch.setattr(TreeControl, "create_topic", fail)
    cluster = Cluster(tmp_path, 1)
    try:
        cluster.leader_of(T)
        cluster.leader_of(INTERNAL[0])
        with logstore.connect(*cluster.addresses) as remote:
            assert remote.offsets("g")[T].offset == 90
    finally:
        cluster.close()


def test_a_topic_that_stays_refused_holds_up_no_others(tmp_path, monkeypatch, caplog):
    """Nobody would be elected in all of the cluster. Costs 1 s."""
    fill(tmp_path / "node-1")
    with logstore.open(tmp_path / "node-1") as store:
        store.create_topic("other")
    monkeypatch.setattr(adopting, "_MOST_REFUSALS", 2)
    create_topics = TreeControl.create_topics

    def refuse(control, topics):
        if topics[0].name == "other":
            return [RetriableError("it is in the way")]
        return create_topics(control, topics)

    monkeypatch.setattr(TreeControl, "create_topics", refuse)
    cluster = Cluster(tmp_path, 1)
    try:
        cluster.leader_of(T)
        assert "other" not in cluster.view.topics
        assert "topic 'other' cannot be taken into the cluster: it is in the way" in caplog.text
    finally:
        cluster.close()
