"""Topics that are deleted and made again under the same name while a node has not heard of it. Costs 2 s."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import wait_for
from logstore.broker.requests import CreateTopicsRequest, NewTopic
from logstore.model import TopicPartition
from tests.replica.node.cluster import Cluster, eventually

T = TopicPartition("customer", 0)
SILENT_SECONDS = 1.5
"""Several times what a follower waits before it asks again."""


@pytest.fixture
def cluster(tmp_path):
    """Nobody leaves the in-sync replicas."""
    made = Cluster(tmp_path, replica_lag_time_max_ms=60_000)
    yield made
    made.close()


def make(remote, leader_id, others):
    wanted = NewTopic(T.topic, 1, assignments=((leader_id, *others),))
    (made,) = wait_for(remote.broker.create_topics(CreateTopicsRequest((wanted,)))).topics
    assert made.error is ErrorCode.NONE, made


def values(cluster, node_id):
    log = cluster.log(node_id, T)
    return [record.value for record in log.read(isolation=logstore.Isolation.LOG_END)]


@contextmanager
def held_up(node):
    """The node acts on nothing that it hears of."""
    goes_on, act = threading.Event(), node._act_on
    node._act_on = lambda changes: (goes_on.wait(), act(changes))
    try:
        yield
    finally:
        goes_on.set()


def test_what_a_follower_has_of_the_topic_before_does_not_count(cluster, caplog):
    """A follower that was still deleting others asked the leader of the new topic with the offset of the old
    log: records that it did not have were acknowledged, or it cut its old log off with a warning."""
    leader = next(node for node in cluster.nodes.values() if node.is_controller)
    leader_id = leader.node_id
    other, late = (each for each in cluster.nodes if each != leader_id)
    with logstore.connect(*cluster.addresses) as remote:
        make(remote, leader_id, (other, late))
        cluster.wait_for_isr(T, 3)
        with remote.producer(acks="all") as producer:
            for number in range(5):
                producer.send(T.topic, b"old %d" % number).result()
        before = leader._replicas[T]
        with held_up(cluster.nodes[late]):
            remote.delete_topic(T.topic)
            make(remote, leader_id, (other, late))
            eventually(lambda: leader._replicas.get(T, before) is not before and T in leader.led)
            new = [b"new %d" % number for number in range(5)]
            cluster.log(leader_id, T).extend(new)
            eventually(lambda: values(cluster, other) == new)
            time.sleep(SILENT_SECONDS)
            assert cluster.log(leader_id, T).high_watermark == 0  # the late one is in sync, and has nothing
    eventually(lambda: cluster.log(leader_id, T).high_watermark == 5)
    assert values(cluster, late) == new
    assert "other records" not in caplog.text
