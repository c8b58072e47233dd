"""Read batches, as consumers and as followers do."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import (
    NO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    needs,
    since,
    tagged,
    until,
)
from logstore.wire.messages.parts import CurrentLeader, NodeEndpoint


class ReplicaState(NamedTuple):
    """Which follower is asking (KIP-903)."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class Partition(NamedTuple):
    """From where to read a partition, and how much."""

    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(9)] = -1
    """The leader epoch that the client knows; -1 if it knows none."""
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, needs(12)] = -1
    """Of the last record that the follower has; -1: not known. The answer says if it has diverged."""
    log_start_offset: Annotated[Int64, since(5)] = -1
    max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, since(17), tagged(0)] = NO_UUID
    high_watermark: Annotated[Int64, since(18), tagged(1)] = 2**63 - 1
    """As the follower knows it, for KIP-1166."""


class Topic(NamedTuple):
    """The partitions of one topic."""

    name: Annotated[String, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: tuple[Partition, ...] = ()


class ForgottenTopic(NamedTuple):
    """Partitions that leave the session."""

    name: Annotated[String, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: tuple[Int32, ...] = ()


class FetchRequest(NamedTuple):
    """Read partitions from offsets on. In a fetch session only what has changed is named (KIP-227)."""

    cluster_id: Annotated[String | None, since(12), tagged(0)] = None
    replica_id: Annotated[Int32, needs(4, 14)] = -1
    """Of the follower that asks; -1 for a consumer."""
    replica_state: Annotated[ReplicaState, needs(15), tagged(1)] = ReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2**31 - 1
    isolation_level: Int8 = 0
    """0: all records. 1: none of a transaction that is open."""
    session_id: Annotated[Int32, since(7)] = 0
    """0: no session."""
    session_epoch: Annotated[Int32, since(7)] = -1
    """0 begins a session, -1 ends it or goes without."""
    topics: tuple[Topic, ...] = ()
    forgotten_topics: Annotated[tuple[ForgottenTopic, ...], needs(7)] = ()
    rack_id: Annotated[String, since(11)] = ""


class DivergingEpoch(NamedTuple):
    """The last leader epoch in which leader and follower agree, and where it ends (KIP-595)."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class SnapshotId(NamedTuple):
    """The snapshot to fetch instead. Of the log of the controllers only."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted; its records are to be left out."""

    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionResult(NamedTuple):
    """What was read of a partition."""

    partition: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    diverging_epoch: Annotated[DivergingEpoch, since(12), tagged(0)] = DivergingEpoch()
    current_leader: Annotated[CurrentLeader, since(12), tagged(1)] = CurrentLeader()
    snapshot_id: Annotated[SnapshotId, since(12), tagged(2)] = SnapshotId()
    aborted_transactions: tuple[AbortedTransaction, ...] | None = ()
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    """From which broker to read on (KIP-392); -1: from this one."""
    records: Records | None = b""
    """Empty if there are none: librdkafka takes null for a broken answer."""


class TopicResult(NamedTuple):
    """The partitions of one topic."""

    name: Annotated[String, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = NO_UUID
    partitions: tuple[PartitionResult, ...] = ()


class FetchResponse(NamedTuple):
    """What was read."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(7)] = 0
    session_id: Annotated[Int32, since(7)] = 0
    topics: tuple[TopicResult, ...] = ()
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], since(16), tagged(0)] = ()
