"""Commit offsets of a group."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import NO_UUID, Int16, Int32, Int64, String, Uuid, needs, since, until


class Partition(NamedTuple):
    """The offset of a partition: the next one to read."""

    partition: Int32 = 0
    offset: Int64 = 0
    leader_epoch: Annotated[Int32, since(6)] = -1
    metadata: String | None = None


class Topic(NamedTuple):
    """The partitions of one topic."""

    name: Annotated[String, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    partitions: tuple[Partition, ...] = ()


class OffsetCommitRequest(NamedTuple):
    """The offsets, and which member of the group commits them."""

    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    """Of the classic protocol the one, of the newer protocol the other. -1 without members."""
    member_id: String = ""
    group_instance_id: Annotated[String | None, needs(7)] = None
    retention_time_ms: Annotated[Int64, until(4)] = -1
    """-1: the broker's setting decides."""
    topics: tuple[Topic, ...] = ()


class PartitionResult(NamedTuple):
    """What became of an offset."""

    partition: Int32 = 0
    error_code: Int16 = 0


class TopicResult(NamedTuple):
    """The partitions of one topic."""

    name: Annotated[String, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    partitions: tuple[PartitionResult, ...] = ()


class OffsetCommitResponse(NamedTuple):
    """What became of the offsets."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: tuple[TopicResult, ...] = ()
