"""Requests on what partitions know of producers: who they are, and the end of their transactions."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.pending import Answered, Pending, Promise
from logstore.broker.records.durable import when_all_durable
from logstore.broker.transactions.requests import (
    DescribedProducers,
    DescribeProducersResult,
    MarkedPartition,
    TransactionMarker,
    WriteMarkersResult,
)
from logstore.errors import LeaderFencedError, LogstoreError
from logstore.logdir.directory import LogDirectory
from logstore.model import Role, TopicPartition
from logstore.partition.log import Log


def describe_producers(
    directory: LogDirectory, partitions: tuple[TopicPartition, ...]
) -> DescribeProducersResult:
    """The producers that each partition remembers."""
    return DescribeProducersResult(tuple(_describe(directory, each) for each in partitions))


def _describe(directory: LogDirectory, partition: TopicPartition) -> DescribedProducers:
    try:
        return DescribedProducers(partition, ErrorCode.NONE, directory.log(partition).active_producers())
    except LogstoreError as error:
        return DescribedProducers(partition, code_of(error), message=str(error))


def write_markers(
    directory: LogDirectory, markers: tuple[TransactionMarker, ...]
) -> Pending[WriteMarkersResult]:
    """Append the markers. A crash before the answer may leave some of them: the request may be repeated, for
    a second marker changes nothing."""
    outcomes: list[MarkedPartition] = []
    waits: list[tuple[Log, int]] = []
    for marker in markers:
        for partition in marker.partitions:
            outcomes.append(_append(directory, marker, partition, waits))
    if not waits:
        return Answered(WriteMarkersResult(tuple(outcomes)))
    promise: Promise[WriteMarkersResult] = Promise()

    def go_on(code: ErrorCode) -> None:
        promise.complete(
            WriteMarkersResult(
                tuple(
                    each._replace(error=code) if each.error is ErrorCode.NONE else each for each in outcomes
                )
            )
        )

    when_all_durable(waits, go_on)
    return promise


def _append(
    directory: LogDirectory,
    marker: TransactionMarker,
    partition: TopicPartition,
    waits: list[tuple[Log, int]],
) -> MarkedPartition:
    try:
        log = directory.log(partition)
        if log.role is Role.FOLLOWER:
            why = directory.context.home.why_copied_only
            return MarkedPartition(marker.producer_id, partition, ErrorCode.POLICY_VIOLATION, why)
        result = log.append_end_marker(
            marker.producer_id,
            marker.producer_epoch,
            committed=marker.committed,
            coordinator_epoch=max(marker.coordinator_epoch, 0),
        )
    except LeaderFencedError as error:  # a marker's epoch is its coordinator's
        code = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return MarkedPartition(marker.producer_id, partition, code, str(error))
    except LogstoreError as error:
        return MarkedPartition(marker.producer_id, partition, code_of(error), str(error))
    if log.config.acks_all_durable:
        waits.append((log, result.last_offset + 1))
    return MarkedPartition(marker.producer_id, partition, ErrorCode.NONE)
