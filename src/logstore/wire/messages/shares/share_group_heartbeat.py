"""Join, stay in and leave a share group (KIP-932)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import NO_UUID, Int16, Int32, String, Uuid


class ShareGroupHeartbeatRequest(NamedTuple):
    """A heartbeat. A field that is null has not changed since the one before."""

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    """0: joins. -1: leaves."""
    rack_id: String | None = None
    subscribed_topic_names: tuple[String, ...] | None = None


class TopicPartitions(NamedTuple):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[Int32, ...] = ()


class Assignment(NamedTuple):
    """The partitions that the member shall fetch from."""

    topic_partitions: tuple[TopicPartitions, ...] = ()


class ShareGroupHeartbeatResponse(NamedTuple):
    """What the coordinator wants of the member."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
