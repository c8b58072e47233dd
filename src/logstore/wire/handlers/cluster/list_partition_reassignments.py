"""ListPartitionReassignments."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.messages.cluster.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def answer(
    call: Call, request: ListPartitionReassignmentsRequest, version: int
) -> ListPartitionReassignmentsResponse:
    """None: there is no second broker that a partition could move to."""
    if not call.allows_cluster(Operation.DESCRIBE):
        return refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version)
    return ListPartitionReassignmentsResponse()


def refuse(
    request: ListPartitionReassignmentsRequest, code: ErrorCode, version: int
) -> ListPartitionReassignmentsResponse:
    """The error."""
    return ListPartitionReassignmentsResponse(error_code=code)
