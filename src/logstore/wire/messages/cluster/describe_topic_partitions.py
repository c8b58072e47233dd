"""Topics and their partitions, a page at a time (KIP-966)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import NO_UUID, Bool, Int16, Int32, String, Uuid
from logstore.wire.messages.parts import NOT_ASKED


class TopicWanted(NamedTuple):
    """A topic."""

    name: String = ""


class Cursor(NamedTuple):
    """Where a page begins."""

    topic: String = ""
    partition: Int32 = 0


class DescribeTopicPartitionsRequest(NamedTuple):
    """Ask for topics, from a cursor on."""

    topics: tuple[TopicWanted, ...] = ()
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class Partition(NamedTuple):
    """A partition: its leader, and its replicas."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replicas: tuple[Int32, ...] = ()
    isr: tuple[Int32, ...] = ()
    eligible_replicas: tuple[Int32, ...] | None = None
    """Those that have all committed records, though they are not in the ISR."""
    last_known_eligible_replicas: tuple[Int32, ...] | None = None
    """Those that were, before an unclean end."""
    offline_replicas: tuple[Int32, ...] = ()


class Topic(NamedTuple):
    """A topic."""

    error_code: Int16 = 0
    name: String | None = None
    topic_id: Uuid = NO_UUID
    is_internal: Bool = False
    partitions: tuple[Partition, ...] = ()
    authorized_operations: Int32 = NOT_ASKED
    """A bit for each operation that the client may do; ``NOT_ASKED`` if it did not ask."""


class DescribeTopicPartitionsResponse(NamedTuple):
    """A page, and where the next one begins."""

    throttle_time_ms: Int32 = 0
    topics: tuple[Topic, ...] = ()
    next_cursor: Cursor | None = None
