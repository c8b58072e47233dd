"""Delete committed offsets of a group (KIP-496)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Int16, Int32, String


class Partition(NamedTuple):
    """A partition."""

    partition: Int32 = 0


class Topic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[Partition, ...] = ()


class OffsetDeleteRequest(NamedTuple):
    """The partitions whose offsets shall go."""

    group_id: String = ""
    topics: tuple[Topic, ...] = ()


class PartitionResult(NamedTuple):
    """What became of an offset."""

    partition: Int32 = 0
    error_code: Int16 = 0


class TopicResult(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[PartitionResult, ...] = ()


class OffsetDeleteResponse(NamedTuple):
    """What became of the offsets."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: tuple[TopicResult, ...] = ()
