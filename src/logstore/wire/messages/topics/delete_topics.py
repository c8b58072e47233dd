"""Delete topics."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import (
    NO_UUID,
    Int16,
    Int32,
    String,
    Uuid,
    needs,
    null_since,
    since,
    until,
)


class Topic(NamedTuple):
    """A topic, by name or by id."""

    name: String | None = None
    topic_id: Uuid = NO_UUID


class DeleteTopicsRequest(NamedTuple):
    """The topics to delete."""

    topics: Annotated[tuple[Topic, ...], needs(6)] = ()
    topic_names: Annotated[tuple[String, ...], until(5)] = ()
    timeout_ms: Int32 = 0


class TopicResult(NamedTuple):
    """A topic that was deleted, or why it was not."""

    name: Annotated[String | None, null_since(6)] = ""
    topic_id: Annotated[Uuid, since(6)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(5)] = None


class DeleteTopicsResponse(NamedTuple):
    """What became of the topics."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TopicResult, ...] = ()
