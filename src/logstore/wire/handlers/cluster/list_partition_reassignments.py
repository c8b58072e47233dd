"""ListPartitionReassignments."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.logdir.acls import Operation
from logstore.model import TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.messages.cluster.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    Reassignment,
    TopicResult,
)


def answer(
    call: Call, request: ListPartitionReassignmentsRequest, version: int
) -> ListPartitionReassignmentsResponse:
    """The partitions that are on their way to other nodes. Of a node that is alone there are none."""
    if not call.allows_cluster(Operation.DESCRIBE):
        return refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version)
    if call.node.cluster is None:
        return ListPartitionReassignmentsResponse()
    wanted = (
        None
        if request.topics is None
        else {TopicPartition(topic.name, each) for topic in request.topics for each in topic.partitions}
    )
    by_topic: dict[str, list[Reassignment]] = {}
    for partition, move in sorted(call.node.cluster.moving().items()):
        if wanted is None or partition in wanted:
            by_topic.setdefault(partition.topic, []).append(Reassignment(partition.partition, *move))
    return ListPartitionReassignmentsResponse(
        topics=tuple(TopicResult(name, tuple(found)) for name, found in by_topic.items())
    )


def refuse(
    request: ListPartitionReassignmentsRequest, code: ErrorCode, version: int
) -> ListPartitionReassignmentsResponse:
    """The error."""
    return ListPartitionReassignmentsResponse(error_code=code)
