"""Append batches to partitions."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import (
    NO_UUID,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    since,
    tagged,
    until,
)
from logstore.wire.messages.parts import CurrentLeader, NodeEndpoint


class Partition(NamedTuple):
    """Batches for one partition."""

    partition: Int32 = 0
    records: Records | None = None


class Topic(NamedTuple):
    """Batches for one topic."""

    name: Annotated[String, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: tuple[Partition, ...] = ()


class ProduceRequest(NamedTuple):
    """Batches for partitions. A request with ``acks`` 0 is not answered."""

    transactional_id: String | None = None
    acks: Int16 = 0
    """0: none. 1: the leader has the batch. -1: all in-sync replicas have it."""
    timeout_ms: Int32 = 0
    topics: tuple[Topic, ...] = ()


class RefusedRecord(NamedTuple):
    """A record for which its batch was refused (KIP-467)."""

    batch_index: Int32 = 0
    """Its place in the batch."""
    error_message: String | None = None


class PartitionResult(NamedTuple):
    """What became of the batches for a partition."""

    partition: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    """-1 if the topic keeps the producer's timestamps."""
    log_start_offset: Annotated[Int64, since(5)] = -1
    record_errors: Annotated[tuple[RefusedRecord, ...], since(8)] = ()
    error_message: Annotated[String | None, since(8)] = None
    current_leader: Annotated[CurrentLeader, since(10), tagged(0)] = CurrentLeader()
    """If the broker is not the leader (KIP-951)."""


class TopicResult(NamedTuple):
    """The partitions of one topic."""

    name: Annotated[String, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: tuple[PartitionResult, ...] = ()


class ProduceResponse(NamedTuple):
    """What became of each partition's batches."""

    topics: tuple[TopicResult, ...] = ()
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], since(10), tagged(0)] = ()
