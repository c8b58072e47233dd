"""Requests that change topics: create, delete, more partitions, settings, and the deletion of records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.requests import (
    AlterConfigsRequest,
    ConfigChange,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeletedRecords,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResult,
    DeleteTopicsRequest,
    MorePartitions,
    NewTopic,
    TopicOutcome,
    TopicsResult,
)
from logstore.config import TopicConfig
from logstore.errors import LogstoreError, TopicExistsError
from logstore.format.names import check_new_topic_name
from logstore.logdir.directory import LogDirectory, check_partition_count


def create_topics(directory: LogDirectory, request: CreateTopicsRequest) -> TopicsResult:
    """Create topics, each durably or not at all. With ``validate_only`` nothing changes."""

    def create(topic: NewTopic) -> None:
        settings = {**directory.config.topic.to_properties(), **topic.settings}
        config = TopicConfig.from_properties(settings)
        if not request.validate_only:
            directory.create_topic(topic.name, topic.partition_count, config)
            return
        check_new_topic_name(topic.name)
        check_partition_count(topic.partition_count)
        if topic.name in directory.topic_names():
            raise TopicExistsError(f"topic {topic.name!r} exists")

    return TopicsResult(tuple(_outcome(topic.name, partial(create, topic)) for topic in request.topics))


def delete_topics(directory: LogDirectory, request: DeleteTopicsRequest) -> TopicsResult:
    """Delete topics with all their records."""
    return TopicsResult(
        tuple(_outcome(name, partial(directory.delete_topic, name)) for name in request.names)
    )


def create_partitions(directory: LogDirectory, request: CreatePartitionsRequest) -> TopicsResult:
    """Give topics more partitions."""

    def add(topic: MorePartitions) -> None:
        if request.validate_only:
            directory.topic(topic.name)
            check_partition_count(topic.partition_count)
        else:
            directory.add_partitions(topic.name, topic.partition_count)

    return TopicsResult(tuple(_outcome(topic.name, partial(add, topic)) for topic in request.topics))


def alter_configs(directory: LogDirectory, request: AlterConfigsRequest) -> TopicsResult:
    """Change settings of topics."""

    defaults = directory.config.topic.to_properties()

    def change(wanted: ConfigChange) -> None:
        settings = directory.config_of(wanted.name).to_properties()
        for key, value in wanted.settings.items():
            if value is not None:
                settings[key] = value
            elif key in defaults or key not in TopicConfig.setting_names():
                settings[key] = defaults.get(key, "")  # refused by its name, if it is unknown
            else:
                settings.pop(key, None)
        config = TopicConfig.from_properties(settings)
        if not request.validate_only:
            directory.configure(wanted.name, config)

    return TopicsResult(tuple(_outcome(each.name, partial(change, each)) for each in request.changes))


def _outcome(name: str, action: Callable[[], object]) -> TopicOutcome:
    try:
        action()
    except LogstoreError as error:
        return TopicOutcome(name, code_of(error), str(error))
    return TopicOutcome(name, ErrorCode.NONE)


def delete_records(directory: LogDirectory, request: DeleteRecordsRequest) -> DeleteRecordsResult:
    """Delete the records below an offset, durably."""
    return DeleteRecordsResult(tuple(_delete_records(directory, each) for each in request.partitions))


def _delete_records(directory: LogDirectory, wanted: DeleteRecordsPartition) -> DeletedRecords:
    try:
        log = directory.log(wanted.partition)
        start = log.delete_before(log.high_watermark if wanted.offset == -1 else wanted.offset)
    except LogstoreError as error:
        return DeletedRecords(wanted.partition, code_of(error), message=str(error))
    return DeletedRecords(wanted.partition, ErrorCode.NONE, start)
