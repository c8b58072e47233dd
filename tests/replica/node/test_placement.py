"""Where the replicas of new topics go."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import wait_for
from logstore.broker.requests import CreatePartitionsRequest, CreateTopicsRequest, MorePartitions, NewTopic
from logstore.errors import RetriableError, UsageError
from logstore.model import TopicPartition
from logstore.replica.node.controller.placement import place
from tests.replica.node.cluster import Cluster, eventually

NODES = st.integers(1, 9)


@given(NODES, st.integers(1, 60), st.data(), st.integers())
def test_each_partition_has_so_many_nodes_and_the_load_is_even(node_count, partition_count, data, seed):
    factor = data.draw(st.integers(1, node_count))
    racks = dict.fromkeys(range(10, 10 + node_count))
    placed = place(racks, partition_count, factor, random.Random(seed))
    assert len(placed) == partition_count
    assert all(len(set(each)) == factor and set(each) <= racks.keys() for each in placed)
    leaders = Counter(each[0] for each in placed)
    counts = [leaders[node_id] for node_id in racks]
    assert max(counts) - min(counts) <= 1


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), st.integers(1, 30), st.data(), st.integers())
def test_no_rack_has_two_before_each_has_one(racks_of, partition_count, data, seed):
    racks = dict(enumerate(racks_of))
    factor = data.draw(st.integers(1, len(racks)))
    for replicas in place(racks, partition_count, factor, random.Random(seed)):
        used = {racks[each] for each in replicas}
        assert len(used) == min(factor, len(set(racks_of)))


def test_new_partitions_go_on_in_turn():
    racks = dict.fromkeys(range(3))
    first = place(racks, 6, 1, random.Random(1))
    later = place(racks, 3, 1, random.Random(1), first_partition=3)
    assert later == first[3:]


@pytest.mark.parametrize("factor", [0, 4])
def test_a_factor_that_cannot_be(factor):
    with pytest.raises(UsageError, match="3"):
        place(dict.fromkeys(range(3)), 1, factor, random.Random())


def test_a_topic_never_gets_fewer_replicas_than_the_node_was_told(tmp_path):
    """It would have fewer for good. Internal topics get what there is."""
    cluster = Cluster(tmp_path, 1, replication_factor=2)
    try:
        eventually(lambda: cluster.nodes[1].is_controller)
        with logstore.connect(*cluster.addresses) as remote:
            with pytest.raises(UsageError, match="is to have 2 replicas, by the node's replication_factor"):
                remote.create_topic("t")
            remote.create_topic("one", replication_factor=1)
            cluster.wait_for_isr(TopicPartition("__consumer_offsets", 0), 1)
            cluster.start(2)
            eventually(lambda: len(cluster.view.living) == 2)
            remote.create_topic("t")
            cluster.wait_for_isr(TopicPartition("t", 0), 2)
    finally:
        cluster.close()


def test_new_partitions_have_no_fewer_replicas_than_those_before(tmp_path):
    """They would have fewer for good. Who says where they are to be may do that."""
    cluster = Cluster(tmp_path, 2)
    try:
        with logstore.connect(*cluster.addresses) as remote:
            remote.create_topic("t", replication_factor=2)
            cluster.wait_for_isr(TopicPartition("t", 0), 2)
            cluster.stop(2)
            with pytest.raises(UsageError, match="'t' has 2 replicas, and 1 nodes live; start more"):
                remote.add_partitions("t", 2)
            some = MorePartitions("t", 2, ((1,),))
            grown = wait_for(remote.broker.create_partitions(CreatePartitionsRequest((some,))))
            assert grown.topics[0].error is ErrorCode.NONE
            cluster.start(2)
            eventually(lambda: len(cluster.view.living) == 2)
            remote.add_partitions("t", 3)
            cluster.wait_for_isr(TopicPartition("t", 2), 2)
    finally:
        cluster.close()


def test_groups_and_transactions_begin_before_there_is_a_topic(cluster):
    """What keeps them is made when a client asks for it, on as many nodes as the first topic would be."""
    with logstore.connect(*cluster.addresses) as remote:
        assert dict(remote.offsets("g")) == {}
        with remote.producer(transactional_id="x"):
            pass
    internal = cluster.view.topics.keys()
    assert internal == {"__consumer_offsets", "__transaction_state", "__share_group_state"}
    assert cluster.view.topics["__consumer_offsets"].config["cleanup.policy"] == "compact"
    for name in internal:
        cluster.wait_for_isr(TopicPartition(name, 0), 3)
        with logstore.connect(*cluster.addresses) as remote, pytest.raises(UsageError, match="keeps its"):
            remote.add_partitions(name, 2)


def test_clients_that_are_faster_than_the_nodes_make_no_topics_with_few_replicas(tmp_path):
    cluster = Cluster(tmp_path, 1)
    try:
        eventually(lambda: cluster.nodes[1].is_controller)
        with logstore.connect(*cluster.addresses, request_timeout_ms=1_500) as remote:
            with pytest.raises(RetriableError):
                dict(remote.offsets("g"))
            with pytest.raises(UsageError, match="with the first topic, or when 3 nodes live; 1 do"):
                remote.create_topic("__consumer_offsets")
            assert not cluster.view.topics
            remote.create_topic("t")
            assert dict(remote.offsets("g")) == {}
    finally:
        cluster.close()


def test_replicas_that_cannot_be_are_an_invalid_assignment(cluster):
    """As with Kafka. It was INVALID_REQUEST, of which clients say that the request was malformed. 0.2 s."""
    with logstore.connect(*cluster.addresses) as remote:
        broker = remote.broker

        def made(*assignments):
            asked = CreateTopicsRequest((NewTopic("t", assignments=assignments),))
            return wait_for(broker.create_topics(asked)).topics[0]

        def grown(*assignments):
            asked = CreatePartitionsRequest((MorePartitions("t", 1 + len(assignments), assignments),))
            return wait_for(broker.create_partitions(asked)).topics[0]

        wrong = [((1, 9),), ((1, 1),), ((),), ((1, 2), (3, 9))]
        assert {made(*each).error for each in wrong} == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}
        assert made((1, 2)).error is ErrorCode.NONE
        refused = [grown(*each) for each in wrong]
        assert {each.error for each in refused} == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}
        assert refused[0].message == (
            "a partition of topic 't' cannot have the replicas [1, 9]: no living node has the number 9"
        )
        assert grown((2, 3), (3, 1)).error is ErrorCode.NONE
