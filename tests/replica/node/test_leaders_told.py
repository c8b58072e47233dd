"""Who asks the wrong node is told which one leads, together with the refusal (KIP-951). Costs about 3 s."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import (
    ACKS_ALL,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    MetadataRequest,
    ProducePartition,
    ProduceRequest,
)
from logstore.model import TopicPartition
from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster import describe_topic_partitions as describing
from logstore.wire.messages.parts import CurrentLeader, NodeEndpoint
from logstore.wire.messages.records import fetch as fetching
from logstore.wire.messages.records import produce as producing
from tests.replica.node.cluster import eventually
from tests.replica.node.test_node import create, send
from tests.wire.raw_client import RawClient

T = TopicPartition("t", 0)


def fetch(node, version):
    topic_id = node.view.topics["t"].topic_id
    part = fetching.Partition(0, -1, 0, max_bytes=1 << 20)
    topic = fetching.Topic(name="t", topic_id=topic_id, partitions=(part,))
    with RawClient(node.address) as client:
        return client.ask(ApiKey.FETCH, fetching.FetchRequest(max_wait_ms=0, topics=(topic,)), version)


def produce(node, version, batch):
    topic_id = node.view.topics["t"].topic_id
    topic = producing.Topic(name="t", topic_id=topic_id, partitions=(producing.Partition(0, batch),))
    with RawClient(node.address) as client:
        request = producing.ProduceRequest(acks=-1, timeout_ms=5_000, topics=(topic,))
        return client.ask(ApiKey.PRODUCE, request, version)


@pytest.mark.parametrize(("fetch_version", "produce_version"), [(12, 9), (16, 10), (18, 13)])
def test_a_refusal_names_the_leader(cluster, fetch_version, produce_version):
    create(cluster)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"1"])
    leader = cluster.leader_of(T)
    batch = bytes(cluster.log(leader.node_id, T).fetch(0, max_bytes=1 << 20).data)
    host, _, port = leader.address.rpartition(":")
    epoch = cluster.state_of(T).leader_epoch
    there = (NodeEndpoint(leader.node_id, host, int(port), None),)
    for node in cluster.nodes.values():
        fetched, produced = fetch(node, fetch_version), produce(node, produce_version, batch)
        (read,), (written,) = fetched.topics[0].partitions, produced.topics[0].partitions
        if node is leader:
            assert (read.error_code, written.error_code) == (0, 0)
            assert not fetched.node_endpoints + produced.node_endpoints
            continue
        assert read.error_code == written.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        told = CurrentLeader(leader.node_id, epoch)
        assert read.current_leader == told
        assert fetched.node_endpoints == (there if fetch_version >= 16 else ())
        assert written.current_leader == (told if produce_version >= 10 else CurrentLeader())
        assert produced.node_endpoints == (there if produce_version >= 10 else ())


def test_who_may_be_elected_is_told_beside_who_is_in_sync(cluster):
    """To kafka-topics.sh (KIP-966)."""
    create(cluster, min_insync_replicas=2)
    cluster.wait_for_isr(T, 3)
    leader = cluster.leader_of(T)
    others = [each for each in cluster.nodes if each != leader.node_id]
    for each in others:
        cluster.stop(each)
        eventually(lambda each=each: each not in {known.node_id for known in cluster.state_of(T).isr})
    with RawClient(leader.address) as client:
        request = describing.DescribeTopicPartitionsRequest((describing.TopicWanted("t"),))
        (found,) = client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, 0).topics[0].partitions
    assert (found.isr, found.eligible_replicas) == ((leader.node_id,), (others[1],))
    assert found.last_known_eligible_replicas == ()


def test_what_comes_a_moment_before_a_node_leads_waits_for_it(cluster, monkeypatch):
    """The coordinator has said that it does, and clients know: a refused one waits a tenth of a second before
    it asks again. Not longer, and not where another node leads. 0.2 s."""
    create(cluster)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"1"])
    leader = cluster.leader_of(T)
    batch = bytes(cluster.log(leader.node_id, T).fetch(0, max_bytes=1 << 20).data)
    request = ProduceRequest(ACKS_ALL, 5_000, (ProducePartition(T, batch),))

    def error_of(pending):
        eventually(lambda: pending.poll() is not None)
        return pending.poll().partitions[0].error

    monkeypatch.setattr(leader._broker, "_replicas", {})
    waits = leader._broker.produce(request)
    assert waits.poll() is None
    monkeypatch.undo()
    assert error_of(waits) is ErrorCode.NONE
    monkeypatch.setattr(leader._broker, "_replicas", {})
    waits = leader._broker.produce(request)
    assert waits.poll() is None
    assert error_of(waits) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    other = next(each for each in cluster.nodes.values() if each is not leader)
    refused = other._broker.produce(request).poll()
    assert refused is not None
    assert refused.partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_asks_for_a_leader_a_moment_before_it_leads_waits_for_it(cluster, monkeypatch):
    """A node is elected for a new topic before it has the log: on a busy machine, a tenth of a second before.
    It named itself at once, and refused what came then: kafkajs' fetchTopicOffsets(), say, and kafka-go's
    DialLeader() failed. 0.2 s."""
    create(cluster)
    cluster.wait_for_isr(T, 3)
    leader = cluster.leader_of(T)

    def ask(node, *topics):
        return node._broker.metadata(MetadataRequest(topics or None))

    def leader_in(pending):
        eventually(lambda: pending.poll() is not None)
        found = {topic.name: topic for topic in pending.poll().topics}
        return found["t"].partitions[0].leader_id

    monkeypatch.setattr(leader._broker, "_replicas", {})
    waits = ask(leader, "t")
    assert waits.poll() is None
    monkeypatch.undo()
    assert leader_in(waits) == leader.node_id
    assert ask(leader, "t").poll() is not None
    monkeypatch.setattr(leader._broker, "_replicas", {})
    waits = ask(leader, "t")
    assert waits.poll() is None
    assert leader_in(waits) == leader.node_id  # not for long
    assert ask(leader).poll() is not None  # not for each of all topics
    other = next(each for each in cluster.nodes.values() if each is not leader)
    assert leader_in(ask(other, "t")) == leader.node_id


def test_who_asks_for_ends_a_moment_before_a_node_leads_waits_for_it(cluster, monkeypatch):
    """Another node has named it. Not longer than a tenth of a second. 0.1 s."""
    create(cluster)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"1"])
    leader = cluster.leader_of(T)
    request = ListOffsetsRequest((ListOffsetsPartition(T, LATEST),))

    def found(pending):
        eventually(lambda: pending.poll() is not None)
        (partition,) = pending.poll().partitions
        return partition.error, partition.offset

    monkeypatch.setattr(leader._broker, "_replicas", {})
    waits = leader._broker.list_offsets(request)
    assert waits.poll() is None
    monkeypatch.undo()
    assert found(waits) == (ErrorCode.NONE, 1)
    monkeypatch.setattr(leader._broker, "_replicas", {})
    assert found(leader._broker.list_offsets(request)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    other = next(each for each in cluster.nodes.values() if each is not leader)
    assert other._broker.list_offsets(request).poll() is not None
