"""Nodes replicate what clients write, and go on when one is gone. Costs about 20 s."""

from __future__ import annotations

import pathlib
import shutil
import time
from contextlib import closing, contextmanager, suppress
from functools import partial

import pytest

import logstore
from logstore import replica
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import wait_for
from logstore.broker.requests import CreateTopicsRequest, MetadataRequest, NewTopic
from logstore.errors import (
    DiskFullError,
    LogstoreError,
    RetriableError,
    StorageError,
    UnknownTopicError,
    UsageError,
)
from logstore.model import Role, TopicPartition
from logstore.partition.state import sidecars
from logstore.replica import Node
from logstore.replica.coordination.files import FileCoordinator
from logstore.replica.node.broker import NodeBroker
from logstore.replica.node.partition import PartitionReplica
from tests.partition.helpers_rules import batch
from tests.replica.node.cluster import Cluster, eventually

T = TopicPartition("t", 0)


def create(cluster, name="t", partitions=1, **config):
    with logstore.connect(*cluster.addresses) as remote:
        remote.create_topic(name, partitions=partitions, config=logstore.TopicConfig(**config))
    for number in range(partitions):
        cluster.leader_of(TopicPartition(name, number))


def send(cluster, values, topic="t", **settings):
    with logstore.connect(*cluster.addresses) as remote, remote.producer(acks="all", **settings) as producer:
        sent = [producer.send(topic, value=value) for value in values]
        producer.flush()
        return [each.result().offset for each in sent]


def read(cluster, topic="t"):
    with (
        logstore.connect(*cluster.addresses) as remote,
        remote.consumer(topic, auto_offset_reset="earliest") as consumer,
    ):
        found = []
        while records := consumer.poll(timeout=1.0):
            found += [record.value for record in records]
        return found


def log_bytes(cluster, node_id, partition=T):
    log = cluster.log(node_id, partition)
    return bytes(log.fetch(log.log_start_offset, max_bytes=2**30, isolation=logstore.Isolation.LOG_END).data)


def have_same_bytes(cluster, partition=T):
    return len({log_bytes(cluster, node_id, partition) for node_id in cluster.nodes}) == 1


def test_three_nodes_have_the_same_bytes(cluster):
    create(cluster)
    cluster.wait_for_isr(T, 3)
    values = [b"%d" % number for number in range(1_000)]
    assert send(cluster, values) == list(range(1_000))
    assert read(cluster) == values
    eventually(partial(have_same_bytes, cluster))
    roles = sorted(cluster.log(node_id, T).role.value for node_id in cluster.nodes)
    assert roles == ["follower", "follower", "leader"]
    eventually(lambda: {cluster.log(node_id, T).high_watermark for node_id in cluster.nodes} == {1_000})


def test_a_store_follows_a_cluster_and_counts_for_nothing(cluster, tmp_path):
    """A copy for readers, outside of the in-sync replicas: it goes on at the next leader, and its absence
    holds nothing up."""
    create(cluster, min_insync_replicas=2)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"1"])
    with logstore.open(tmp_path / "copy") as store:
        with replica.follow(store, *cluster.addresses, topics=["t"]) as standby:
            eventually(lambda: "t" in store and store["t"][0].log_end_offset == 1)
            cluster.crash(cluster.leader_of(T).node_id)
            send(cluster, [b"2"])
            eventually(lambda: store["t"][0].log_end_offset == 2, 40)
            assert standby.failure is None
            assert len(cluster.state_of(T).replicas) == 3
        send(cluster, [b"3"])
        assert [each.value for each in store["t"][0].read()] == [b"1", b"2"]
        copied = bytes(store["t"][0].fetch(0, max_bytes=2**20, isolation=logstore.Isolation.LOG_END).data)
    assert log_bytes(cluster, cluster.leader_of(T).node_id).startswith(copied)


@pytest.mark.parametrize(
    "wrong",
    [
        {"node_id": 2**31},
        {"replication_factor": 2**15},
        {"rack": 3},
        {"rack": ""},
        {"rack": "a" * 256},
        {"peer_tls": 1},
        {"peer_sasl": "x"},
    ],
    ids=lambda each: next(iter(each)),
)
def test_arguments_that_would_mislead_clients(tmp_path, wrong):
    with (
        logstore.open(tmp_path / "store") as store,
        closing(FileCoordinator(tmp_path / "cluster")) as coordinator,
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Node(store, **{"node_id": 1, **wrong}, coordinator=coordinator)
        Node(store, 2**31 - 1, coordinator=coordinator).close()


@pytest.mark.parametrize("coordinator", ["common", None, FileCoordinator])
def test_what_is_no_coordinator(tmp_path, coordinator):
    with (
        logstore.open(tmp_path / "s") as store,
        pytest.raises(UsageError, match="it must be a FileCoordinator or a ZooKeeperCoordinator"),
    ):
        Node(store, 1, coordinator=coordinator)


def test_new_partitions_have_leaders_from_the_start(cluster):
    """Some clients that meet one without a leader look again after seconds only."""
    seen = {}

    def watch(change):
        for each in change.partitions:
            seen.setdefault(tuple(each), change.view.partitions[each])

    end = cluster.nodes[1]._coordinator.watch(watch)
    create(cluster, partitions=3)
    with logstore.connect(*cluster.addresses) as remote:
        remote.add_partitions("t", 5)
    eventually(lambda: ("t", 4) in seen)
    end()
    of_topic = [state for (name, _), state in seen.items() if name == "t"]
    assert len(of_topic) == 5
    assert all(state.leader.node_id == state.replicas[0] for state in of_topic)
    assert all(state.leader_epoch == 1 for state in of_topic)


def test_a_nodes_store_changes_no_topics(cluster):
    """The others would not hear of it."""
    create(cluster, partitions=2)
    store = cluster.stores[1]
    topic = eventually(lambda: "t" in store and store["t"])
    for call in (
        lambda: store.create_topic("u"),
        lambda: store.delete_topic("t"),
        lambda: topic.configure(retention_ms=1_000),
        lambda: topic.add_partitions(3),
        lambda: topic.hold([1]),
        lambda: topic.let_go(1),
    ):
        with pytest.raises(UsageError, match="the store is a node of a cluster"):
            call()
    assert (topic.config.retention_ms, len(topic)) == (-1, 2)
    cluster.stop(1)
    with (
        logstore.open(store.path) as alone,
        pytest.raises(UsageError, match=r"not configured here: .* is the directory of a node"),
    ):
        alone["t"].configure(retention_ms=1_000)


def test_nothing_is_appended_to_what_a_node_does_not_lead(cluster):
    """The leader may append another record of its epoch there: then the replicas would differ for ever."""
    create(cluster)
    cluster.wait_for_isr(T, 3)
    assert send(cluster, [b"1"]) == [0]
    leader = cluster.leader_of(T).node_id
    follower = next(each for each in cluster.nodes if each != leader)
    eventually(lambda: cluster.log(follower, T).log_end_offset == 1)
    store = cluster.stores[follower]
    for call in (store["t"][0].append, store["t"].append):
        with pytest.raises(UsageError, match="t-0: it is a replica of a cluster's partition"):
            call(b"alien")
    cluster.stop(follower)
    with logstore.open(store.path) as alone:
        log = alone["t"][0]
        for call in (
            lambda: log.append(b"alien"),
            lambda: log.append(bytearray(b"alien"), timestamp_ms=1),
            lambda: log.extend([b"alien"]),
            lambda: log.append_batch(batch(b"alien")),
            lambda: log.append_end_marker(1, 0, committed=True),
        ):
            with pytest.raises(UsageError, match="t-0: it is a replica of a cluster's partition"):
                call()
        assert log.append_if_ready(b"alien") is None
        assert log.log_end_offset == 1


def test_a_node_that_was_closed_leads_nothing_in_its_store(cluster):
    """Others lead by then, and would have it cut off what is appended."""
    create(cluster)
    cluster.wait_for_isr(T, 3)
    assert send(cluster, [b"1"]) == [0]
    leader = cluster.leader_of(T).node_id
    log = cluster.log(leader, T)
    cluster.nodes[leader].close()
    with pytest.raises(UsageError, match="t-0: it is a replica"):
        log.append(b"alien")
    assert log.log_end_offset == 1


def test_a_queue_is_not_worked_on_in_the_directory_of_a_node(cluster):
    """The jobs are given out in the cluster, too, which would forget what is said of them here."""
    create(cluster)
    store = cluster.stores[1]
    cluster.stop(1)
    with logstore.open(store.path) as alone:
        for call in (lambda: alone.queue("t", group="g"), lambda: alone.delete_queue("g")):
            with pytest.raises(UsageError, match=r"here: .* is the directory of a node, .*\.(delete_)?queue"):
                call()
        assert alone.queues() == []


def test_groups_and_transactions_do_not_go_on_in_the_directory_of_a_node(cluster):
    """What they store is the cluster's: a member would wait for it without end."""
    create(cluster)
    cluster.wait_for_isr(T, 3)
    assert send(cluster, [b"1"]) == [0]
    store = cluster.stores[1]
    cluster.stop(1)
    with logstore.open(store.path) as alone:
        for call in (
            lambda: alone.consumer("t", group="g"),
            lambda: alone.transform("t", "t", lambda record: None, group="g"),
            lambda: alone.producer(transactional_id="x"),
        ):
            with pytest.raises(
                UsageError, match=r" here: .* is the directory of a node, .*logstore\.connect"
            ):
                call()
        with alone.consumer("t") as consumer:
            assert consumer.poll(timeout=0) is not None


@pytest.mark.parametrize("cut", ["truncate_to", "truncate_fully_and_start_at"])
def test_what_a_node_leads_is_not_cut_off(cluster, cut):
    """All replicas would lose it, though it was acknowledged."""
    create(cluster)
    cluster.wait_for_isr(T, 3)
    assert send(cluster, [b"1", b"2"]) == [0, 1]
    leader = cluster.leader_of(T).node_id
    with pytest.raises(UsageError, match="t-0: this node leads it"):
        getattr(cluster.log(leader, T), cut)(1)
    assert read(cluster) == [b"1", b"2"]
    assert send(cluster, [b"3"]) == [2]


def test_a_partition_whose_state_is_damaged_is_a_partition(cluster):
    """Keys would go elsewhere if the topic had one fewer."""
    create(cluster, partitions=3)
    view = cluster.view
    left = {each: state for each, state in view.partitions.items() if each != ("t", 1)}
    broker = cluster.nodes[1]._broker
    broker._view = lambda: view._replace(partitions=left)
    (topic,) = broker.metadata(MetadataRequest(("t",))).poll().topics
    assert [each.partition for each in topic.partitions] == [0, 1, 2]
    assert topic.partitions[1].error is ErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize("port_stays", [True, False])
def test_a_client_finds_the_next_controller(cluster, port_stays):
    """Also one that has asked for nothing else for a while."""
    create(cluster)
    with logstore.connect(*cluster.addresses, request_timeout_ms=8_000) as remote:
        for node_id in list(cluster.nodes):
            assert remote.reassignments() == {}
            address = cluster.nodes[node_id].address if port_stays else "127.0.0.1:0"
            cluster.stop(node_id)
            cluster.start(node_id, listener=address)
            cluster.wait_for_isr(T, 3)
            remote.reassign({T: (1, 2, 3)})
            assert remote.reassignments() == {}
        remote.create_topic("u")
        remote.delete_topic("u")


def test_a_leader_that_stops_has_heard_who_leads_before_it_ends_connections(cluster, monkeypatch):
    """What waited at it was not answered for the 5 s that a listener waits, and what was written at the next
    leader waited as long for the node, which was in sync and did not follow."""
    create(cluster)
    cluster.wait_for_isr(T, 3)
    node, found = cluster.leader_of(T), []
    act, close, replica = node._act_on, node._listener.close, node._replicas[T]

    def act_late(changes):
        time.sleep(0.3)
        act(changes)

    def close_listener():
        found.append((replica.leads, replica.follows is None))
        close()

    monkeypatch.setattr(node, "_act_on", act_late)
    monkeypatch.setattr(node._listener, "close", close_listener)
    cluster.stop(node.node_id)
    assert found[0] == (False, False)


def test_a_leader_that_stops_hands_over_and_comes_back(cluster):
    create(cluster)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"1"])
    first = cluster.leader_of(T).node_id
    cluster.stop(first)
    second = cluster.leader_of(T)
    assert second.node_id != first
    send(cluster, [b"2"])
    cluster.start(first)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"3"])
    assert read(cluster) == [b"1", b"2", b"3"]
    eventually(partial(have_same_bytes, cluster))


def test_a_leader_that_is_gone_is_replaced(cluster):
    create(cluster)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"1"])
    first = cluster.leader_of(T).node_id
    cluster.crash(first)
    second = cluster.leader_of(T)
    assert second.node_id != first
    send(cluster, [b"2"])
    assert read(cluster) == [b"1", b"2"]
    cluster.start(first)
    cluster.wait_for_isr(T, 3)
    eventually(partial(have_same_bytes, cluster))


@pytest.mark.parametrize("way", ["stop", "crash"])
def test_a_follower_that_is_gone_is_not_waited_for(tmp_path, way):
    """By the default, one that only hangs may be late for 30 seconds."""
    cluster = Cluster(tmp_path, replica_lag_time_max_ms=30_000)
    try:
        create(cluster, min_insync_replicas=2)
        cluster.wait_for_isr(T, 3)
        send(cluster, [b"1"])
        leader = cluster.leader_of(T).node_id
        getattr(cluster, way)(next(each for each in cluster.nodes if each != leader))
        began = time.monotonic()
        assert send(cluster, [b"2"]) == [1]
        assert time.monotonic() - began < 10
    finally:
        cluster.close()


def test_what_could_not_be_done_of_a_change_is_done_soon(cluster, monkeypatch, caplog):
    """There was no thread to follow with, and what came behind that was left out."""
    create(cluster)
    node, failures = cluster.leader_of(T), [RetriableError("no thread can be started to copy from a leader")]
    plain = node._replicate

    def replicate(*told):
        if node.view.living.keys() != {1, 2, 3} and failures:
            raise failures.pop()
        plain(*told)

    monkeypatch.setattr(node, "_replicate", replicate)
    cluster.crash(next(each for each in (1, 2, 3) if each != node.node_id))
    eventually(lambda: node._living == cluster.nodes.keys())
    assert not failures
    assert "cannot go on: no thread can be started" in caplog.text
    assert "to copy from a leader; it tries again until it can" in caplog.text


def test_with_too_few_replicas_nothing_is_written(cluster):
    create(cluster, min_insync_replicas=2)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"1"])
    leader = cluster.leader_of(T).node_id
    for node_id in list(cluster.nodes):
        if node_id != leader:
            cluster.stop(node_id)
    eventually(lambda: len(cluster.state_of(T).isr) == 1)
    with pytest.raises(LogstoreError, match=r"min\.insync\.replicas"):
        send(cluster, [b"2"], delivery_timeout_ms=2_000, request_timeout_ms=1_000)
    assert cluster.log(leader, T).log_end_offset == 1
    cluster.start(next(each for each in (1, 2, 3) if each != leader))
    send(cluster, [b"3"])
    assert read(cluster) == [b"1", b"3"]


def test_what_rests_is_not_noted_with_each_fetch(tmp_path, monkeypatch):
    """By its defaults a leader hears of it now and then. Costs 5 s."""
    noted, fetched = [], []
    count_of_partitions = 20
    with closing(Cluster(tmp_path, replica_lag_time_max_ms=30_000)) as cluster:
        create(cluster, partitions=count_of_partitions)
        for number in range(count_of_partitions):
            cluster.wait_for_isr(TopicPartition("t", number), 3)

        def on_fetch(replica, follower, wanted):
            noted.append(wanted.partition)
            hear(replica, follower, wanted)

        def fetch(broker, request):
            fetched.extend([request] * (request.replica is not None))
            return answer(broker, request)

        hear, answer = PartitionReplica.on_fetch, NodeBroker.fetch
        monkeypatch.setattr(PartitionReplica, "on_fetch", on_fetch)
        monkeypatch.setattr(NodeBroker, "fetch", fetch)
        eventually(lambda: len(fetched) >= 48)  # six pairs of nodes, eight each
        assert len(noted) <= 8 / 3 * 2 * count_of_partitions + 2 * count_of_partitions
        assert {each.partition for each in noted if each.topic == "t"} == set(range(count_of_partitions))
        send(cluster, [b"1"])  # and nobody waits for it
        cluster.crash(cluster.leader_of(T).node_id)
        send(cluster, [b"2"])
        assert read(cluster) == [b"1", b"2"]


def test_what_no_other_has_is_cut_off_where_another_has_led(cluster, caplog):
    """A leader appends what nobody copies, and is gone; the next one leads on from what all had."""
    create(cluster)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"1"])
    first = cluster.leader_of(T).node_id
    cluster.cut_off(first)
    cluster.log(first, T).append(b"lost")
    cluster.crash(first)
    send(cluster, [b"2"])
    cluster.start(first)
    cluster.wait_for_isr(T, 3)
    assert read(cluster) == [b"1", b"2"]
    eventually(partial(have_same_bytes, cluster))
    (told,) = [each.getMessage() for each in caplog.records if "cut off" in each.getMessage()]
    assert told.startswith(
        "t-0: the leader has other records from 1 on; the offsets to 1 are cut off here. Not all"
    )
    assert "unless an unclean election or an older copy of the coordinator has cost them" in told


def test_what_consumers_may_have_seen_is_told_of_when_it_is_cut_off(cluster, caplog):
    create(cluster, unclean_leader_election_enable=True)
    cluster.wait_for_isr(T, 3)
    leader = cluster.leader_of(T).node_id
    behind = next(each for each in cluster.nodes if each != leader)
    for each in set(cluster.nodes) - {leader}:
        cluster.stop(each)
    cluster.wait_for_isr(T, 1)
    send(cluster, [b"lost"])
    cluster.stop(leader)
    cluster.start(behind)
    eventually(lambda: cluster.leader_of(T).node_id == behind)
    cluster.start(leader)
    eventually(
        lambda: "the leader has other records from 0 on; the offsets to 0 are cut off here" in caplog.text
    )
    assert "Some were below the high watermark" in caplog.text


@pytest.mark.parametrize(("session_ms", "waits_ms"), [(2_000, 20_000), (30_000, 60_000)])
def test_a_node_waits_for_the_end_of_its_own_earlier_session(tmp_path, monkeypatch, session_ms, waits_ms):
    """One that was killed was refused its id for 20 s, and then ended, where sessions last longer."""
    waited = []
    register = FileCoordinator.register

    def noting(self, *arguments, wait_ms, **options):
        waited.append(wait_ms)
        return register(self, *arguments, wait_ms=wait_ms, **options)

    monkeypatch.setattr(FileCoordinator, "register", noting)
    with (
        logstore.open(tmp_path / "data") as store,
        closing(FileCoordinator(tmp_path / "cluster", session_ms=session_ms)) as coordinator,
        Node(store, 1, coordinator=coordinator),
    ):
        assert waited == [waits_ms]


def test_a_topic_that_the_cluster_has_lost_is_told_with_what_to_do(tmp_path, caplog):
    """As after a coordinator was put back from an older copy. 0.3 s."""
    common, copy = tmp_path / "cluster", tmp_path / "copy"
    with logstore.open(tmp_path / "data") as store:
        FileCoordinator(common, cluster_id=store.cluster_id).close()
        for name in ("known", "lost"):
            with (
                closing(FileCoordinator(common)) as coordinator,
                Node(store, 1, coordinator=coordinator) as node,
                logstore.connect(node.address) as cluster,
            ):
                cluster.create_topic(name)
                eventually(lambda name=name: name in store)
            if name == "known":
                shutil.copytree(common, copy)
                life = store.path + "/node.json"
                known = pathlib.Path(life).read_bytes()
        pathlib.Path(life).write_bytes(known)
        with (
            closing(FileCoordinator(copy)) as coordinator,
            Node(store, 1, coordinator=coordinator) as node,
        ):
            eventually(lambda: "does not know the topics" in caplog.text)
            with logstore.connect(node.address) as cluster:
                cluster.create_topic("lost")
            eventually(lambda: "cannot be held here" in caplog.text)
    assert f"the topics lost of {tmp_path / 'data'}: they are kept, and not served" in caplog.text
    assert "move its directory away, and start it with an empty one" in caplog.text
    assert "replica.leave_cluster() of the copy" in caplog.text


def test_a_node_that_comes_back_empty_copies_everything(cluster, tmp_path):
    create(cluster)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"%d" % number for number in range(100)])
    follower = next(each for each in cluster.nodes if each != cluster.leader_of(T).node_id)
    cluster.stop(follower)
    cluster.wipe(follower)
    cluster.start(follower)
    cluster.wait_for_isr(T, 3)
    eventually(partial(have_same_bytes, cluster))


def test_topics_grow_and_go(cluster):
    create(cluster, partitions=2)
    with logstore.connect(*cluster.addresses) as remote:
        remote.add_partitions("t", 4)
        for number in range(4):
            cluster.leader_of(TopicPartition("t", number))
            cluster.wait_for_isr(TopicPartition("t", number), 3)
        assert remote.topics() == {"t": 4}
        remote.delete_topic("t")
        eventually(lambda: all("t" not in store for store in cluster.stores.values()))
    create(cluster)
    assert send(cluster, [b"new"]) == [0]


def test_a_topic_that_was_deleted_while_a_node_was_away_goes_when_it_is_back(cluster):
    create(cluster)
    create(cluster, "kept")
    cluster.wait_for_isr(TopicPartition("kept", 0), 3)
    cluster.wait_for_isr(T, 3)
    cluster.stop(3)
    with logstore.connect(*cluster.addresses) as remote:
        remote.delete_topic("t")
    cluster.start(3)
    eventually(lambda: "t" not in cluster.stores[3])
    assert "kept" in cluster.stores[3]


@contextmanager
def told_late(cluster):
    """What the coordinator tells meanwhile comes to the nodes afterwards, all of it at once."""
    for node in cluster.nodes.values():
        node._step = lambda: time.sleep(0.01)
    time.sleep(0.05)  # a step that was under way
    try:
        yield
    finally:
        for node in cluster.nodes.values():
            del node._step


@pytest.mark.parametrize("leaders", [(1, 2), (1, 1)], ids=["another leads", "the same leads"])
def test_a_topic_that_is_deleted_and_made_again_at_once(cluster, leaders):
    """Nodes may hear of both at once, and then of a state that looks like the one before."""
    first, second = [(NewTopic("t", assignments=((each, *({1, 2, 3} - {each})),)),) for each in leaders]
    with logstore.connect(*cluster.addresses) as remote:
        wait_for(remote.broker.create_topics(CreateTopicsRequest(first)))
        cluster.wait_for_isr(T, 3)
        assert send(cluster, [b"old", b"old"]) == [0, 1]
        with told_late(cluster):
            remote.delete_topic("t")
            made = wait_for(remote.broker.create_topics(CreateTopicsRequest(second)))
            assert made.topics[0].error is ErrorCode.NONE

    def ends():
        with suppress(UnknownTopicError):  # of the first, and then of the second
            return {cluster.log(node_id, T).log_end_offset for node_id in cluster.nodes}

    eventually(lambda: ends() == {0})
    assert send(cluster, [b"new"], delivery_timeout_ms=10_000) == [0]
    eventually(lambda: ends() == {1} and have_same_bytes(cluster))


def test_a_topic_that_counts_what_is_durable(tmp_path):
    """Each replica flushes before it tells that it has a record. None is late enough to leave the ISR, which
    would not be waited for."""
    with closing(Cluster(tmp_path, replica_lag_time_max_ms=30_000)) as cluster:
        with logstore.connect(*cluster.addresses) as remote:
            asked = CreateTopicsRequest((NewTopic("t", 1, {"acks.all.durable": "true"}, 3),))
            assert wait_for(remote.broker.create_topics(asked)).topics[0].error is ErrorCode.NONE
        cluster.wait_for_isr(T, 3)
        assert send(cluster, [b"%d" % number for number in range(20)]) == list(range(20))
        durable = [cluster.log(node_id, T).durable_offset for node_id in cluster.nodes]
        assert durable == [20, 20, 20]


def test_a_node_whose_disk_has_failed_leaves(cluster):
    """And counts as one that has lost something when it is back, though only its process ended."""
    create(cluster)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"1"])
    first = cluster.leader_of(T)
    log = cluster.log(first.node_id, T)
    log.writer.guard.poison(StorageError("[Errno 5] flushing: Input/output error"))
    eventually(lambda: first.failure)
    send(cluster, [b"2"])
    assert cluster.leader_of(T) is not first
    assert not first._life.is_whole
    with pytest.raises(StorageError):
        cluster.stop(first.node_id)
    again = cluster.start(first.node_id)
    cluster.wait_for_isr(T, 3)
    assert again.failure is None
    assert read(cluster) == [b"1", b"2"]


@pytest.mark.parametrize("step", ["first", "last"])
def test_what_came_while_the_disk_was_full_is_held_when_there_is_room(cluster, monkeypatch, step):
    """Without another word of the coordinator; also if it was half made, and could not be undone."""
    create(cluster)
    directory = cluster.stores[1].directory
    refused = []

    def refuse(topic, *_, **__):
        refused.append(getattr(topic, "name", topic))
        raise DiskFullError("[Errno 28] writing: No space left on device")

    def refuse_all(made):
        refuse(made[0][0])

    with monkeypatch.context() as full, logstore.connect(*cluster.addresses) as remote:
        if step == "first":
            full.setattr(directory._topics, "new_entry", refuse)
            full.setattr(directory, "add_partitions", refuse)
        else:
            full.setattr(directory, "_complete", refuse_all)
            full.setattr(directory._topics, "_finish_failed", refuse)
        remote.create_topic("new", partitions=3)
        remote.add_partitions("t", 4)
        eventually(lambda: {"new", "t"} <= set(refused))
        view = cluster.view
        assert 1 in {view.partitions["new", number].leader.node_id for number in range(3)}
    for partition in [TopicPartition(*each) for each in view.partitions if each[0] in ("new", "t")]:
        assert cluster.leader_of(partition).node_id == view.partitions[partition].leader.node_id
        cluster.wait_for_isr(partition, 3)


@pytest.mark.parametrize("what", ["role", "log"])
def test_a_log_that_cannot_be_used_yet_is_led_when_it_can(cluster, monkeypatch, what):
    """The node stays, and says that it does not lead the partition; it answers for the others meanwhile."""
    create(cluster)
    node, directory = cluster.nodes[1], cluster.stores[1].directory
    refused = []
    prepare_role, log, create_topics = sidecars.prepare_role, directory.log, directory.create_topics

    def prepare_role_elsewhere(files, path, role):
        if path.startswith(f"{directory.path}/new"):
            refused.append(path)
            raise DiskFullError("[Errno 28] writing: No space left on device")
        prepare_role(files, path, role)

    def log_of_others(partition):
        if partition.topic == "new":
            refused.append(partition)
            raise UnknownTopicError("it comes")
        return log(partition)

    with monkeypatch.context() as full, logstore.connect(*cluster.addresses) as remote:
        if what == "role":
            full.setattr(directory, "create_topics", lambda topics, _: create_topics(topics))  # as a crash
            full.setattr(sidecars, "prepare_role", prepare_role_elsewhere)
        else:
            full.setattr(directory, "log", log_of_others)
        remote.create_topic("new", partitions=3)
        eventually(lambda: len(refused) > 6)  # it is tried again
        led = next(number for number in range(3) if cluster.state_of(("new", number)).leader.node_id == 1)
        assert ("new", led) not in node.led
    eventually(lambda: ("new", led) in node.led)
    for partition in [T, *(TopicPartition("new", number) for number in range(3))]:
        cluster.wait_for_isr(partition, 3)
    assert node.failure is None
    assert send(cluster, [b"1"]) == [0]


def test_a_node_listens_where_others_reach_it(cluster, tmp_path):
    with pytest.raises(UsageError, match="a host and a port"):
        cluster.start(4, listener=str(tmp_path / "socket"))


def test_who_does_not_lead_refuses(cluster):
    create(cluster)
    cluster.wait_for_isr(T, 3)
    follower = next(each for each in cluster.nodes if each != cluster.leader_of(T).node_id)
    eventually(lambda: cluster.log(follower, T).role is Role.FOLLOWER)
    with cluster.stores[follower].producer(acks=1, retries=0) as producer, pytest.raises(LogstoreError):
        producer.send("t", value=b"no").result()
    assert cluster.log(follower, T).log_end_offset == 0


def test_a_directory_of_another_node_or_cluster(cluster, tmp_path):
    create(cluster)
    cluster.stop(3)
    with pytest.raises(UsageError, match="node 3, not of node 4"):
        cluster.start(4, directory="node-3")
    with logstore.open(tmp_path / "own") as store:
        store.create_topic("mine")
    with pytest.raises(UsageError, match="belongs to cluster"):
        cluster.start(5, directory="own")


def test_a_second_node_of_one_store_is_refused_and_the_first_goes_on(cluster):
    leading = cluster.nodes[1]
    for node_id in (1, 2):
        with pytest.raises(UsageError, match="is a running node already"):
            Node(cluster.stores[1], node_id, coordinator=leading._coordinator)
    create(cluster)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"1"])
    assert read(cluster) == [b"1"]


@pytest.mark.parametrize("advertised", [None, "127.0.0.1:0"])
def test_a_node_whose_address_is_a_guess_warns_of_it(tmp_path, caplog, advertised):
    with (
        logstore.open(tmp_path / "node") as store,
        closing(FileCoordinator(str(tmp_path / "common"), cluster_id=store.cluster_id)) as coordinator,
        Node(
            store,
            1,
            coordinator=coordinator,
            listener="0.0.0.0:0",
            advertised=advertised,
            allow_anonymous=True,
        ),
    ):
        pass
    told = [each.getMessage() for each in caplog.records if "give advertised" in each.getMessage()]
    assert len(told) == (advertised is None)
