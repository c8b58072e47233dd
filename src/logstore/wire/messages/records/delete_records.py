"""Delete the beginning of partitions (KIP-107)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Int16, Int32, Int64, String


class Partition(NamedTuple):
    """The first offset to keep; -1 for the high watermark."""

    partition: Int32 = 0
    offset: Int64 = 0


class Topic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[Partition, ...] = ()


class DeleteRecordsRequest(NamedTuple):
    """Delete everything below an offset."""

    topics: tuple[Topic, ...] = ()
    timeout_ms: Int32 = 0


class PartitionResult(NamedTuple):
    """Where a partition begins now."""

    partition: Int32 = 0
    low_watermark: Int64 = 0
    """The log start offset; -1 if it failed."""
    error_code: Int16 = 0


class TopicResult(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[PartitionResult, ...] = ()


class DeleteRecordsResponse(NamedTuple):
    """Where the partitions begin now."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TopicResult, ...] = ()
