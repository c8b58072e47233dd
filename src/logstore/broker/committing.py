"""Requests about the offsets that groups have committed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from logstore.arguments import did_you_mean, shown
from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.topics import Topics
from logstore.broker.failures import code_of
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.broker.requests import (
    OffsetCommitRequest,
    OffsetCommitResult,
    OffsetDeleteRequest,
    OffsetDeleteResult,
    OffsetFetchRequest,
    OffsetFetchResult,
)
from logstore.broker.transactions.requests import TransactionalProducer
from logstore.errors import LogstoreError
from logstore.format.messages.group_records import OffsetCommitValue
from logstore.format.names import OFFSETS_TOPIC
from logstore.model import OffsetAndMetadata, ProducerIdentity, TopicPartition
from logstore.warning import warn

IS_OF_ANOTHER: Final = "the topic was deleted and made again, and this is an offset of the old one"
"""Why an offset is not committed."""


def offset_commit(
    topics: Topics, committed: CommittedOffsets, request: OffsetCommitRequest
) -> OffsetCommitResult:
    """Commit the offsets of the partitions that there are, in one batch."""
    errors = {each: _check(topics, committed, each, request) for each in request.offsets}
    good = {each: value for each, value in request.offsets.items() if errors[each] is ErrorCode.NONE}
    if good:
        try:
            committed.commit(request.group, good, producer=_identity(request.transaction))
        except LogstoreError as error:
            code = code_of(error)
            return OffsetCommitResult({**errors, **dict.fromkeys(good, code)}, str(error))
    return OffsetCommitResult(errors, _why(topics, committed, request, errors))


def _why(
    topics: Topics,
    committed: CommittedOffsets,
    request: OffsetCommitRequest,
    errors: dict[TopicPartition, ErrorCode],
) -> str | None:
    """The first error in words."""
    wrong = next((each for each, code in errors.items() if code is not ErrorCode.NONE), None)
    if wrong is None:
        return None
    try:
        committed.check_metadata(wrong, request.offsets[wrong].metadata)
    except LogstoreError as error:
        return str(error)
    topic = topics.get(wrong.topic)
    if topic is None:
        return f"there is no topic {shown(wrong.topic)}{did_you_mean(wrong.topic, topics)}"
    if errors[wrong] is ErrorCode.UNKNOWN_TOPIC_ID:
        return IS_OF_ANOTHER
    return f"topic {wrong.topic!r} has {topic.partition_count} partitions, from 0 on"


def _identity(producer: TransactionalProducer | None) -> ProducerIdentity | None:
    """As whose the batch is written. A coordinator's batches have no sequence."""
    if producer is None:
        return None
    return ProducerIdentity(producer.producer_id, producer.producer_epoch, -1, transactional=True)


def _check(
    topics: Topics, committed: CommittedOffsets, partition: TopicPartition, request: OffsetCommitRequest
) -> ErrorCode:
    if committed.is_metadata_too_large(request.offsets[partition].metadata):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    topic, read_id = topics.get(partition.topic), request.topic_ids.get(partition)
    if topic is not None and read_id is not None and topic.topic_id != read_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return _find(topics, partition)


def _find(topics: Topics, partition: TopicPartition) -> ErrorCode:
    """Whether there is such a partition, here or elsewhere."""
    topic = topics.get(partition.topic)
    is_there = topic is not None and 0 <= partition.partition < topic.partition_count
    return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def offset_delete(
    topics: Topics,
    committed: CommittedOffsets,
    request: OffsetDeleteRequest,
    refused: Collection[str],
) -> OffsetDeleteResult:
    """Delete the group's offsets, but for the topics that are refused. A partition that is not there, as of
    a topic that is gone, is an error only if the group has no offset of it."""
    try:
        known = committed.fetch(request.group, request.partitions)
        errors = {
            each: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if each.topic in refused
            else ErrorCode.NONE
            if each in known
            else _find(topics, each)
            for each in request.partitions
        }
        committed.delete(request.group, [each for each, code in errors.items() if code is ErrorCode.NONE])
    except LogstoreError as error:
        return OffsetDeleteResult(code_of(error), message=str(error))
    return OffsetDeleteResult(ErrorCode.NONE, errors)


def offset_fetch(committed: CommittedOffsets, request: OffsetFetchRequest) -> OffsetFetchResult:
    """What the group has committed."""
    try:
        found = committed.fetch(request.group, request.partitions)
        unstable = committed.unstable(request.group) if request.require_stable else frozenset()
    except LogstoreError as error:
        return OffsetFetchResult(code_of(error), message=str(error))
    offsets = {each: as_committed(value) for each, value in found.items() if each not in unstable}
    return OffsetFetchResult(ErrorCode.NONE, offsets, unstable)


def as_committed(value: OffsetCommitValue) -> OffsetAndMetadata:
    """What was given to commit it."""
    epoch = value.leader_epoch
    return OffsetAndMetadata(value.offset, value.metadata, epoch if epoch >= 0 else None)


def forget_topics(committed: CommittedOffsets, deleted: Iterable[str]) -> None:
    """The offsets that groups have committed for a topic go with it."""
    for name in deleted:
        if name == OFFSETS_TOPIC:
            continue
        try:
            committed.forget_topic(name)
        except LogstoreError as error:  # the topic is deleted all the same
            warn("topic %r was deleted, but not its committed offsets: %s", name, error)
