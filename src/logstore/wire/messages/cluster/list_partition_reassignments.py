"""List partitions that move to other brokers (KIP-455)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Int16, Int32, String


class Topic(NamedTuple):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


class ListPartitionReassignmentsRequest(NamedTuple):
    """Of some partitions, or of all (null)."""

    timeout_ms: Int32 = 60000
    topics: tuple[Topic, ...] | None = None


class Reassignment(NamedTuple):
    """A partition that moves: its brokers, those that get it, and those that lose it."""

    partition: Int32 = 0
    replicas: tuple[Int32, ...] = ()
    adding_replicas: tuple[Int32, ...] = ()
    removing_replicas: tuple[Int32, ...] = ()


class TopicResult(NamedTuple):
    """The partitions of one topic that move."""

    name: String = ""
    partitions: tuple[Reassignment, ...] = ()


class ListPartitionReassignmentsResponse(NamedTuple):
    """What moves."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    topics: tuple[TopicResult, ...] = ()
