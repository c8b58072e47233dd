"""CreateTopics."""

from __future__ import annotations

from collections import Counter
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import ConfigSource, NewTopic, TopicOutcome
from logstore.broker.requests import CreateTopicsRequest as Asked
from logstore.broker.requests import TopicsResult as Done
from logstore.format.messages.fields import NO_UUID
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.handlers.topics.idle import without_idle
from logstore.wire.handlers.topics.resources import Refusal, invalid
from logstore.wire.messages.topics.create_topics import (
    ConfigResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    Topic,
    TopicResult,
)

_DEFAULT: Final = -1
"""In place of a number: the broker chooses."""
_MOST_PARTITIONS: Final = 10_000
"""That one request may create, as in Kafka."""


def answer(call: Call, request: CreateTopicsRequest, version: int) -> Pending[CreateTopicsResponse]:
    """Create topics. Each is created, or refused with a reason; the answer describes it."""
    partition_count = sum(max(0, _count(call, each)) for each in request.topics)
    if partition_count > _MOST_PARTITIONS:
        return Answered(_too_many(request, partition_count))
    may_create_all = call.allows_cluster(Operation.CREATE, is_noted=False)
    counts = Counter(each.name for each in request.topics)
    refusals = [
        _refusal(call, each, may_create_all=may_create_all, is_twice=counts[each.name] > 1)
        for each in request.topics
    ]
    asked = tuple(
        NewTopic(
            each.name,
            _count(call, each),
            without_idle({one.name: one.value or "" for one in each.configs}),
            each.replication_factor,
            _assignments(each),
        )
        for each, refusal in zip(request.topics, refusals, strict=True)
        if refusal is None
    )
    return then(
        call.broker.create_topics(Asked(asked, request.validate_only)),
        lambda done: _response(call, request, refusals, done),
    )


def _too_many(request: CreateTopicsRequest, partition_count: int) -> CreateTopicsResponse:
    why = f"the request creates {partition_count} partitions; the limit is {_MOST_PARTITIONS} at a time"
    refusal = Refusal(ErrorCode.POLICY_VIOLATION, why)
    return CreateTopicsResponse(topics=tuple(_refused(each.name, refusal) for each in request.topics))


def _refusal(call: Call, topic: Topic, *, may_create_all: bool, is_twice: bool) -> Refusal | None:
    if not may_create_all and not call.allows_topic(Operation.CREATE, topic.name):
        why = f"{call.principal} may not create topic {topic.name!r}"
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)
    if is_twice:
        return invalid(f"the request creates topic {topic.name!r} twice")
    if call.node.topics.id_of(topic.name) is not None:  # whatever its settings are: tools take that for done
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} exists")
    for config in topic.configs:
        if config.value is None:
            return Refusal(ErrorCode.INVALID_CONFIG, f"{config.name} has no value; leave it out instead")
    return _wrong_assignments(call, topic) if topic.assignments else _wrong_counts(call, topic)


def _assignments(topic: Topic) -> tuple[tuple[int, ...], ...] | None:
    """By the numbers of the partitions."""
    placed = sorted(topic.assignments, key=lambda each: each.partition)
    return tuple([tuple(each.broker_ids) for each in placed]) or None


def _wrong_counts(call: Call, topic: Topic) -> Refusal | None:
    count, replicas = topic.partition_count, topic.replication_factor
    most = len(call.node.brokers())
    if replicas != _DEFAULT and not 1 <= replicas <= most:
        there = "is one broker; give 1" if most == 1 else f"are {most} brokers; give 1 to {most}"
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {topic.name!r} cannot have {replicas} replicas: there {there}, or -1",
        )
    if count != _DEFAULT and count < 1:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} cannot have {count} partitions; give 1 or more, or -1 for the default",
        )
    return None


def _wrong_assignments(call: Call, topic: Topic) -> Refusal | None:
    """On a node that is alone each partition must be on it. In a cluster the controller looks where."""
    if topic.partition_count != _DEFAULT or topic.replication_factor != _DEFAULT:
        return invalid(
            f"topic {topic.name!r} has assignments: the numbers of partitions and replicas must be -1"
        )
    if sorted(each.partition for each in topic.assignments) != list(range(len(topic.assignments))):
        why = f"the partitions of topic {topic.name!r} must be numbered from 0 on, without a gap"
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    if call.node.cluster is not None:
        return None
    node_id = call.node.node_id
    for each in topic.assignments:
        if each.broker_ids != (node_id,):
            why = f"partition {each.partition} of {topic.name!r} is on {each.broker_ids}; it must be on "
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{why}broker {node_id}, the only one")
    return None


def _count(call: Call, topic: Topic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return call.node.config.num_partitions if topic.partition_count == _DEFAULT else topic.partition_count


def _response(
    call: Call, request: CreateTopicsRequest, refusals: list[Refusal | None], done: Done
) -> CreateTopicsResponse:
    found = iter(done.topics)
    return CreateTopicsResponse(
        topics=tuple(
            _topic(call, next(found)) if refusal is None else _refused(each.name, refusal)
            for each, refusal in zip(request.topics, refusals, strict=True)
        )
    )


def _refused(name: str, refusal: Refusal) -> TopicResult:
    return TopicResult(name, error_code=refusal.code, error_message=refusal.message)


def _topic(call: Call, outcome: TopicOutcome) -> TopicResult:
    if outcome.error is not ErrorCode.NONE:
        code = outcome.error
        is_alone = call.node.cluster is None  # a controller says it itself, also to a node that knows less
        if (
            code is ErrorCode.TOPIC_ALREADY_EXISTS
            and is_alone
            and call.node.topics.id_of(outcome.name) is None
        ):
            code = ErrorCode.INVALID_TOPIC_EXCEPTION  # what exists differs in dots and underscores
        return _refused(outcome.name, Refusal(code, outcome.message))
    topic_id = outcome.topic_id or NO_UUID
    if not call.allows_topic(Operation.DESCRIBE_CONFIGS, outcome.name):
        return TopicResult(outcome.name, topic_id, config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    configs = tuple(
        ConfigResult(
            each.name,
            each.value,
            config_source=each.source or (ConfigSource.DEFAULT if each.is_default else ConfigSource.TOPIC),
        )
        for each in outcome.settings
    )
    return TopicResult(
        outcome.name,
        topic_id,
        partition_count=outcome.partition_count,
        replication_factor=outcome.replication_factor,
        configs=configs,
    )


def refuse(request: CreateTopicsRequest, code: ErrorCode, version: int) -> CreateTopicsResponse:
    """The same error for every topic."""
    return CreateTopicsResponse(topics=tuple(_refused(each.name, Refusal(code)) for each in request.topics))
