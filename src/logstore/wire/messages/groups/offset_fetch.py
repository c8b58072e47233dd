"""Committed offsets of groups."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import (
    NO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    String,
    Uuid,
    needs,
    null_since,
    since,
    until,
)


class TopicWanted(NamedTuple):
    """Partitions of one topic. Up to version 7."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


class GroupTopic(NamedTuple):
    """Partitions of one topic."""

    name: Annotated[String, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    partitions: tuple[Int32, ...] = ()


class Group(NamedTuple):
    """A group, and which of its offsets are wanted: of all partitions, if the topics are null."""

    group_id: String = ""
    member_id: Annotated[String | None, since(9)] = None
    member_epoch: Annotated[Int32, since(9)] = -1
    topics: tuple[GroupTopic, ...] | None = ()


class OffsetFetchRequest(NamedTuple):
    """Ask for offsets of groups; before version 8 of one group."""

    group_id: Annotated[String, needs(1, 7)] = ""
    topics: Annotated[tuple[TopicWanted, ...] | None, needs(1, 7), null_since(2)] = ()
    groups: Annotated[tuple[Group, ...], needs(8)] = ()
    require_stable: Annotated[Bool, needs(7)] = False
    """Whether to refuse while a transaction that commits offsets is open (KIP-447)."""


class PartitionResult(NamedTuple):
    """A committed offset; -1 if there is none. Up to version 7."""

    partition: Int32 = 0
    offset: Int64 = 0
    leader_epoch: Annotated[Int32, since(5)] = -1
    metadata: String | None = None
    error_code: Int16 = 0


class TopicResult(NamedTuple):
    """The partitions of one topic. Up to version 7."""

    name: String = ""
    partitions: tuple[PartitionResult, ...] = ()


class GroupPartitionResult(NamedTuple):
    """A committed offset; -1 if there is none."""

    partition: Int32 = 0
    offset: Int64 = 0
    leader_epoch: Int32 = -1
    metadata: String | None = None
    error_code: Int16 = 0


class GroupTopicResult(NamedTuple):
    """The partitions of one topic."""

    name: Annotated[String, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    partitions: tuple[GroupPartitionResult, ...] = ()


class GroupResult(NamedTuple):
    """The offsets of a group."""

    group_id: String = ""
    topics: tuple[GroupTopicResult, ...] = ()
    error_code: Int16 = 0


class OffsetFetchResponse(NamedTuple):
    """The offsets; before version 8 of one group, in fields of its own."""

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: Annotated[tuple[TopicResult, ...], needs(1, 7)] = ()
    error_code: Annotated[Int16, since(2), until(7)] = 0
    groups: Annotated[tuple[GroupResult, ...], needs(8)] = ()
