"""CreatePartitions."""

from __future__ import annotations

from collections import Counter

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.requests import CreatePartitionsRequest as Asked
from logstore.broker.requests import MorePartitions
from logstore.broker.requests import TopicsResult as Done
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call, told
from logstore.wire.handlers.then import then
from logstore.wire.handlers.topics.resources import Refusal, invalid
from logstore.wire.messages.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    Topic,
    TopicResult,
)


def answer(call: Call, request: CreatePartitionsRequest, version: int) -> Pending[CreatePartitionsResponse]:
    """Give topics more partitions."""
    counts = Counter(each.name for each in request.topics)
    refusals = [_refusal(call, each, is_twice=counts[each.name] > 1) for each in request.topics]
    asked = tuple(
        MorePartitions(each.name, each.partition_count, _assignments(each))
        for each, refusal in zip(request.topics, refusals, strict=True)
        if refusal is None
    )
    return then(
        call.broker.create_partitions(Asked(asked, request.validate_only)),
        lambda done: _response(request, refusals, done),
    )


def _refusal(call: Call, topic: Topic, *, is_twice: bool) -> Refusal | None:
    if not call.allows_topic(Operation.ALTER, topic.name):
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return invalid(f"the request names topic {topic.name!r} twice") if is_twice else None


def _assignments(topic: Topic) -> tuple[tuple[int, ...], ...] | None:
    """Some clients send an empty list where they mean none."""
    return tuple(each.broker_ids for each in topic.assignments) if topic.assignments else None


def _response(
    request: CreatePartitionsRequest, refusals: list[Refusal | None], done: Done
) -> CreatePartitionsResponse:
    found = iter(done.topics)
    topics = []
    for each, refusal in zip(request.topics, refusals, strict=True):
        if refusal is None:
            outcome = next(found)
            refusal = Refusal(outcome.error, told(each.name, outcome.error, outcome.message))
        topics.append(TopicResult(each.name, *refusal))
    return CreatePartitionsResponse(topics=tuple(topics))


def refuse(request: CreatePartitionsRequest, code: ErrorCode, version: int) -> CreatePartitionsResponse:
    """The same error for every topic."""
    return CreatePartitionsResponse(topics=tuple(TopicResult(each.name, code) for each in request.topics))
