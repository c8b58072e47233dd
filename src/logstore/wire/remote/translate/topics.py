"""Topics and their settings: Metadata, CreateTopics, DeleteTopics, CreatePartitions, DescribeConfigs,
IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import (
    AlterConfigsRequest,
    ConfigChange,
    ConfigSource,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResult,
    DescribedConfig,
    MetadataRequest,
    MetadataResult,
    MorePartitions,
    NewTopic,
    PartitionMetadata,
    Setting,
    SettingKind,
    TopicMetadata,
    TopicOutcome,
    TopicsResult,
)
from logstore.format.messages.fields import NO_UUID
from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster import metadata
from logstore.wire.messages.topics import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
)
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.connections.nodes import Lane
from logstore.wire.remote.translate.translation import Translation

_TOPIC: Final = 2
"""The type of a resource."""
_FROM_TOPIC: Final = ConfigSource.TOPIC
"""Where a setting comes from: the topic itself."""
_SET: Final = 0
_DELETE: Final = 1
_APPEND: Final = 2
_SUBTRACT: Final = 3
_EXPLAINS: Final = 3
"""DescribeConfigs: from this version on, settings are documented (KIP-569)."""
_KINDS: Final = frozenset(SettingKind)
_NAMES_ONLY: Final = 5
"""DeleteTopics: later versions take ids, too."""
_ASKS_WITHOUT_CREATING: Final = 4
_BY_ASSIGNMENT: Final = -1
"""In place of numbers: the assignments say how many."""
_TIMEOUT_MS: Final = 30_000
_LEFT_OUT: Final = "the broker has left the topic out of its answer"


def first_code(result: TopicsResult | DescribeConfigsResult) -> ErrorCode:
    """The first that says that the whole was asked of the wrong broker."""
    return next(
        (each.error for each in result.topics if each.error is ErrorCode.NOT_CONTROLLER), ErrorCode.NONE
    )


# Metadata


def _parse_metadata(request: MetadataRequest, response: metadata.MetadataResponse) -> MetadataResult:
    found = {topic.name: _topic(topic) for topic in response.topics if topic.name is not None}
    names = sorted(found) if request.topics is None else request.topics
    topics = tuple(
        found.get(name) or TopicMetadata(name, ErrorCode.UNKNOWN_SERVER_ERROR, message=_LEFT_OUT)
        for name in names
    )
    return MetadataResult(response.cluster_id or "", topics)


def _topic(topic: metadata.Topic) -> TopicMetadata:
    code, name = code_of_number(topic.error_code), topic.name or ""
    message = why_of_number(topic.error_code)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        message = f"there is no topic {name!r}"
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        message = f"there is no topic {name!r}: names have letters, digits, '.', '_' and '-', 249 at most"
    partitions = sorted(topic.partitions, key=lambda each: each.partition)
    return TopicMetadata(
        name,
        code,
        None if topic.topic_id == NO_UUID else topic.topic_id,
        topic.is_internal,
        tuple(
            PartitionMetadata(
                each.partition,
                code_of_number(each.error_code),
                each.leader_id,
                each.leader_epoch,
                each.replicas,
                each.isr,
            )
            for each in partitions
        ),
        message,
    )


METADATA: Final = Translation(
    key=ApiKey.METADATA,
    build=lambda request, version: metadata.MetadataRequest(
        None
        if request.topics is None
        else tuple(metadata.TopicWanted(name=name) for name in dict.fromkeys(request.topics)),
        allow_auto_topic_creation=False,
    ),
    parse=_parse_metadata,
    refuse=lambda request, code, message: MetadataResult(
        "", tuple(TopicMetadata(name, code, message=message) for name in request.topics or ())
    ),
    judge=lambda _: ErrorCode.NONE,
    first=_ASKS_WITHOUT_CREATING,
)


# Changing topics


def _outcomes(names: Iterable[str], answers: dict[str, tuple[int, str | None]]) -> TopicsResult:
    """One for each name, in the order of the request."""
    found = []
    for name in names:
        number, message = answers.get(name, (-1, _LEFT_OUT))
        found.append(TopicOutcome(name, code_of_number(number), why_of_number(number, message)))
    return TopicsResult(tuple(found))


def _refused(names: Iterable[str], code: ErrorCode, message: str | None) -> TopicsResult:
    return TopicsResult(tuple(TopicOutcome(name, code, message) for name in names))


def build_create(request: CreateTopicsRequest, replication_factor: int) -> create_topics.CreateTopicsRequest:
    """CreateTopics. ``replication_factor``: of topics that say nothing of it; -1 leaves it to the broker
    (KIP-464)."""
    topics = tuple(
        create_topics.Topic(
            topic.name,
            topic.partition_count if topic.assignments is None else _BY_ASSIGNMENT,
            _factor(topic, replication_factor),
            tuple(
                create_topics.Assignment(number, tuple(nodes))
                for number, nodes in enumerate(topic.assignments or ())
            ),
            configs=tuple(create_topics.Config(name, value) for name, value in topic.settings.items()),
        )
        for topic in request.topics
    )
    return create_topics.CreateTopicsRequest(topics, _TIMEOUT_MS, request.validate_only)


def _factor(topic: NewTopic, default: int) -> int:
    if topic.assignments is not None:
        return _BY_ASSIGNMENT
    return default if topic.replication_factor < 0 else topic.replication_factor


def _parse_created(
    request: CreateTopicsRequest, response: create_topics.CreateTopicsResponse
) -> TopicsResult:
    answers = {each.name: each for each in response.topics}
    refused = {each.name: (each.error_code, each.error_message) for each in response.topics}
    outcomes = _outcomes((each.name for each in request.topics), refused).topics
    return TopicsResult(
        tuple(
            each if each.error is not ErrorCode.NONE else _created(each, answers[each.name])
            for each in outcomes
        )
    )


def _created(outcome: TopicOutcome, found: create_topics.TopicResult) -> TopicOutcome:
    """With what the broker says of the topic. It may leave all of it out."""
    return outcome._replace(
        topic_id=None if found.topic_id == NO_UUID else found.topic_id,
        partition_count=found.partition_count,
        replication_factor=found.replication_factor,
        settings=tuple(
            Setting(each.name, each.value or "", each.config_source != _FROM_TOPIC, source=_source(each))
            for each in found.configs or ()
        ),
    )


def _source(config: create_topics.ConfigResult) -> ConfigSource | None:
    return ConfigSource.STATIC_BROKER if config.config_source == ConfigSource.STATIC_BROKER else None


def creating(replication_factor: int) -> Translation[CreateTopicsRequest, TopicsResult]:
    """CreateTopics. Not repeated after an answer was lost: it would find its own topics."""
    return Translation(
        key=ApiKey.CREATE_TOPICS,
        build=lambda request, version: build_create(request, replication_factor),
        parse=_parse_created,
        refuse=lambda request, code, message: _refused((each.name for each in request.topics), code, message),
        judge=first_code,
        first=4,
        lane=Lane.WAITS,
        may_repeat=False,
        wait_ms=lambda _: _TIMEOUT_MS,
    )


def _assignments(topic: MorePartitions) -> tuple[create_partitions.Assignment, ...] | None:
    if topic.assignments is None:
        return None
    return tuple(create_partitions.Assignment(each) for each in topic.assignments)


DELETE_TOPICS: Final = Translation[DeleteTopicsRequest, TopicsResult](
    key=ApiKey.DELETE_TOPICS,
    build=lambda request, version: delete_topics.DeleteTopicsRequest(
        topic_names=tuple(dict.fromkeys(request.names)), timeout_ms=_TIMEOUT_MS
    ),
    parse=lambda request, response: _outcomes(
        request.names,
        {each.name: (each.error_code, each.error_message) for each in response.topics},
    ),
    refuse=lambda request, code, message: _refused(request.names, code, message),
    judge=first_code,
    last=_NAMES_ONLY,
    lane=Lane.WAITS,
    may_repeat=False,
    wait_ms=lambda _: _TIMEOUT_MS,
)

CREATE_PARTITIONS: Final = Translation[CreatePartitionsRequest, TopicsResult](
    key=ApiKey.CREATE_PARTITIONS,
    build=lambda request, version: create_partitions.CreatePartitionsRequest(
        tuple(
            create_partitions.Topic(each.name, each.partition_count, _assignments(each))
            for each in request.topics
        ),
        _TIMEOUT_MS,
        request.validate_only,
    ),
    parse=lambda request, response: _outcomes(
        (each.name for each in request.topics),
        {each.name: (each.error_code, each.error_message) for each in response.topics},
    ),
    refuse=lambda request, code, message: _refused((each.name for each in request.topics), code, message),
    judge=first_code,
    lane=Lane.WAITS,
    may_repeat=False,
    wait_ms=lambda _: _TIMEOUT_MS,
)


# Settings


def _setting(config: Any) -> Setting:
    kind = config.config_type if config.config_type in _KINDS else SettingKind.UNKNOWN
    is_default = config.config_source != _FROM_TOPIC
    default = config.synonyms[-1].value if config.synonyms else None
    return Setting(
        config.name, config.value or "", is_default, SettingKind(kind), default, config.documentation
    )


def _parse_described(request: DescribeConfigsRequest, response: Any) -> DescribeConfigsResult:
    answers = {each.resource_name: each for each in response.resources}
    found = []
    for name in request.names:
        answer = answers.get(name)
        if answer is None:
            found.append(DescribedConfig(name, ErrorCode.UNKNOWN_SERVER_ERROR, message=_LEFT_OUT))
            continue
        found.append(
            DescribedConfig(
                name,
                code_of_number(answer.error_code),
                tuple(map(_setting, answer.configs)),
                why_of_number(answer.error_code, answer.error_message),
            )
        )
    return DescribeConfigsResult(tuple(found))


DESCRIBE_CONFIGS: Final = Translation(
    key=ApiKey.DESCRIBE_CONFIGS,
    build=lambda request, version: describe_configs.DescribeConfigsRequest(
        tuple(describe_configs.Resource(_TOPIC, name, None) for name in dict.fromkeys(request.names)),
        include_synonyms=True,
        include_documentation=request.with_documentation and version >= _EXPLAINS,
    ),
    parse=_parse_described,
    refuse=lambda request, code, message: DescribeConfigsResult(
        tuple(DescribedConfig(name, code, message=message) for name in request.names)
    ),
    judge=first_code,
)


def _changes(change: ConfigChange) -> Iterator[incremental_alter_configs.Config]:
    for name, value in change.settings.items():
        yield incremental_alter_configs.Config(name, _DELETE if value is None else _SET, value)
    for operation, values in ((_APPEND, change.appended), (_SUBTRACT, change.subtracted)):
        for name, value in values.items():
            yield incremental_alter_configs.Config(name, operation, value)


ALTER_CONFIGS: Final = Translation[AlterConfigsRequest, TopicsResult](
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
    build=lambda request, version: incremental_alter_configs.IncrementalAlterConfigsRequest(
        tuple(
            incremental_alter_configs.Resource(
                _TOPIC,
                change.name,
                tuple(_changes(change)),
            )
            for change in request.changes
        ),
        request.validate_only,
    ),
    parse=lambda request, response: _outcomes(
        (each.name for each in request.changes),
        {each.resource_name: (each.error_code, each.error_message) for each in response.resources},
    ),
    refuse=lambda request, code, message: _refused((each.name for each in request.changes), code, message),
    judge=first_code,
)

REPLACE_CONFIGS: Final = replace(
    ALTER_CONFIGS,
    key=ApiKey.ALTER_CONFIGS,
    build=lambda request, version: alter_configs.AlterConfigsRequest(
        tuple(
            alter_configs.Resource(
                _TOPIC,
                change.name,
                tuple(
                    alter_configs.Config(name, value)
                    for name, value in change.settings.items()
                    if value is not None
                ),
            )
            for change in request.changes
        ),
        request.validate_only,
    ),
)
"""AlterConfigs: all other settings get their defaults."""


def altering(request: AlterConfigsRequest) -> Translation[AlterConfigsRequest, TopicsResult]:
    """How settings are changed: all of a topic's, or single ones. One request asks for one or the other."""
    return REPLACE_CONFIGS if any(each.replaces for each in request.changes) else ALTER_CONFIGS
