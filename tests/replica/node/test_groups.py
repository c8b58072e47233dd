"""Groups of a cluster survive the node that coordinates them. Costs about 10 s."""

from __future__ import annotations

import logstore
from logstore.model import TopicPartition
from tests.replica.node.cluster import eventually
from tests.replica.node.test_node import T, create, send

GROUPS = TopicPartition("__consumer_offsets", 0)


def take(consumer, count):
    found = []
    while len(found) < count:
        found += consumer.poll(timeout=20.0)
    return [int(record.value) for record in found]


def test_a_group_goes_on_at_another_coordinator(cluster):
    create(cluster)
    cluster.wait_for_isr(GROUPS, 3)
    cluster.wait_for_isr(T, 3)
    send(cluster, [b"%d" % number for number in range(10)])
    with (
        logstore.connect(*cluster.addresses) as remote,
        remote.consumer(
            "t", group="g", auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=5
        ) as consumer,
    ):
        assert take(consumer, 5) == [0, 1, 2, 3, 4]
        consumer.commit()
        first = cluster.leader_of(GROUPS).node_id
        cluster.stop(first)
        assert cluster.leader_of(GROUPS).node_id != first
        assert take(consumer, 5) == [5, 6, 7, 8, 9]
        consumer.commit()
    with logstore.connect(*cluster.addresses) as remote:
        assert remote.offsets("g")[T].offset == 10


def test_who_coordinates_no_more_writes_nothing(cluster):
    create(cluster)
    cluster.wait_for_isr(GROUPS, 3)
    coordinator = cluster.leader_of(GROUPS)
    with logstore.connect(*cluster.addresses) as remote:
        remote.offsets("g").commit({T: 0})
        ends = {node_id: cluster.log(node_id, GROUPS).log_end_offset for node_id in cluster.nodes}
        eventually(lambda: len(set(ends.values())) <= 2)
        assert len([node for node in cluster.nodes.values() if node._broker.terms.look() is not None]) == 1
        cluster.crash(coordinator.node_id)
        eventually(lambda: cluster.leader_of(GROUPS))
        remote.offsets("g").commit({T: 0})
        assert remote.offsets("g")[T].offset == 0
