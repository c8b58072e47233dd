"""Requests with which administrators look into partitions, and mend them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import DescribeLogDirsRequest, DescribeLogDirsResult, LogDirectorySize
from logstore.broker.transactions.requests import (
    DescribedProducers,
    DescribeProducersResult,
    MarkedPartition,
    TransactionMarker,
    WriteMarkersResult,
)
from logstore.model import ActiveProducer, TopicPartition
from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster import describe_log_dirs
from logstore.wire.messages.transactions import describe_producers, write_txn_markers
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.connections.nodes import Lane
from logstore.wire.remote.translate.translation import Answers, Translation, by_topic, partition_of

_LEFT_OUT: Final = "the broker's answer says nothing of it"
_NO_OFFSET: Final = -1

# DescribeProducers


class OfPartition(NamedTuple):
    """A partition that is asked about."""

    partition: TopicPartition


class DescribeProducers(NamedTuple):
    """A request for the producers of partitions, that can be divided among leaders."""

    partitions: tuple[OfPartition, ...]


def _build_producers(request: DescribeProducers, version: int) -> describe_producers.DescribeProducersRequest:
    return describe_producers.DescribeProducersRequest(
        tuple(
            describe_producers.Topic(name, tuple(each.partition.partition for each in items))
            for name, items in by_topic(request.partitions, partition_of).items()
        )
    )


def _parse_producers(
    request: DescribeProducers, response: describe_producers.DescribeProducersResponse
) -> DescribeProducersResult:
    answers = Answers(response.topics)
    return DescribeProducersResult(
        tuple(_described(each.partition, answers.take(each.partition)) for each in request.partitions)
    )


def _described(
    partition: TopicPartition, answer: describe_producers.PartitionResult | None
) -> DescribedProducers:
    if answer is None:
        return DescribedProducers(partition, ErrorCode.UNKNOWN_SERVER_ERROR, message=_LEFT_OUT)
    return DescribedProducers(
        partition,
        code_of_number(answer.error_code),
        tuple(
            ActiveProducer(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                last_sequence=each.last_sequence,
                last_timestamp_ms=each.last_timestamp_ms,
                coordinator_epoch=each.coordinator_epoch,
                transaction_first_offset=(
                    None if each.current_txn_start_offset == _NO_OFFSET else each.current_txn_start_offset
                ),
            )
            for each in answer.producers
        ),
        why_of_number(answer.error_code, answer.error_message),
    )


DESCRIBE_PRODUCERS: Final = Translation(
    key=ApiKey.DESCRIBE_PRODUCERS,
    build=_build_producers,
    parse=_parse_producers,
    refuse=lambda request, code, message: DescribeProducersResult(
        tuple(DescribedProducers(each.partition, code, message=message) for each in request.partitions)
    ),
    judge=lambda _: ErrorCode.NONE,
)

# WriteTxnMarkers


class MarkOne(NamedTuple):
    """A marker for one partition."""

    partition: TopicPartition
    marker: TransactionMarker


class WriteMarkers(NamedTuple):
    """A request for markers, that can be divided among leaders."""

    partitions: tuple[MarkOne, ...]


def _build_markers(request: WriteMarkers, version: int) -> write_txn_markers.WriteTxnMarkersRequest:
    return write_txn_markers.WriteTxnMarkersRequest(
        tuple(
            write_txn_markers.Marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.committed,
                tuple(
                    write_txn_markers.Topic(name, tuple(each.partition.partition for each in of_topic))
                    for name, of_topic in by_topic(items, partition_of).items()
                ),
                marker.coordinator_epoch,
            )
            for marker, items in _by_marker(request.partitions)
        )
    )


def _by_marker(items: Sequence[MarkOne]) -> list[tuple[TransactionMarker, list[MarkOne]]]:
    found: list[tuple[TransactionMarker, list[MarkOne]]] = []
    for item in items:
        if not found or found[-1][0] is not item.marker:
            found.append((item.marker, []))
        found[-1][1].append(item)
    return found


def _parse_markers(
    request: WriteMarkers, response: write_txn_markers.WriteTxnMarkersResponse
) -> WriteMarkersResult:
    results = []
    answered = iter(response.markers)
    for marker, items in _by_marker(request.partitions):
        of_marker = next(answered, None)
        answers = Answers(() if of_marker is None else of_marker.topics)
        for item in items:
            answer = answers.take(item.partition)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else code_of_number(answer.error_code)
            results.append(MarkedPartition(marker.producer_id, item.partition, code))
    return WriteMarkersResult(tuple(results))


WRITE_MARKERS: Final = Translation(
    key=ApiKey.WRITE_TXN_MARKERS,
    build=_build_markers,
    parse=_parse_markers,
    refuse=lambda request, code, message: WriteMarkersResult(
        tuple(
            MarkedPartition(each.marker.producer_id, each.partition, code, message)
            for each in request.partitions
        )
    ),
    judge=lambda _: ErrorCode.NONE,
    lane=Lane.WAITS,
)

# DescribeLogDirs


def _build_sizes(request: DescribeLogDirsRequest, version: int) -> describe_log_dirs.DescribeLogDirsRequest:
    if request.partitions is None:
        return describe_log_dirs.DescribeLogDirsRequest(None)
    return describe_log_dirs.DescribeLogDirsRequest(
        tuple(
            describe_log_dirs.TopicWanted(name, tuple(each.partition for each in items))
            for name, items in by_topic(request.partitions, lambda each: each).items()
        )
    )


def _parse_sizes(
    request: DescribeLogDirsRequest, response: describe_log_dirs.DescribeLogDirsResponse
) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        code_of_number(response.error_code),
        tuple(
            LogDirectorySize(
                each.path,
                code_of_number(each.error_code),
                {
                    TopicPartition(topic.name, part.partition): part.size_bytes
                    for topic in each.topics
                    for part in topic.partitions
                },
                each.total_bytes,
                each.usable_bytes,
                why_of_number(each.error_code),
            )
            for each in response.directories
        ),
        why_of_number(response.error_code),
    )


DESCRIBE_LOG_DIRS: Final = Translation(
    key=ApiKey.DESCRIBE_LOG_DIRS,
    build=_build_sizes,
    parse=_parse_sizes,
    refuse=lambda request, code, message: DescribeLogDirsResult(code, message=message),
)


def joined_sizes(found: Sequence[DescribeLogDirsResult]) -> DescribeLogDirsResult:
    """The directories of all brokers; the first error, if one could not be asked."""
    failed = next((each for each in found if each.error is not ErrorCode.NONE), None)
    directories = tuple(each for part in found for each in part.directories)
    if failed is not None:
        return failed._replace(directories=directories)
    return DescribeLogDirsResult(ErrorCode.NONE, directories)
