"""How far share groups are (KIP-932, KIP-1226)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import NO_UUID, Int16, Int32, Int64, String, Uuid, since


class Topic(NamedTuple):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


class Group(NamedTuple):
    """A group."""

    group_id: String = ""
    topics: tuple[Topic, ...] | None = ()
    """None: all partitions that it has begun."""


class DescribeShareGroupOffsetsRequest(NamedTuple):
    """Which groups."""

    groups: tuple[Group, ...] = ()


class PartitionResult(NamedTuple):
    """How far a group is in one partition."""

    partition: Int32 = 0
    start_offset: Int64 = -1
    """All below is done; -1 if the group has not begun with the partition."""
    leader_epoch: Int32 = 0
    lag: Annotated[Int64, since(1)] = -1
    """How many offsets are not done; -1 if that is not known."""
    error_code: Int16 = 0
    error_message: String | None = None


class TopicResult(NamedTuple):
    """Partitions of one topic."""

    name: String = ""
    topic_id: Uuid = NO_UUID
    partitions: tuple[PartitionResult, ...] = ()


class GroupResult(NamedTuple):
    """A group."""

    group_id: String = ""
    topics: tuple[TopicResult, ...] = ()
    error_code: Int16 = 0
    error_message: String | None = None


class DescribeShareGroupOffsetsResponse(NamedTuple):
    """The groups."""

    throttle_time_ms: Int32 = 0
    groups: tuple[GroupResult, ...] = ()
