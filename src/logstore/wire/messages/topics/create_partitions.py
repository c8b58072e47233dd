"""Add partitions to topics (KIP-195)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Bool, Int16, Int32, String


class Assignment(NamedTuple):
    """The replicas of a new partition."""

    broker_ids: tuple[Int32, ...] = ()


class Topic(NamedTuple):
    """A topic, and how many partitions it shall have."""

    name: String = ""
    partition_count: Int32 = 0
    assignments: tuple[Assignment, ...] | None = ()


class CreatePartitionsRequest(NamedTuple):
    """The topics that shall have more partitions."""

    topics: tuple[Topic, ...] = ()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class TopicResult(NamedTuple):
    """A topic that has more partitions, or why it has not."""

    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(NamedTuple):
    """What became of the topics."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TopicResult, ...] = ()
