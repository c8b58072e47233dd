"""Transactions of a cluster: over partitions that several nodes lead, and past the node that coordinates
them. Costs about 20 s."""

from __future__ import annotations

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, wait_for
from logstore.broker.requests import CreateTopicsRequest, NewTopic
from logstore.broker.transactions.requests import (
    AddPartitionsResult,
    AddPartitionsToTransaction,
    TransactionalProducer,
)
from logstore.errors import ProducerFencedError
from logstore.model import Isolation, TopicPartition
from logstore.replica.node import marking
from logstore.replica.node.transacting import TRANSACTIONS
from logstore.wire.apis import ApiKey
from tests.replica.node.cluster import eventually
from tests.wire.handlers.test_transactions import KAFKAS
from tests.wire.raw_client import RawClient
from tests.wire.transactions_v2 import Teller, tell

PARTITIONS = 6
GROUPS = TopicPartition("__consumer_offsets", 0)


@pytest.fixture
def remote(cluster):
    with logstore.connect(*cluster.addresses) as opened:
        opened.create_topic("t", partitions=PARTITIONS)
        for partition in (TRANSACTIONS, GROUPS, TopicPartition("t", PARTITIONS - 1)):
            cluster.wait_for_isr(partition, 3)
        yield opened


def send(producer, value):
    for partition in range(PARTITIONS):
        producer.send("t", value, partition=partition)


def committed(remote, count):
    """The values in order of arrival, of each partition the same."""
    found = []
    with remote.consumer("t", isolation=Isolation.COMMITTED) as consumer:
        while len(found) < count * PARTITIONS:
            found += consumer.poll(20.0)
    for number in range(PARTITIONS):
        values = [each.value for each in found if each.partition == number]
        assert values == [each.value for each in found if each.partition == 0]
    return values


def test_all_or_nothing_at_several_leaders(cluster, remote):
    assert len({cluster.leader_of(TopicPartition("t", number)).node_id for number in range(PARTITIONS)}) == 3
    with remote.producer(transactional_id="a") as producer:
        for number in range(3):
            with producer.transaction() as transaction:
                send(producer, b"%d" % number)
                transaction.commit_offsets("g", {("t", 0): number})
            transaction = producer.transaction().__enter__()
            send(producer, b"nothing")
            transaction.commit_offsets("g", {("t", 0): 99})
            transaction.abort()
    assert committed(remote, 3) == [b"0", b"1", b"2"]
    assert remote.offsets("g")[TopicPartition("t", 0)].offset == 2
    ends = {node_id: cluster.log(node_id, TRANSACTIONS).log_end_offset for node_id in cluster.nodes}
    assert max(ends.values()) > 0


def test_a_follower_tells_which_producers_it_remembers(cluster, remote):
    """kafka-transactions.sh asks one broker for all of which it has a replica."""
    t0, unknown = TopicPartition("t", 0), TopicPartition("t", PARTITIONS)
    cluster.wait_for_isr(t0, 3)

    def told(node):
        return wait_for(node._broker.describe_producers((unknown, t0))).partitions

    with remote.producer(transactional_id="a") as producer, producer.transaction():
        producer.send("t", b"open", partition=0).result()
        (leader,) = (told(node)[1] for node in cluster.nodes.values() if t0 in node.led)
        assert leader.producers[0].transaction_first_offset == 0
        for node in cluster.nodes.values():
            eventually(lambda node=node: told(node)[1] == leader)
            assert told(node)[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_is_news_to_the_coordinator_fails_no_batch_of_the_others(
    cluster, remote, monkeypatch
):
    """A client sends both again."""
    coordinator = cluster.state_of(TRANSACTIONS).leader.node_id
    node = next(each for each in cluster.nodes.values() if each.node_id != coordinator)
    new, known = TopicPartition("t", 0), TopicPartition("t", 1)
    told = {new: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, known: ErrorCode.OPERATION_NOT_ATTEMPTED}
    monkeypatch.setattr(node._broker._peers, "ask", lambda *_: Answered(AddPartitionsResult(told)))
    producer = TransactionalProducer("a", 1, 0)
    wanted = AddPartitionsToTransaction(producer, (new, known), is_implied=True)
    result = wait_for(node._broker.add_partitions_to_transaction(wanted))
    assert set(result.errors.values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def leads_elsewhere(cluster, node_id):
    leader = cluster.state_of(TRANSACTIONS).leader
    return leader is not None and leader.node_id != node_id


@pytest.mark.parametrize("way", ["stop", "crash"])
def test_an_open_transaction_outlives_its_coordinator(cluster, remote, way):
    with remote.producer(transactional_id="a") as producer:
        with producer.transaction():
            send(producer, b"before")
            first = cluster.leader_of(TRANSACTIONS).node_id
            getattr(cluster, way)(first)
            eventually(lambda: leads_elsewhere(cluster, first))
        assert cluster.leader_of(TRANSACTIONS).node_id != first
        with producer.transaction():
            send(producer, b"after")
    assert committed(remote, 2) == [b"before", b"after"]


@pytest.mark.parametrize("is_good", [True, False])
def test_what_was_decided_is_finished_by_the_next_coordinator(cluster, remote, is_good, monkeypatch):
    """The first one dies when the decision is stored, and no partition has heard of it."""
    first = cluster.leader_of(TRANSACTIONS).node_id
    append = marking.ClusterLogs.append_markers

    def append_later(self, transaction, partitions):
        if self._node_id == first:
            return marking.Answered(frozenset(partitions))
        return append(self, transaction, partitions)

    monkeypatch.setattr(marking.ClusterLogs, "append_markers", append_later)
    with remote.producer(transactional_id="a") as producer:
        transaction = producer.transaction().__enter__()
        send(producer, b"decided")
        transaction.commit_offsets("g", {("t", 0): 7})
        transaction.commit() if is_good else transaction.abort()
    cluster.crash(first)
    with remote.producer(transactional_id="b") as producer, producer.transaction():
        send(producer, b"next")
    assert committed(remote, 1 + is_good) == [b"decided", b"next"][not is_good :]
    found = remote.offsets("g").get(TopicPartition("t", 0))
    assert (found.offset if found else None) == (7 if is_good else None)


def test_a_producer_that_was_replaced_is_shut_out(cluster, remote):
    old = remote.producer(transactional_id="a")
    old.transaction().__enter__()
    send(old, b"old")
    old.flush()
    cluster.stop(cluster.leader_of(TRANSACTIONS).node_id)
    with remote.producer(transactional_id="a") as new, new.transaction():
        send(new, b"new")
    with pytest.raises(ProducerFencedError, match="t-0: another producer has taken the transactional id"):
        old.send("t", b"late", partition=0).result(20)
    with pytest.raises(ProducerFencedError):
        old.close()
    assert committed(remote, 1) == [b"new"]


class AtTheRightNode:
    """A client that asks who leads or coordinates, as Kafka's do."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._clients = {}

    def _node_for(self, key, request):
        if key is ApiKey.PRODUCE:
            (topic,) = request.topics
            (partition,) = topic.partitions
            wanted = TopicPartition(topic.name, partition.partition)
            if wanted not in self._cluster.view.partitions:
                wanted = TopicPartition(topic.name, 0)
            return self._cluster.leader_of(wanted).node_id
        if key is ApiKey.TXN_OFFSET_COMMIT:
            return self._cluster.leader_of(GROUPS).node_id
        if key in (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN):
            return self._cluster.leader_of(TRANSACTIONS).node_id
        return min(self._cluster.nodes)

    def ask(self, key, request, version=None):
        node_id = self._node_for(key, request)
        if node_id not in self._clients:
            self._clients[node_id] = RawClient(self._cluster.nodes[node_id].address)
        return self._clients[node_id].ask(key, request, version)

    def close(self):
        for each in self._clients.values():
            each.close()


def test_transactions_that_have_an_epoch_each_are_kafkas(cluster):
    """Which are led and coordinated by three nodes, and take in partitions unasked."""
    with logstore.connect(*cluster.addresses) as opened:
        opened.create_topic("first")  # and with it the topics of coordinators
    for partition in (TRANSACTIONS, GROUPS):
        cluster.wait_for_isr(partition, 3)
    coordinators = [cluster.leader_of(each).node_id for each in (TRANSACTIONS, GROUPS)]
    other = next(each for each in cluster.nodes if each not in coordinators)
    rest = [each for each in cluster.nodes if each != other]
    with logstore.connect(*cluster.addresses) as opened:
        new = NewTopic("t", 2, assignments=((other, *rest), (rest[0], other, rest[1])))
        (made,) = wait_for(opened.broker.create_topics(CreateTopicsRequest((new,))), 20).topics
        assert made.error is ErrorCode.NONE, made
    for number in range(2):
        cluster.wait_for_isr(TopicPartition("t", number), 3)
    client = AtTheRightNode(cluster)
    try:
        teller = Teller(client)
        tell(teller)
    finally:
        client.close()
    assert teller.answers == KAFKAS
