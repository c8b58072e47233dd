"""Requests that look something up: offsets, leader epochs, topics and their settings."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.records.outgrowing import outgrow
from logstore.broker.requests import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NO_EPOCH,
    DescribeConfigsRequest,
    DescribeConfigsResult,
    DescribedConfig,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
    EpochEnd,
    EpochPartition,
    ListedOffset,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResult,
    LogDirectorySize,
    MetadataRequest,
    MetadataResult,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResult,
    PartitionMetadata,
    Setting,
    TopicMetadata,
)
from logstore.broker.settings import settings_of
from logstore.errors import LogstoreError, UnknownLeaderEpochError
from logstore.logdir.catalogue import TopicEntry
from logstore.logdir.directory import LogDirectory
from logstore.model import Isolation, OffsetAndTimestamp, TopicPartition
from logstore.partition.log import Log
from logstore.partition.reading.readable import offsets_to_read

NODE_ID: Final = 0
"""Of the one node that a directory is."""

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def list_offsets(directory: LogDirectory, request: ListOffsetsRequest) -> ListOffsetsResult:
    """The start, the end, or the first record at or after a time, of each partition."""
    return ListOffsetsResult(
        tuple(_list_offset(directory, each, request.isolation) for each in request.partitions)
    )


def _list_offset(directory: LogDirectory, wanted: ListOffsetsPartition, isolation: Isolation) -> ListedOffset:
    partition = wanted.partition
    try:
        log = directory.log(partition)
        _check_epoch(log, wanted.leader_epoch)
        if wanted.timestamp_ms == EARLIEST:
            start = log.log_start_offset
            epoch = log.writer.core.epochs.epoch_for_offset(start)
            return ListedOffset(
                partition, ErrorCode.NONE, offset=start, leader_epoch=NO_EPOCH if epoch is None else epoch
            )
        if wanted.timestamp_ms == LATEST:
            end = offsets_to_read(log, isolation).stop  # a reader that goes on to there arrives
            return ListedOffset(partition, ErrorCode.NONE, offset=end, leader_epoch=log.leader_epoch)
        found = (
            log.find_max_timestamp()
            if wanted.timestamp_ms == MAX_TIMESTAMP
            else log.find_timestamp(wanted.timestamp_ms)
        )
        return _listed(partition, found, log.readable_offsets(isolation).stop)
    except LogstoreError as error:
        return ListedOffset(partition, code_of(error), message=str(error))


def _listed(partition: TopicPartition, found: OffsetAndTimestamp | None, end: int) -> ListedOffset:
    if found is None or found.offset >= end:
        return ListedOffset(partition, ErrorCode.NONE)
    epoch = NO_EPOCH if found.leader_epoch is None else found.leader_epoch
    return ListedOffset(partition, ErrorCode.NONE, found.timestamp_ms, found.offset, epoch)


def _check_epoch(log: Log, expected: int) -> None:
    """
    Raises:
        LeaderFencedError, UnknownLeaderEpochError: the log is in another epoch.
    """
    if expected != NO_EPOCH:
        try:
            log.writer.core.check_leader_epoch(expected)
        except UnknownLeaderEpochError:
            outgrow(log, expected)  # the caller is let in when it asks again
            raise


def offsets_for_leader_epoch(
    directory: LogDirectory, request: OffsetsForLeaderEpochRequest
) -> OffsetsForLeaderEpochResult:
    """Where leader epochs ended (KIP-101, KIP-320)."""
    return OffsetsForLeaderEpochResult(tuple(_epoch_end(directory, each) for each in request.partitions))


def _epoch_end(directory: LogDirectory, wanted: EpochPartition) -> EpochEnd:
    try:
        log = directory.log(wanted.partition)
        _check_epoch(log, wanted.current_leader_epoch)
        if wanted.current_leader_epoch != NO_EPOCH:  # else it is no client that reads on
            outgrow(log, wanted.epoch)
        epoch, end_offset = log.end_offset_for_epoch(wanted.epoch)
    except LogstoreError as error:
        return EpochEnd(wanted.partition, code_of(error), message=str(error))
    return EpochEnd(wanted.partition, ErrorCode.NONE, epoch, end_offset)


def metadata(directory: LogDirectory, request: MetadataRequest) -> MetadataResult:
    """The topics that are asked for, with the partitions that the directory holds."""
    names = directory.topic_names() if request.topics is None else request.topics
    cluster_id = directory.identity.cluster_id or ""
    return MetadataResult(cluster_id, tuple(_topic(directory, name) for name in names))


def _topic(directory: LogDirectory, name: str) -> TopicMetadata:
    try:
        entry = directory.topic(name)
    except LogstoreError as error:
        return TopicMetadata(name, code_of(error), message=str(error))
    partitions = tuple(_partition(directory, entry, number) for number in range(entry.partition_count))
    return TopicMetadata(name, ErrorCode.NONE, entry.topic_id, name in INTERNAL_TOPICS, partitions)


def _partition(directory: LogDirectory, entry: TopicEntry, number: int) -> PartitionMetadata:
    if not entry.holds(number):
        return PartitionMetadata(number, ErrorCode.LEADER_NOT_AVAILABLE, -1, NO_EPOCH, (), ())
    try:
        epoch = directory.log(TopicPartition(entry.name, number)).leader_epoch
    except LogstoreError as error:
        return PartitionMetadata(number, code_of(error), NODE_ID, NO_EPOCH, (NODE_ID,), ())
    return PartitionMetadata(number, ErrorCode.NONE, NODE_ID, epoch, (NODE_ID,), (NODE_ID,))


def describe_configs(directory: LogDirectory, request: DescribeConfigsRequest) -> DescribeConfigsResult:
    """All settings of each topic, and of the store, in Kafka's spelling."""
    explains = request.with_documentation
    store: tuple[Setting, ...] = ()
    if request.with_store:
        store = settings_of(directory.config, with_documentation=explains)
    return DescribeConfigsResult(
        tuple(_describe(directory, name, with_documentation=explains) for name in request.names), store
    )


def _describe(directory: LogDirectory, name: str, *, with_documentation: bool) -> DescribedConfig:
    try:
        config = directory.config_of(name)
    except LogstoreError as error:
        return DescribedConfig(name, code_of(error), message=str(error))
    new = directory.config.topic
    settings = settings_of(config, with_documentation=with_documentation, for_new_topics=new)
    return DescribedConfig(name, ErrorCode.NONE, settings)


def describe_log_dirs(directory: LogDirectory, request: DescribeLogDirsRequest) -> DescribeLogDirsResult:
    """The sizes of the partitions that are open, and the room on the volume."""
    try:
        directory.check_open()
    except LogstoreError as error:
        return DescribeLogDirsResult(code_of(error), message=str(error))
    sizes = {log.partition: log.written_bytes for log in directory.logs() if not log.is_closed}
    if request.partitions is not None:
        sizes = {each: sizes[each] for each in request.partitions if each in sizes}
    try:
        total_bytes, usable_bytes = directory.context.files.space(directory.path)
    except LogstoreError as error:
        return DescribeLogDirsResult(
            ErrorCode.NONE, (LogDirectorySize(directory.path, code_of(error), sizes, message=str(error)),)
        )
    size = LogDirectorySize(directory.path, ErrorCode.NONE, sizes, total_bytes, usable_bytes)
    return DescribeLogDirsResult(ErrorCode.NONE, (size,))
