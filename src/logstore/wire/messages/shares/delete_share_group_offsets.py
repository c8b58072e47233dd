"""Forget what a share group has done of topics (KIP-932)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import NO_UUID, Int16, Int32, String, Uuid


class Topic(NamedTuple):
    """One topic."""

    name: String = ""


class DeleteShareGroupOffsetsRequest(NamedTuple):
    """Which topics of which group."""

    group_id: String = ""
    topics: tuple[Topic, ...] = ()


class TopicResult(NamedTuple):
    """What became of one topic."""

    name: String = ""
    topic_id: Uuid = NO_UUID
    error_code: Int16 = 0
    error_message: String | None = None


class DeleteShareGroupOffsetsResponse(NamedTuple):
    """What became of each, or an error of the whole request."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    topics: tuple[TopicResult, ...] = ()
