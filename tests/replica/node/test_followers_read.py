"""Consumers read from followers in their rack (KIP-392). Costs about 14 s."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.model import TopicPartition
from logstore.replica.node import fetching as following
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.messages.records import fetch as fetching
from tests.replica.node.cluster import Cluster, eventually
from tests.replica.node.test_node import create, send
from tests.wire.raw_client import RawClient

T = TopicPartition("t", 0)
RACKS = {1: "a", 2: "b", 3: "c"}


class Racks(Cluster):
    """Each node in a rack of its own."""

    def start(self, node_id, **options):
        return super().start(node_id, rack=RACKS[node_id], **options)


@pytest.fixture
def racks(tmp_path):
    cluster = Racks(tmp_path, read_from_followers=True)
    yield cluster
    cluster.close()


def ask(node, rack, *, offset=0, epoch=-1, isolation=0, replica=-1):
    """What a node says to a consumer of the partition, outside of a fetch session."""
    topic_id = node.view.topics["t"].topic_id
    part = fetching.Partition(0, epoch, offset, max_bytes=1 << 20)
    request = fetching.FetchRequest(
        max_wait_ms=0,
        isolation_level=isolation,
        replica_state=fetching.ReplicaState(replica),
        topics=(fetching.Topic(topic_id=topic_id, partitions=(part,)),),
        rack_id=rack,
    )
    with RawClient(node.address) as client:
        (topic,) = client.ask(ApiKey.FETCH, request).topics
    return topic.partitions[0]


def fill(cluster):
    create(cluster)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"%d" % number for number in range(100)])
    eventually(lambda: {cluster.log(each, T).high_watermark for each in cluster.nodes} == {100})
    leader = cluster.leader_of(T)
    followers = [each for number, each in cluster.nodes.items() if number != leader.node_id]
    return leader, followers


def test_a_leader_names_the_follower_that_is_near(racks):
    leader, followers = fill(racks)
    for each in followers:
        told = ask(leader, RACKS[each.node_id])
        assert (told.preferred_read_replica, told.error_code, told.high_watermark) == (each.node_id, 0, 100)
        assert not bytes(told.records or b"")
    for rack in ("", "d", RACKS[leader.node_id]):
        told = ask(leader, rack)
        assert (told.preferred_read_replica, told.error_code) == (-1, 0)
        assert bytes(told.records)
    beyond = ask(leader, RACKS[followers[0].node_id], offset=101)
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_gives_the_same_bytes(racks):
    leader, followers = fill(racks)
    epoch = racks.state_of(T).leader_epoch
    for each in followers:
        for isolation in (0, 1):
            told = ask(each, RACKS[each.node_id], epoch=epoch, isolation=isolation)
            assert (told.preferred_read_replica, told.error_code, told.high_watermark) == (-1, 0, 100)
            assert bytes(told.records) == bytes(ask(leader, "", isolation=isolation).records)
        rack = RACKS[each.node_id]
        assert ask(each, rack, epoch=epoch - 1).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert ask(each, rack, epoch=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert ask(each, "").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert ask(each, rack, replica=9).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_that_is_behind_is_not_named(racks):
    leader, (behind, other) = fill(racks)
    racks.let_follow_nobody(behind.node_id)
    send(racks, [b"1"])
    send(racks, [b"2"])
    racks.wait_for_isr(T, 2)
    assert ask(leader, RACKS[behind.node_id]).preferred_read_replica == -1
    assert ask(leader, RACKS[other.node_id]).preferred_read_replica == other.node_id
    racks.stop(other.node_id)
    eventually(lambda: ask(leader, RACKS[other.node_id]).preferred_read_replica == -1)


def test_what_a_follower_has_deleted_is_read_from_the_leader(racks):
    """1 s. Each node deletes by its own clock, and by its own settings."""
    leader, (near, other) = fill(racks)
    racks.log(near.node_id, T).delete_before(60)
    rack = RACKS[near.node_id]
    assert ask(near, rack, offset=59).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    send(racks, [b"100"])  # the follower asks again, and tells where its log begins
    eventually(lambda: ask(leader, rack, offset=59).preferred_read_replica == -1)
    assert bytes(ask(leader, rack, offset=59).records)
    assert ask(leader, rack, offset=60).preferred_read_replica == near.node_id
    assert ask(leader, RACKS[other.node_id], offset=59).preferred_read_replica == other.node_id
    assert read_in_rack(racks, rack, 101) == [b"%d" % number for number in range(101)]


def test_a_follower_judges_no_offset_that_it_does_not_have(racks):
    """0.5 s. It may be in the leader's log: a consumer that is told "out of range" gives its position up."""
    leader, (near, _) = fill(racks)
    rack = RACKS[near.node_id]
    assert ask(near, rack, offset=100).error_code == 0
    assert ask(near, rack, offset=101).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(leader, rack, offset=101).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_that_is_not_in_sync_sends_consumers_away(racks):
    """2 s. It may have nothing new for as long as they wait."""
    leader, (near, _) = fill(racks)
    rack = RACKS[near.node_id]
    with waiting(near, rack, offset=100) as answer:
        racks.let_follow_nobody(near.node_id)
        send(racks, [b"100"])
        assert answer().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(near, rack, offset=100).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(leader, rack, offset=100).preferred_read_replica == -1


def test_who_waits_at_a_follower_hears_of_a_record_at_once(racks, monkeypatch):
    """1 s. Followers hear from the leader how far consumers may read when that moves, and not when their long
    polls are over, which takes a second here."""
    leader, (near, _) = fill(racks)
    assert ask(leader, RACKS[near.node_id]).preferred_read_replica == near.node_id
    monkeypatch.setattr(following, "MAX_WAIT_MS", 8_000)
    waits = []
    for end in range(100, 104):
        eventually(partial(_has_hw, racks, near.node_id, end))
        with waiting(near, RACKS[near.node_id], offset=end) as answer:
            send(racks, [b"%d" % end])
            began = time.monotonic()
            told = answer()
            waits.append(time.monotonic() - began)
        assert (told.error_code, told.high_watermark) == (0, end + 1)
        assert bytes(told.records)
    assert min(waits[1:]) < 0.5, waits  # the first long poll is older than the test


@contextmanager
def waiting(node, rack, *, offset):
    """A consumer that has been told that there is nothing, in a fetch session, and waits for more. Gives what
    returns the answer."""
    topic_id = node.view.topics["t"].topic_id
    part = fetching.Partition(0, -1, offset, max_bytes=1 << 20)
    topics = (fetching.Topic(topic_id=topic_id, partitions=(part,)),)
    first = fetching.FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, rack_id=rack, topics=topics)
    with RawClient(node.address) as client:
        begun = client.ask(ApiKey.FETCH, first)
        version = APIS[ApiKey.FETCH].last
        again = first._replace(max_wait_ms=9_000, session_id=begun.session_id, session_epoch=1, topics=())
        client.send(ApiKey.FETCH, again, version)
        yield lambda: client.receive(ApiKey.FETCH, version).topics[0].partitions[0]


def test_a_follower_that_is_about_to_go_is_not_named(racks):
    """0.5 s. Consumers whose connections it has closed would be sent back to it."""
    leader, (near, other) = fill(racks)
    near._session.leave()
    eventually(lambda: ask(leader, RACKS[near.node_id]).preferred_read_replica == -1, seconds=5)
    assert ask(leader, RACKS[other.node_id]).preferred_read_replica == other.node_id


def test_off_by_default(tmp_path):
    cluster = Racks(tmp_path)
    try:
        leader, (follower, _) = fill(cluster)
        assert ask(leader, RACKS[follower.node_id]).preferred_read_replica == -1
        assert ask(follower, "").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    finally:
        cluster.close()


def test_nodes_that_differ_in_it(tmp_path):
    """As while it is changed at one node after the other."""
    cluster = Racks(tmp_path, read_from_followers=True)
    try:
        leader, (follower, _) = fill(cluster)
        number = follower.node_id
        cluster.stop(number)
        cluster.start(number, read_from_followers=False)
        cluster.wait_for_isr(T, 3)
        send(cluster, [b"100"])
        assert leader.node_id == cluster.leader_of(T).node_id
        assert read_in_rack(cluster, RACKS[number], 101)[-1] == b"100"
    finally:
        cluster.close()


def count_reads(node):
    """Counts what consumers read from the node's log; the list grows."""
    counts = []
    fetch = node._broker.fetch

    def counted(request):
        if request.replica is None:
            counts.append(request.rack)
        return fetch(request)

    node._broker.fetch = counted
    return counts


def read_in_rack(cluster, rack, count, stopped=lambda found: None):
    confluent_kafka = pytest.importorskip("confluent_kafka")
    settings = {
        "bootstrap.servers": ",".join(cluster.addresses),
        "group.id": f"g-{rack}",
        "client.rack": rack,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 1_000,
    }
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        found = []
        while len(found) < count:
            found += [each.value() for each in consumer.consume(10, timeout=0.5) if not each.error()]
            stopped(found)
        return found
    finally:
        consumer.close()


def test_librdkafka_reads_from_its_rack_and_from_the_leader_when_that_goes(racks):
    leader, (near, _) = fill(racks)
    at_leader, at_follower = count_reads(leader), count_reads(near)
    stopped = []

    def stop_once(found):
        if len(found) >= 100 and not stopped:
            stopped.append(len(at_follower))
            racks.stop(near.node_id)
            with logstore.connect(leader.address) as remote, remote.producer(acks="all") as producer:
                for number in range(100, 200):
                    producer.send("t", b"%d" % number)

    found = read_in_rack(racks, RACKS[near.node_id], 200, stop_once)
    assert found == [b"%d" % number for number in range(200)]
    assert stopped[0] >= 1, "the follower was asked"
    assert at_leader
    assert set(at_follower) == {RACKS[near.node_id]}


def test_committed_reads_at_a_follower_leave_out_what_was_aborted(racks):
    leader, (near, _) = fill(racks)
    with logstore.connect(*racks.addresses) as remote, remote.producer(transactional_id="x") as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction():
            abandon(producer)
        with producer.transaction():
            producer.send("t", b"committed")
    end = racks.log(leader.node_id, T).log_end_offset
    eventually(partial(_has_hw, racks, near.node_id, end))
    found = read_in_rack(racks, RACKS[near.node_id], 101)
    assert found[-1] == b"committed"
    assert b"aborted" not in found


def abandon(producer):
    producer.send("t", b"aborted").result()
    raise ZeroDivisionError


def _has_hw(cluster, node_id, offset):
    return cluster.log(node_id, T).high_watermark == offset
