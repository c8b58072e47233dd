"""Forget how far a share group is; a broker asks the share coordinator (KIP-932)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import NO_UUID, Int32, String, Uuid
from logstore.wire.messages.shares.kept import TopicResult


class Partition(NamedTuple):
    """Which partition."""

    partition: Int32 = 0


class Topic(NamedTuple):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[Partition, ...] = ()


class DeleteShareGroupStateRequest(NamedTuple):
    """Of one group."""

    group_id: String = ""
    topics: tuple[Topic, ...] = ()


class DeleteShareGroupStateResponse(NamedTuple):
    """What became of each."""

    topics: tuple[TopicResult, ...] = ()
