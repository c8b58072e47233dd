"""What DeleteRecords has deleted stays deleted, whoever leads afterwards. Costs about 5 s."""

from __future__ import annotations

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import wait_for
from logstore.broker.requests import DeleteRecordsPartition, DeleteRecordsRequest
from logstore.replica.node import replicated
from tests.replica.node.cluster import Cluster
from tests.replica.node.test_node import T, create, send


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    create(made)
    made.wait_for_isr(T, 3)
    send(made, [b"%d" % number for number in range(20)])
    yield made
    made.close()


def delete(node, offset):
    request = DeleteRecordsRequest((DeleteRecordsPartition(T, offset),))
    (deleted,) = wait_for(node._broker.delete_records(request), 30).partitions
    return deleted


def test_what_was_deleted_does_not_come_back_with_another_leader(cluster):
    leader = cluster.leader_of(T)
    deleted = delete(leader, 7)
    assert (deleted.error, deleted.log_start_offset) == (ErrorCode.NONE, 7)
    assert [cluster.log(node_id, T).log_start_offset for node_id in cluster.nodes] == [7, 7, 7]
    cluster.crash(leader.node_id)
    cluster.leader_of(T)
    with logstore.connect(*cluster.addresses) as remote, remote.consumer(partitions=[T]) as consumer:
        consumer.seek_to_beginning()
        assert consumer.poll(timeout=20, max_records=1)[0].offset == 7


def test_a_replica_that_does_not_ask_is_waited_for_until_it_is_out_of_sync(cluster, monkeypatch):
    leader = cluster.leader_of(T)
    cluster.let_follow_nobody(next(node_id for node_id in cluster.nodes if node_id != leader.node_id))
    with monkeypatch.context() as patched:
        patched.setattr(replicated, "_DELETION_PATIENCE_MS", 200)
        deleted = delete(leader, 7)
    assert deleted.error is ErrorCode.REQUEST_TIMED_OUT
    assert "delete them again" in deleted.message
    send(cluster, [b"20"])  # which it lacks
    assert delete(leader, 9).error is ErrorCode.NONE
    assert len(cluster.state_of(T).isr) == 2


def test_who_leads_no_more_says_so(cluster):
    leader = cluster.leader_of(T)
    for node_id in cluster.nodes.keys() - {leader.node_id}:
        cluster.let_follow_nobody(node_id)
    pending = leader._broker.delete_records(DeleteRecordsRequest((DeleteRecordsPartition(T, 7),)))
    leader._replicas[T].close()
    (deleted,) = wait_for(pending, 5).partitions
    assert deleted.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
