"""Requests about the offsets that groups have committed."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.broker.requests import (
    OffsetCommitRequest,
    OffsetCommitResult,
    OffsetFetchRequest,
    OffsetFetchResult,
)
from logstore.broker.transactions.requests import TransactionalProducer
from logstore.errors import LogstoreError, UsageError
from logstore.format.messages.group_records import OffsetCommitValue
from logstore.logdir.directory import LogDirectory
from logstore.model import OffsetAndMetadata, ProducerIdentity, TopicPartition


def offset_commit(
    directory: LogDirectory, committed: CommittedOffsets, request: OffsetCommitRequest
) -> OffsetCommitResult:
    """Commit the offsets of the partitions that there are, in one batch."""
    errors = {}
    message = None
    for each, value in request.offsets.items():
        errors[each], reason = _check(directory, committed, each, value)
        message = message or reason
    good = {each: value for each, value in request.offsets.items() if errors[each] is ErrorCode.NONE}
    if good:
        try:
            committed.commit(request.group, good, producer=_identity(request.transaction))
        except LogstoreError as error:
            code = code_of(error)
            return OffsetCommitResult({**errors, **dict.fromkeys(good, code)}, str(error))
    return OffsetCommitResult(errors, message)


def _identity(producer: TransactionalProducer | None) -> ProducerIdentity | None:
    """As whose the batch is written. A coordinator's batches have no sequence."""
    if producer is None:
        return None
    return ProducerIdentity(producer.producer_id, producer.producer_epoch, -1, transactional=True)


def _check(
    directory: LogDirectory, committed: CommittedOffsets, partition: TopicPartition, value: OffsetAndMetadata
) -> tuple[ErrorCode, str | None]:
    """Why the offset of a partition cannot be committed: the code, and in words."""
    try:
        committed.check_metadata(partition, value.metadata)
    except UsageError as error:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE, str(error)
    try:
        count = directory.topic(partition.topic).partition_count
    except LogstoreError as error:
        return code_of(error), str(error)
    if 0 <= partition.partition < count:
        return ErrorCode.NONE, None
    return (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {partition.topic!r} has {count} partitions, from 0 on",
    )


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
