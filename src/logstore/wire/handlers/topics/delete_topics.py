"""DeleteTopics."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Final, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.requests import DeleteTopicsRequest as Asked
from logstore.broker.requests import TopicsResult as Done
from logstore.format.messages.fields import NO_UUID
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call, told
from logstore.wire.handlers.then import then
from logstore.wire.handlers.topics.resources import Refusal, invalid
from logstore.wire.messages.topics.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    Topic,
    TopicResult,
)

_BY_ID: Final = 6
"""From this version on topics may be named by their ids."""


class _Wanted(NamedTuple):
    """A topic to delete, by name and by id."""

    asked: Topic
    name: str | None
    topic_id: uuid.UUID
    refusal: Refusal | None = None


def answer(call: Call, request: DeleteTopicsRequest, version: int) -> Pending[DeleteTopicsResponse]:
    """Delete topics with all their records. Internal ones, too: as in Kafka, the right to do so decides."""
    topics = [_resolved(call, each) for each in _topics(request, version)]
    counts = Counter(each.name for each in topics)
    may_delete_all = call.allows_cluster(Operation.DELETE, is_noted=False)
    wanted = [
        _checked(call, each, may_delete_all=may_delete_all, is_twice=counts[each.name] > 1) for each in topics
    ]
    names = tuple(each.name for each in wanted if each.refusal is None and each.name is not None)
    return then(call.broker.delete_topics(Asked(names)), lambda done: _response(wanted, done))


def _topics(request: DeleteTopicsRequest, version: int) -> tuple[Topic, ...]:
    return request.topics if version >= _BY_ID else tuple(Topic(each) for each in request.topic_names)


def _resolved(call: Call, topic: Topic) -> _Wanted:
    name, topic_id = topic
    if (name is None) == (topic_id == NO_UUID):
        return _Wanted(topic, *topic, invalid("a topic to delete has either a name or an id"))
    if name is not None:
        return _Wanted(topic, name, call.node.topics.id_of(name) or NO_UUID)
    found = call.node.topics.name_of(topic_id)
    if found is None:
        why = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        return _Wanted(topic, *topic, why)
    return _Wanted(topic, found, topic_id)


def _checked(call: Call, wanted: _Wanted, *, may_delete_all: bool, is_twice: bool) -> _Wanted:
    name = wanted.name
    if wanted.refusal is not None or name is None:
        return wanted
    if not may_delete_all and not call.allows_topic(Operation.DELETE, name):
        return _denied(call, wanted, name)
    if is_twice:
        return wanted._replace(refusal=invalid(f"the request deletes topic {name!r} twice"))
    return wanted


def _denied(call: Call, wanted: _Wanted, name: str) -> _Wanted:
    """Who may not even see the topic learns neither its other name nor whether it is there."""
    refusal = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not call.allows_topic(Operation.DESCRIBE, name):
        return _Wanted(wanted.asked, *wanted.asked, refusal)
    if wanted.topic_id == NO_UUID:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refusal = Refusal(code, told(name, code, None))
    return wanted._replace(refusal=refusal)


def _response(wanted: list[_Wanted], done: Done) -> DeleteTopicsResponse:
    found = iter(done.topics)
    topics = []
    for each in wanted:
        if each.refusal is None:
            outcome = next(found)
            why = told(outcome.name, outcome.error, outcome.message)
            topics.append(TopicResult(each.name, each.topic_id, outcome.error, why))
        else:
            topics.append(TopicResult(each.name, each.topic_id, *each.refusal))
    return DeleteTopicsResponse(topics=tuple(topics))


def refuse(request: DeleteTopicsRequest, code: ErrorCode, version: int) -> DeleteTopicsResponse:
    """The same error for every topic."""
    return DeleteTopicsResponse(
        topics=tuple(TopicResult(each.name, each.topic_id, code) for each in _topics(request, version))
    )
