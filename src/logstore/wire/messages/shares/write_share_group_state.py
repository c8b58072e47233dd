"""What has changed in the state of share-partitions; a leader tells the share coordinator (KIP-932)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import NO_UUID, Int32, Int64, String, Uuid, since
from logstore.wire.messages.shares.kept import StateBatch, TopicResult


class Partition(NamedTuple):
    """What has changed in one partition."""

    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    """-1: as it was."""
    delivery_complete_count: Annotated[Int32, since(1)] = -1
    """How many offsets from the start offset on are done with (KIP-1226); -1 if it is not known."""
    state_batches: tuple[StateBatch, ...] = ()


class Topic(NamedTuple):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[Partition, ...] = ()


class WriteShareGroupStateRequest(NamedTuple):
    """Of one group."""

    group_id: String = ""
    topics: tuple[Topic, ...] = ()


class WriteShareGroupStateResponse(NamedTuple):
    """What became of each."""

    topics: tuple[TopicResult, ...] = ()
