"""Forget how far a share group is; a broker asks the share coordinator (KIP-932)."""

from __future__ import annotations

from typing import Final, NamedTuple

from logstore.format.messages.fields import NO_UUID, Int32, String, Uuid
from logstore.format.messages.message import Message
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


REQUEST: Final = Message(DeleteShareGroupStateRequest, 0, 0, flexible=0)
RESPONSE: Final = Message(DeleteShareGroupStateResponse, 0, 0, flexible=0)
