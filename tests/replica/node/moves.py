"""Partitions of a cluster of processes are sent elsewhere, as by Kafka's administrators."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster import alter_partition_reassignments as altering
from tests.wire.raw_client import RawClient


def move(cluster, topic, partition, goal):
    """Whether the controller has taken it. Whoever is asked may be dead, or stand still."""
    wanted = altering.Topic(topic, (altering.Partition(partition, goal),))
    request = altering.AlterPartitionReassignmentsRequest(topics=(wanted,))
    for address in cluster.addresses:
        try:
            with RawClient(address, timeout=2) as client:
                response = client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
        except (OSError, EOFError, AssertionError):
            continue
        if response.responses[0].partitions[0].error_code == ErrorCode.NONE:
            return True
    return False


def draw_goal(rng, node_ids):
    """Two of the nodes or more, in any order."""
    return tuple(rng.sample(sorted(node_ids), rng.randint(2, len(node_ids))))
