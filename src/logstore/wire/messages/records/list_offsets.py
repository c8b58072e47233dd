"""Offsets by time: earliest, latest, or the first at or after a timestamp."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Int8, Int16, Int32, Int64, String, needs, since


class Partition(NamedTuple):
    """Which offset of a partition is wanted."""

    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(4)] = -1
    """The leader epoch that the client knows; -1 if it knows none."""
    timestamp_ms: Int64 = 0
    """-1: latest. -2: earliest. -3: where the largest timestamp is (KIP-734). Below: of tiered storage."""


class Topic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[Partition, ...] = ()


class ListOffsetsRequest(NamedTuple):
    """Ask for one offset of each partition."""

    replica_id: Int32 = 0
    """Of the follower that asks; -1 for a consumer."""
    isolation_level: Annotated[Int8, needs(2)] = 0
    """0: all records. 1: none of a transaction that is open."""
    topics: tuple[Topic, ...] = ()
    timeout_ms: Annotated[Int32, since(10)] = 0


class PartitionResult(NamedTuple):
    """An offset and its time, or -1."""

    partition: Int32 = 0
    error_code: Int16 = 0
    timestamp_ms: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


class TopicResult(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[PartitionResult, ...] = ()


class ListOffsetsResponse(NamedTuple):
    """The offsets."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: tuple[TopicResult, ...] = ()
