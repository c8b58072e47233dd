"""Where leader epochs end: how a log that has diverged finds where to truncate (KIP-101, KIP-320)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Int16, Int32, Int64, String, since


class Partition(NamedTuple):
    """Which epoch of a partition is meant."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    """The leader epoch that the client knows; -1 if it knows none."""
    leader_epoch: Int32 = 0


class Topic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[Partition, ...] = ()


class OffsetForLeaderEpochRequest(NamedTuple):
    """Ask where an epoch of each partition ends."""

    replica_id: Annotated[Int32, since(3)] = -2
    """Of the follower that asks; -1 for a consumer, -2 for tools."""
    topics: tuple[Topic, ...] = ()


class PartitionResult(NamedTuple):
    """The largest epoch that is not above the one asked for, and the offset at which it ends."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class TopicResult(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[PartitionResult, ...] = ()


class OffsetForLeaderEpochResponse(NamedTuple):
    """The ends."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TopicResult, ...] = ()
