"""Set how far a share group is (KIP-932)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import NO_UUID, Int16, Int32, Int64, String, Uuid


class Partition(NamedTuple):
    """Where the group goes on."""

    partition: Int32 = 0
    start_offset: Int64 = 0


class Topic(NamedTuple):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[Partition, ...] = ()


class AlterShareGroupOffsetsRequest(NamedTuple):
    """Which partitions of which group."""

    group_id: String = ""
    topics: tuple[Topic, ...] = ()


class PartitionResult(NamedTuple):
    """What became of one partition."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class TopicResult(NamedTuple):
    """Partitions of one topic."""

    name: String = ""
    topic_id: Uuid = NO_UUID
    partitions: tuple[PartitionResult, ...] = ()


class AlterShareGroupOffsetsResponse(NamedTuple):
    """What became of each, or an error of the whole request."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    topics: tuple[TopicResult, ...] = ()
