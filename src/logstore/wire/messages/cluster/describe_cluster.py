"""The brokers of the cluster (KIP-700)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Bool, Int8, Int16, Int32, String, needs, since
from logstore.wire.messages.parts import NOT_ASKED


class DescribeClusterRequest(NamedTuple):
    """Ask for the brokers, or for the controllers."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, needs(1)] = 1
    """1: brokers. 2: controllers."""
    include_fenced_brokers: Annotated[Bool, needs(2)] = False


class Broker(NamedTuple):
    """A broker, and where it listens."""

    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Annotated[Bool, since(2)] = False


class DescribeClusterResponse(NamedTuple):
    """The cluster."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: tuple[Broker, ...] = ()
    cluster_authorized_operations: Int32 = NOT_ASKED
    """A bit for each operation that the client may do; ``NOT_ASKED`` if it did not ask."""
