"""Let a share group begin with partitions; a broker asks the share coordinator (KIP-932)."""

from __future__ import annotations

from typing import Final, NamedTuple

from logstore.format.messages.fields import NO_UUID, Int32, Int64, String, Uuid
from logstore.wire.messages.shares.kept import TopicResult

BEGINS_ANEW: Final = 1
"""As the state epoch: the group begins there whatever it has done. Kafka gives the epoch itself; here the
share coordinator counts."""


class Partition(NamedTuple):
    """Where the group begins."""

    partition: Int32 = 0
    state_epoch: Int32 = 0
    """0: nothing changes where it has begun already."""
    start_offset: Int64 = 0
    """-1: where the group's settings say."""


class Topic(NamedTuple):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[Partition, ...] = ()


class InitializeShareGroupStateRequest(NamedTuple):
    """Which partitions of which group."""

    group_id: String = ""
    topics: tuple[Topic, ...] = ()


class InitializeShareGroupStateResponse(NamedTuple):
    """What became of each."""

    topics: tuple[TopicResult, ...] = ()
