"""Acknowledge records of a share group, without fetching more (KIP-932)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import (
    NO_UUID,
    Bool,
    Int16,
    Int32,
    String,
    Uuid,
    needs,
    since,
)
from logstore.wire.messages.parts import CurrentLeader, NodeEndpoint
from logstore.wire.messages.shares.acknowledged import Topic


class ShareAcknowledgeRequest(NamedTuple):
    """What became of records."""

    group_id: String | None = None
    member_id: String | None = None
    share_session_epoch: Int32 = 0
    """0 begins a session, -1 ends it."""
    is_renew_ack: Annotated[Bool, needs(2)] = False
    """Whether there are renewals, and nothing is fetched."""
    topics: tuple[Topic, ...] = ()


class PartitionResult(NamedTuple):
    """Whether the acknowledgements of a partition count."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    current_leader: CurrentLeader = CurrentLeader()


class TopicResult(NamedTuple):
    """The partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[PartitionResult, ...] = ()


class ShareAcknowledgeResponse(NamedTuple):
    """Whether the acknowledgements count."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Annotated[Int32, since(2)] = 0
    topics: tuple[TopicResult, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()
