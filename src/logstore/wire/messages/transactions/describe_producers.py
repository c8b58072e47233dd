"""The producers that partitions know (KIP-664)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Int16, Int32, Int64, String


class Topic(NamedTuple):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribeProducersRequest(NamedTuple):
    """Which partitions."""

    topics: tuple[Topic, ...] = ()


class Producer(NamedTuple):
    """A producer, and what it last appended."""

    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp_ms: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1
    """-1 without an open transaction."""


class PartitionResult(NamedTuple):
    """The producers of a partition."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    producers: tuple[Producer, ...] = ()


class TopicResult(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[PartitionResult, ...] = ()


class DescribeProducersResponse(NamedTuple):
    """The producers."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TopicResult, ...] = ()
