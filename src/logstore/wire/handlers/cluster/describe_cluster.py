"""DescribeCluster."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.logdir.acls import CLUSTER_NAME, Operation, ResourceType
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.cluster.metadata import CLUSTER_OPERATIONS
from logstore.wire.messages.cluster.describe_cluster import (
    Broker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from logstore.wire.messages.parts import NOT_ASKED

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def answer(call: Call, request: DescribeClusterRequest, version: int) -> DescribeClusterResponse:
    """The nodes of the cluster. One that is alone is its own controller."""
    kind = request.endpoint_type
    if kind == _CONTROLLERS:
        why = "this is a broker; the controllers of its cluster have no listener"
        return _refused(kind, ErrorCode.MISMATCHED_ENDPOINT_TYPE, why)
    if kind != _BROKERS:
        why = f"endpoint type {kind} is unknown; ask for 1, the brokers"
        return _refused(kind, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, why)
    node = call.node
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.controller_id,
        brokers=tuple([Broker(*each) for each in node.brokers()]),
        cluster_authorized_operations=_operations(call, request),
    )


def _operations(call: Call, request: DescribeClusterRequest) -> int:
    if not request.include_cluster_authorized_operations:
        return NOT_ASKED
    if not call.allows_cluster(Operation.DESCRIBE):
        return 0
    return call.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME, CLUSTER_OPERATIONS)


def _refused(kind: int, code: ErrorCode, why: str | None = None) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=why, endpoint_type=kind)


def refuse(request: DescribeClusterRequest, code: ErrorCode, version: int) -> DescribeClusterResponse:
    """The error."""
    return _refused(request.endpoint_type, code)
