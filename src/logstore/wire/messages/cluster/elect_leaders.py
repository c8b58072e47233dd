"""Elect leaders of partitions (KIP-460)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Int8, Int16, Int32, String, needs, since
from logstore.wire.messages.parts import TopicResult


class Topic(NamedTuple):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


class ElectLeadersRequest(NamedTuple):
    """Elect the leaders of some partitions, or of all (null)."""

    election_type: Annotated[Int8, needs(1)] = 0
    """0: the preferred leader. 1: any replica, if none is in sync."""
    topics: tuple[Topic, ...] | None = ()
    timeout_ms: Int32 = 60000


class ElectLeadersResponse(NamedTuple):
    """What became of the elections."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    topics: tuple[TopicResult, ...] = ()
