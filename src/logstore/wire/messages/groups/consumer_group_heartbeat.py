"""Join, stay in and leave a group of the newer consumer protocol, whose coordinator assigns (KIP-848)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import NO_UUID, Int16, Int32, String, Uuid, needs


class TopicPartitions(NamedTuple):
    """Partitions of one topic, which the member owns."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[Int32, ...] = ()


class ConsumerGroupHeartbeatRequest(NamedTuple):
    """A heartbeat. A field that is null has not changed since the one before."""

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    """0: joins. -1: leaves. -2: leaves, and comes back as the same static member."""
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: tuple[String, ...] | None = None
    subscribed_topic_regex: Annotated[String | None, needs(1)] = None
    """A regular expression of RE2/J."""
    server_assignor: String | None = None
    topic_partitions: tuple[TopicPartitions, ...] | None = None


class Assignment(NamedTuple):
    """The partitions that the member shall own."""

    topic_partitions: tuple[TopicPartitions, ...] = ()


class ConsumerGroupHeartbeatResponse(NamedTuple):
    """What the coordinator wants of the member."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
