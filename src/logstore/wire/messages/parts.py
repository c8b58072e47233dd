"""What several messages have in common."""

from __future__ import annotations

from typing import Final, NamedTuple

from logstore.format.messages.fields import NO_UUID, Int16, Int32, String, Uuid

NOT_ASKED: Final = -(2**31)
"""Stands for the authorized operations if the request did not ask for them (KIP-430)."""


class CurrentLeader(NamedTuple):
    """The leader of a partition and its epoch, for a client that has asked another broker (KIP-951)."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(NamedTuple):
    """Where a leader that is named in the same message listens (KIP-951)."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class PartitionResult(NamedTuple):
    """What became of one partition."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class TopicResult(NamedTuple):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[PartitionResult, ...] = ()


class TopicPartitions(NamedTuple):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    topic_name: String = ""
    partitions: tuple[Int32, ...] = ()


class Assignment(NamedTuple):
    """Partitions of a member."""

    topic_partitions: tuple[TopicPartitions, ...] = ()
