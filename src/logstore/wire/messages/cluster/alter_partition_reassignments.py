"""Move partitions to other brokers (KIP-455, KIP-860)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Bool, Int16, Int32, String, needs, since
from logstore.wire.messages.parts import TopicResult


class Partition(NamedTuple):
    """A partition, and where it is to be: its brokers, the preferred leader first; null ends a move."""

    partition: Int32 = 0
    replicas: tuple[Int32, ...] | None = None


class Topic(NamedTuple):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[Partition, ...] = ()


class AlterPartitionReassignmentsRequest(NamedTuple):
    """Move some partitions."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[Bool, needs(1)] = True
    topics: tuple[Topic, ...] = ()


class AlterPartitionReassignmentsResponse(NamedTuple):
    """Which moves have begun."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    error_code: Int16 = 0
    error_message: String | None = None
    responses: tuple[TopicResult, ...] = ()
