"""AlterPartitionReassignments."""

from __future__ import annotations

from collections.abc import Mapping

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.errors import LogstoreError
from logstore.logdir.acls import Operation
from logstore.model import TopicPartition
from logstore.wire.handlers.call import Call, Moved
from logstore.wire.messages.cluster.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from logstore.wire.messages.parts import PartitionResult, TopicResult

_MOVED = Moved(ErrorCode.NONE)


def answer(
    call: Call, request: AlterPartitionReassignmentsRequest, version: int
) -> AlterPartitionReassignmentsResponse:
    """Move partitions to other nodes, or end moves. A node that is alone has nowhere to move them to."""
    if not call.allows_cluster(Operation.ALTER):
        return refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version)
    wanted = {
        TopicPartition(topic.name, each.partition): each.replicas
        for topic in request.topics
        for each in topic.partitions
    }
    if call.node.cluster is None:
        return _response(request, {each: _alone(call, each, goal) for each, goal in wanted.items()})
    try:
        found = call.node.cluster.reassign(wanted, may_change_factor=request.allow_replication_factor_change)
    except LogstoreError as error:
        return refuse(request, code_of(error), version)
    if found is None:
        return refuse(request, ErrorCode.NOT_CONTROLLER, version)
    return _response(request, found)


def _alone(call: Call, partition: TopicPartition, goal: tuple[int, ...] | None) -> Moved:
    if not call.node.topics.has(partition):
        return Moved(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    if goal is None:
        return Moved(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it does not move")
    if goal != (call.node.node_id,):
        only = f"this node is alone; the only replicas that there can be are [{call.node.node_id}]"
        return Moved(ErrorCode.INVALID_REPLICA_ASSIGNMENT, only)
    return _MOVED


def _response(
    request: AlterPartitionReassignmentsRequest, found: Mapping[TopicPartition, Moved]
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=tuple(
            TopicResult(
                topic.name,
                tuple(
                    PartitionResult(each.partition, *found[TopicPartition(topic.name, each.partition)])
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def refuse(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode, version: int
) -> AlterPartitionReassignmentsResponse:
    """The error, of the whole request and of each partition that is named."""
    wanted = {
        TopicPartition(topic.name, each.partition) for topic in request.topics for each in topic.partitions
    }
    return _response(request, dict.fromkeys(wanted, Moved(code)))._replace(error_code=code)
