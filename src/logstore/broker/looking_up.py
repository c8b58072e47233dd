"""Requests that look something up: offsets, leader epochs, topics and their settings."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.requests import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NO_EPOCH,
    DescribeConfigsRequest,
    DescribeConfigsResult,
    DescribedConfig,
    EpochEnd,
    EpochPartition,
    ListedOffset,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResult,
    MetadataRequest,
    MetadataResult,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResult,
    PartitionMetadata,
    Setting,
    TopicMetadata,
)
from logstore.config import TopicConfig
from logstore.errors import LogstoreError
from logstore.logdir.catalogue import TopicEntry
from logstore.logdir.directory import LogDirectory
from logstore.model import Isolation, OffsetAndTimestamp, TopicPartition
from logstore.partition.log import Log

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
            return ListedOffset(partition, ErrorCode.NONE, offset=log.log_start_offset)
        if wanted.timestamp_ms == LATEST:
            end = log.readable_offsets(isolation).stop
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
        log.writer.core.check_leader_epoch(expected)


def offsets_for_leader_epoch(
    directory: LogDirectory, request: OffsetsForLeaderEpochRequest
) -> OffsetsForLeaderEpochResult:
    """Where leader epochs ended (KIP-101, KIP-320)."""
    return OffsetsForLeaderEpochResult(tuple(_epoch_end(directory, each) for each in request.partitions))


def _epoch_end(directory: LogDirectory, wanted: EpochPartition) -> EpochEnd:
    try:
        log = directory.log(wanted.partition)
        _check_epoch(log, wanted.current_leader_epoch)
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
    """All settings of each topic, in Kafka's spelling."""
    return DescribeConfigsResult(tuple(_describe(directory, name) for name in request.names))


def _describe(directory: LogDirectory, name: str) -> DescribedConfig:
    try:
        config = directory.config_of(name)
    except LogstoreError as error:
        return DescribedConfig(name, code_of(error), message=str(error))
    changed = config.to_properties()
    settings = []
    for field in fields(TopicConfig):
        key = field.name.replace("_", ".")
        value = getattr(config, field.name)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        settings.append(Setting(key, text, key not in changed))
    return DescribedConfig(name, ErrorCode.NONE, tuple(settings))
