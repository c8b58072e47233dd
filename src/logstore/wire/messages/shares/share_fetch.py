"""Acquire records of a share group, and acknowledge earlier ones (KIP-932)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import (
    NO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    needs,
    since,
)
from logstore.wire.messages.parts import CurrentLeader, NodeEndpoint
from logstore.wire.messages.shares.acknowledged import Topic


class ForgottenTopic(NamedTuple):
    """Partitions that leave the share session."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[Int32, ...] = ()


class ShareFetchRequest(NamedTuple):
    """Which partitions, how much, and what became of the records before."""

    group_id: String | None = None
    member_id: String | None = None
    share_session_epoch: Int32 = 0
    """0 begins a session, -1 ends it."""
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2**31 - 1
    max_records: Int32 = 0
    batch_size: Int32 = 0
    """How many records to acquire as one, at best."""
    share_acquire_mode: Annotated[Int8, since(2)] = 0
    """0: whole batches. 1: never more than ``max_records`` (KIP-1206)."""
    is_renew_ack: Annotated[Bool, needs(2)] = False
    """Whether there are renewals, and nothing is fetched."""
    topics: tuple[Topic, ...] = ()
    forgotten_topics: tuple[ForgottenTopic, ...] = ()


class AcquiredRecords(NamedTuple):
    """Offsets that were acquired, and how often they have been delivered."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class PartitionResult(NamedTuple):
    """The records of a partition, and which of them were acquired."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: String | None = None
    current_leader: CurrentLeader = CurrentLeader()
    records: Records = b""
    acquired_records: tuple[AcquiredRecords, ...] = ()


class TopicResult(NamedTuple):
    """The partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[PartitionResult, ...] = ()


class ShareFetchResponse(NamedTuple):
    """The records that were acquired."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32 = 0
    topics: tuple[TopicResult, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()
