"""Requests that change topics: create, delete, more partitions, settings, and the deletion of records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.records.looking_up import NODE_ID
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
from logstore.broker.settings import LISTS, settings_of
from logstore.config import TopicConfig
from logstore.errors import InvalidConfigError, LogstoreError, TopicExistsError, UsageError
from logstore.format.names import check_new_topic_name, has_name_clash
from logstore.logdir.catalogue import TopicEntry
from logstore.logdir.directory import LogDirectory, check_can_grow, check_partition_count
from logstore.logdir.topics import NewTopic as CreatedTopic
from logstore.turns import flushed_at_a_time, take_turns


class _RefusedError(Exception):
    """A code that none of this package's errors stands for."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_count(count: int) -> None:
    """Check a number of partitions. For :func:`outcome_of`."""
    try:
        check_partition_count(count)
    except UsageError as error:
        raise _RefusedError(ErrorCode.INVALID_PARTITIONS, str(error)) from None


def _check_can_grow(topic: str) -> None:
    try:
        check_can_grow(topic)
    except UsageError as error:
        raise _RefusedError(ErrorCode.INVALID_PARTITIONS, str(error)) from None


def check_more(topic: str, now: int, wanted: MorePartitions) -> int:
    """How many partitions more these are than there are ``now``. For :func:`outcome_of`."""
    check_count(wanted.partition_count)
    _check_can_grow(topic)
    if wanted.partition_count <= now:
        raise _RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic!r} has {now} partitions; the new number {wanted.partition_count} must be larger",
        )
    more = wanted.partition_count - now
    if wanted.assignments is not None and len(wanted.assignments) != more:
        raise _RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {topic!r} gets {more} more partitions, and the request has assignments for "
            f"{len(wanted.assignments)}",
        )
    return more


def check_assignments(topic: str, assignments: Sequence[Sequence[int]], living: Collection[int]) -> None:
    """Check where new partitions of a topic are to be in a cluster of these nodes. For :func:`outcome_of`."""
    for each in assignments:
        missing = [node_id for node_id in each if node_id not in living]
        if missing:
            why = f"no living node has the number {missing[0]}"
        elif not each or len(set(each)) != len(each):
            why = "they must be some nodes, each once"
        else:
            continue
        raise _RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"a partition of topic {topic!r} cannot have the replicas {list(each)}: {why}",
        )


def create_topics(directory: LogDirectory, request: CreateTopicsRequest) -> TopicsResult:
    """Create topics, each durably or not at all. With ``validate_only`` nothing changes."""
    wanted: dict[str, CreatedTopic] = {}

    def check(topic: NewTopic) -> None:
        check_new_topic_name(topic.name)
        settings = {**directory.config.topic.to_properties(), **topic.settings}
        config = TopicConfig.from_properties(settings)
        check_count(topic.partition_count)
        _check_alone(topic)
        if request.validate_only:
            _check_new(directory, topic.name)
        wanted[topic.name] = CreatedTopic(
            name=topic.name, partition_count=topic.partition_count, config=config
        )

    refused = {topic.name: outcome_of(topic.name, partial(check, topic)) for topic in request.topics}
    made = {} if request.validate_only else _made(directory, wanted)

    def outcome(topic: CreatedTopic) -> TopicOutcome:
        entry = made.get(topic.name)
        if isinstance(entry, LogstoreError):
            raise entry
        return TopicOutcome(
            topic.name,
            ErrorCode.NONE,
            topic_id=None if entry is None else entry.topic_id,
            partition_count=topic.partition_count,
            settings=settings_of(
                topic.config if entry is None else entry.config, for_new_topics=directory.config.topic
            ),
        )

    outcomes = {name: outcome_of(name, partial(outcome, topic)) for name, topic in wanted.items()}
    return TopicsResult(tuple(outcomes.get(each.name, refused[each.name]) for each in request.topics))


def _made(
    directory: LogDirectory, wanted: Mapping[str, CreatedTopic]
) -> Mapping[str, TopicEntry | LogstoreError]:
    try:
        return directory.create_topics(list(wanted.values()))
    except LogstoreError as error:  # it was closed
        return dict.fromkeys(wanted, error)


def _check_alone(topic: NewTopic) -> None:
    if topic.replication_factor not in (-1, 1):
        raise _RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {topic.name!r} cannot have {topic.replication_factor} replicas: there is one node",
        )
    _check_assignments(topic.assignments)


def _check_assignments(assignments: Sequence[tuple[int, ...]] | None) -> None:
    if any(each != (NODE_ID,) for each in assignments or ()):
        raise _RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"each partition is on node {NODE_ID}, and on no other"
        )


def _check_new(directory: LogDirectory, name: str) -> None:
    """
    Raises:
        TopicExistsError: the topic exists, or one whose name differs only in ``.`` and ``_``.
    """
    for each in directory.topic_names():
        if has_name_clash(each, name):
            raise TopicExistsError(f"topic {each!r} exists")


def delete_topics(directory: LogDirectory, request: DeleteTopicsRequest) -> TopicsResult:
    """Delete topics with all their records."""
    return TopicsResult(
        tuple(outcome_of(name, partial(directory.delete_topic, name)) for name in request.names)
    )


def create_partitions(directory: LogDirectory, request: CreatePartitionsRequest) -> TopicsResult:
    """Give topics more partitions."""

    def add(topic: MorePartitions) -> None:
        _check_growth(directory.topic(topic.name), topic)
        directory.check_grows_here(topic.name)
        if not request.validate_only:
            directory.add_partitions(topic.name, topic.partition_count)

    return TopicsResult(tuple(outcome_of(topic.name, partial(add, topic)) for topic in request.topics))


def _check_growth(topic: TopicEntry, wanted: MorePartitions) -> None:
    """
    Raises:
        _RefusedError: the new number is no larger, or too large; or the new partitions cannot be where the
            request wants them.
    """
    check_more(topic.name, topic.partition_count, wanted)
    _check_assignments(wanted.assignments)


def alter_configs(directory: LogDirectory, request: AlterConfigsRequest) -> TopicsResult:
    """Change settings of topics."""

    defaults = directory.config.topic.to_properties()

    def change(wanted: ConfigChange) -> None:
        now = directory.config_of(wanted.name)
        config = TopicConfig.from_properties(changed_settings(defaults, now, wanted))
        if not request.validate_only:
            directory.configure(wanted.name, config)

    return TopicsResult(tuple(outcome_of(each.name, partial(change, each)) for each in request.changes))


def changed_settings(defaults: Mapping[str, str], now: TopicConfig, wanted: ConfigChange) -> dict[str, str]:
    """A topic's settings after a change; not checked. What there is not can be deleted, as with Kafka: its
    tools delete all that has its default somewhere else, or that they may have given.

    Raises:
        InvalidConfigError: a setting is not a list.
    """
    settings = dict(defaults) if wanted.replaces else now.to_properties()
    for key, value in wanted.settings.items():
        if value is not None:
            settings[key] = value
        elif key in defaults:
            settings[key] = defaults[key]
        else:
            settings.pop(key, None)
    _change_lists(settings, now, wanted)
    return settings


def _change_lists(settings: dict[str, str], now: TopicConfig, wanted: ConfigChange) -> None:
    """
    Raises:
        InvalidConfigError: a setting is not a list.
    """
    for changes, verb in ((wanted.appended, "appended to"), (wanted.subtracted, "subtracted from")):
        for key, value in changes.items():
            if key not in TopicConfig.setting_names():
                settings[key] = value  # refused by its name
                continue
            if key not in LISTS:
                raise InvalidConfigError(f"{key} is not a list: nothing can be {verb} it. Set it instead")
            held = _items(getattr(now, key.replace(".", "_")))
            given = _items(value)
            if changes is wanted.appended:
                held += [each for each in given if each not in held]
            else:
                held = [each for each in held if each not in given]
            settings[key] = ",".join(held)


def _items(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def outcome_of(name: str, action: Callable[[], TopicOutcome | object]) -> TopicOutcome:
    """What became of a topic: what the action returns, or why it failed."""
    try:
        outcome = action()
    except LogstoreError as error:
        return TopicOutcome(name, code_of(error), str(error))
    except _RefusedError as error:
        return TopicOutcome(name, error.code, str(error))
    return outcome if isinstance(outcome, TopicOutcome) else TopicOutcome(name, ErrorCode.NONE)


def delete_records(directory: LogDirectory, request: DeleteRecordsRequest) -> DeleteRecordsResult:
    """Delete the records below an offset, durably. Of several partitions at a time: most of it is waiting for
    the disk, and what the directory keeps of them is then stored together."""
    deleted: dict[int, DeletedRecords] = {}

    def delete(wanted: tuple[int, DeleteRecordsPartition]) -> None:
        number, partition = wanted
        deleted[number] = _delete_records(directory, partition)

    take_turns(delete, enumerate(request.partitions), at_a_time=flushed_at_a_time(directory.files))
    return DeleteRecordsResult(tuple(deleted[number] for number in range(len(request.partitions))))


def _delete_records(directory: LogDirectory, wanted: DeleteRecordsPartition) -> DeletedRecords:
    try:
        log = directory.log(wanted.partition)
        start = log.delete_before(log.high_watermark if wanted.offset == -1 else wanted.offset)
    except LogstoreError as error:
        code = code_of(error)
        if code is ErrorCode.INVALID_REQUEST:  # the topic's settings say what is deleted
            code = ErrorCode.POLICY_VIOLATION
        return DeletedRecords(wanted.partition, code, message=str(error))
    return DeletedRecords(wanted.partition, ErrorCode.NONE, start)
