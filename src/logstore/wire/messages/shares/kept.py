"""What the messages about the states of share-partitions have in common (KIP-932)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import NO_UUID, Int8, Int16, Int32, Int64, String, Uuid


class StateBatch(NamedTuple):
    """Offsets that are side by side and in the same state."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class Partition(NamedTuple):
    """Which partition, and in which leader epoch it is asked about."""

    partition: Int32 = 0
    leader_epoch: Int32 = 0


class Topic(NamedTuple):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[Partition, ...] = ()


class PartitionResult(NamedTuple):
    """What became of one partition."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class TopicResult(NamedTuple):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[PartitionResult, ...] = ()
