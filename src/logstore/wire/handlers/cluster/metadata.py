"""Metadata."""

from __future__ import annotations

import uuid
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.requests import CreateTopicsRequest, NewTopic, PartitionMetadata, TopicMetadata
from logstore.broker.requests import MetadataRequest as Asked
from logstore.broker.requests import MetadataResult as Found
from logstore.errors import InvalidTopicError
from logstore.format.messages.fields import NO_UUID
from logstore.format.names import check_topic_name
from logstore.logdir.acls import CLUSTER_NAME, Operation, ResourceType
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.messages.cluster.metadata import (
    Broker,
    MetadataRequest,
    MetadataResponse,
    Partition,
    Topic,
    TopicWanted,
)
from logstore.wire.messages.parts import NOT_ASKED

TOPIC_OPERATIONS: Final = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DESCRIBE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = (
    Operation.CREATE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
    Operation.ALTER,
    Operation.DESCRIBE,
)

_NAMELESS: Final = 12
"""From this version on, who has asked by an id need not be told the name."""


def answer(call: Call, request: MetadataRequest, version: int) -> Pending[MetadataResponse]:
    """The topics that are asked for. One that there is not is created, if client and listener want that."""
    named = [(each, _name(call, each)) for each in request.topics or ()]
    names = None
    denied: list[str] = []
    if not _means_all(request, version):
        names = tuple(dict.fromkeys(name for _, name in named if name is not None))
        denied = [each for each in names if not _may_see(call, each)]
        names = tuple(each for each in names if each not in denied)
        if request.allow_auto_topic_creation and call.node.config.auto_create_topics_enable:
            denied_creation = _create(call, names)
            names = tuple(each for each in names if each not in denied_creation)
            denied += denied_creation
    no_name = None if version >= _NAMELESS else ""
    refused = [
        Topic(ErrorCode.UNKNOWN_TOPIC_ID, no_name, each.topic_id) for each, name in named if name is None
    ]
    by_id = {name: each.topic_id for each, name in named if each.topic_id != NO_UUID}
    refused += [
        Topic(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, no_name if each in by_id else each, by_id.get(each, NO_UUID)
        )
        for each in denied
    ]
    return then(call.broker.metadata(Asked(names)), lambda found: _response(call, request, found, refused))


def _means_all(request: MetadataRequest, version: int) -> bool:
    """Version 0 has no null: none means all."""
    return request.topics is None or (version == 0 and not request.topics)


def _name(call: Call, wanted: TopicWanted) -> str | None:
    """None: there is no topic of this id."""
    return wanted.name if wanted.topic_id == NO_UUID else call.node.topics.name_of(wanted.topic_id)


def _may_see(call: Call, name: str) -> bool:
    return call.allows_topic(Operation.DESCRIBE, name)


def _create(call: Call, names: tuple[str, ...]) -> list[str]:
    """Create those that there are not; returns those that the client may not create."""
    missing = [each for each in names if call.node.topics.id_of(each) is None]
    may_create_all = bool(missing) and call.allows_cluster(Operation.CREATE, is_noted=False)
    denied = [each for each in missing if not (may_create_all or call.allows_topic(Operation.CREATE, each))]
    fresh = [NewTopic(each, call.node.config.num_partitions) for each in missing if each not in denied]
    if fresh:
        call.broker.create_topics(CreateTopicsRequest(tuple(fresh)))
    return denied


def _response(call: Call, request: MetadataRequest, found: Found, refused: list[Topic]) -> MetadataResponse:
    shown = [
        _topic(call, each, request)
        for each in found.topics
        if call.allows(Operation.DESCRIBE, ResourceType.TOPIC, each.name, is_noted=False)
    ]
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = 0
        if call.allows_cluster(Operation.DESCRIBE):
            operations = call.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME, CLUSTER_OPERATIONS)
    answer = MetadataResponse(topics=(*shown, *refused), cluster_authorized_operations=operations)
    return _with_brokers(call, answer)


def _with_brokers(call: Call, answer: MetadataResponse) -> MetadataResponse:
    node = call.node
    return answer._replace(
        brokers=tuple([Broker(*each) for each in node.brokers()]),
        cluster_id=node.cluster_id,
        controller_id=node.controller_id,
    )


def _topic(call: Call, found: TopicMetadata, request: MetadataRequest) -> Topic:
    operations = NOT_ASKED
    if request.include_topic_authorized_operations:
        operations = call.authorized_operations(ResourceType.TOPIC, found.name, TOPIC_OPERATIONS)
    return Topic(
        error_of(found),
        found.name,
        found.topic_id or NO_UUID,
        found.is_internal,
        tuple([_partition(each) for each in found.partitions]),
        operations,
    )


def error_of(found: TopicMetadata) -> ErrorCode:
    """As Kafka, say of a name that no topic can have that it is none: clients give up at once, and wait for
    a topic that might still be created."""
    if found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        try:
            check_topic_name(found.name)
        except InvalidTopicError:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
    return found.error


def _partition(found: PartitionMetadata) -> Partition:
    return Partition(
        found.error,
        found.partition,
        found.leader_id,
        found.leader_epoch,
        found.replica_ids,
        found.isr_ids,
    )


def refuse(request: MetadataRequest, code: ErrorCode, version: int) -> MetadataResponse:
    """The error, of each topic that is named."""
    topics = tuple(
        Topic(code, each.name or "", each.topic_id or uuid.UUID(int=0)) for each in request.topics or ()
    )
    return MetadataResponse(topics=topics, error_code=code)


def refuse_all(call: Call, request: MetadataRequest, code: ErrorCode, version: int) -> MetadataResponse:
    """The error. Clients pass over an answer without brokers, and the errors in it."""
    return _with_brokers(call, refuse(request, code, version))
