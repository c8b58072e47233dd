"""Commit offsets of a group in a transaction."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Int16, Int32, Int64, String, needs, since


class Partition(NamedTuple):
    """The offset of a partition: the next one to read."""

    partition: Int32 = 0
    offset: Int64 = 0
    leader_epoch: Annotated[Int32, since(2)] = -1
    metadata: String | None = None


class Topic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[Partition, ...] = ()


class TxnOffsetCommitRequest(NamedTuple):
    """The offsets, the transaction, and which member of the group commits them (KIP-447)."""

    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, needs(3)] = -1
    member_id: Annotated[String, needs(3)] = ""
    group_instance_id: Annotated[String | None, needs(3)] = None
    topics: tuple[Topic, ...] = ()


class PartitionResult(NamedTuple):
    """What became of an offset."""

    partition: Int32 = 0
    error_code: Int16 = 0


class TopicResult(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[PartitionResult, ...] = ()


class TxnOffsetCommitResponse(NamedTuple):
    """What became of the offsets."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TopicResult, ...] = ()
