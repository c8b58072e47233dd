"""The state of share-partitions, for a new leader; a broker asks the share coordinator (KIP-932)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import NO_UUID, OWN_TAG, Int16, Int32, Int64, String, Uuid, tagged
from logstore.wire.messages.shares.kept import StateBatch, Topic


class ReadShareGroupStateRequest(NamedTuple):
    """Which partitions of which group. From then on leaders of earlier epochs are fenced."""

    group_id: String = ""
    topics: tuple[Topic, ...] = ()


class PartitionResult(NamedTuple):
    """All of a state."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    """-1: the group has not begun."""
    state_batches: tuple[StateBatch, ...] = ()
    last_epoch: Annotated[Int32, tagged(OWN_TAG)] = -1
    """The leader epoch in which the state was read last; -1: in none. Not Kafka's, which passes it over."""


class TopicResult(NamedTuple):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[PartitionResult, ...] = ()


class ReadShareGroupStateResponse(NamedTuple):
    """The states."""

    topics: tuple[TopicResult, ...] = ()
