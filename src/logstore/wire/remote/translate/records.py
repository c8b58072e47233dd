"""Batches, and the offsets at which they are: Produce, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from typing import Any, Final

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import (
    DeletedRecords,
    DeleteRecordsRequest,
    DeleteRecordsResult,
    EpochEnd,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResult,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResult,
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
)
from logstore.format.header import walk_whole_batches
from logstore.model import Bytes, Isolation
from logstore.wire.apis import ApiKey
from logstore.wire.messages.records import (
    delete_records,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.connections.nodes import Lane
from logstore.wire.remote.translate.translation import Answers, Translation, by_topic, partition_of

LEFT_OUT: Final = "the broker has left the partition out of its answer"
READ_COMMITTED: Final = 1
_CONSUMER: Final = -1
"""The replica id of one who is no follower."""
_DELETE_TIMEOUT_MS: Final = 30_000


# Produce

_BY_NAME: Final = 11
"""Produce: later versions name topics by ids (13), or take partitions into transactions unasked (12), which
the seam asks for by itself."""


def _build_produce(request: ProduceRequest, version: int) -> produce.ProduceRequest:
    topics = tuple(
        produce.Topic(
            name,
            partitions=tuple(
                produce.Partition(each.partition.partition, _readable(each.data)) for each in items
            ),
        )
        for name, items in by_topic(request.partitions, partition_of).items()
    )
    return produce.ProduceRequest(request.transactional_id, request.acks, request.timeout_ms, topics)


def _readable(data: Bytes) -> bytes | memoryview:
    """The same bytes, not copied."""
    return memoryview(data) if isinstance(data, bytearray) else data


def _parse_produce(request: ProduceRequest, response: produce.ProduceResponse | None) -> ProduceResult:
    if response is None:  # it was handed over, and no more was wanted
        handed = (ProducedPartition(each.partition, ErrorCode.NONE) for each in request.partitions)
        return ProduceResult(tuple(handed))
    answers = Answers(response.topics)
    return ProduceResult(tuple(_produced(each, answers.take(each.partition)) for each in request.partitions))


def _produced(sent: ProducePartition, answer: produce.PartitionResult | None) -> ProducedPartition:
    if answer is None:
        return ProducedPartition(sent.partition, ErrorCode.UNKNOWN_SERVER_ERROR, message=LEFT_OUT)
    message = answer.error_message
    refused = answer.record_errors if answer.error_code else ()
    if refused and refused[0].error_message != message:
        message = f"record {refused[0].batch_index}: {refused[0].error_message or message}"
    return ProducedPartition(
        sent.partition,
        code_of_number(answer.error_code),
        answer.base_offset,
        answer.log_append_time_ms,
        answer.log_start_offset,
        why_of_number(answer.error_code, message),
        tuple([each.batch_index for each in refused]),
    )


PRODUCE: Final = Translation(
    key=ApiKey.PRODUCE,
    build=_build_produce,
    parse=_parse_produce,
    refuse=lambda request, code, message: ProduceResult(
        tuple(ProducedPartition(each.partition, code, message=message) for each in request.partitions)
    ),
    judge=lambda _: ErrorCode.NONE,
    last=_BY_NAME,
    lane=Lane.WRITES,
    may_repeat=False,
    wait_ms=lambda request: request.timeout_ms,
)


# Fetch: the batches in what comes. Sessions have a room of their own, ``fetches``.


def whole_batches(data: Bytes, offset: int) -> tuple[Bytes, int, int]:
    """The batches that are whole, the offset after them, and the leader epoch of the last one; ``offset`` and
    -1, if there are none. A broker cuts what it sends at a number of bytes. What is in a batch is checked by
    those who decode it."""
    found = walk_whole_batches(data)
    return data[: found.size_bytes], max(offset, found.next_offset), found.last_epoch


# ListOffsets


def _build_list_offsets(request: ListOffsetsRequest, version: int) -> list_offsets.ListOffsetsRequest:
    topics = tuple(
        list_offsets.Topic(
            name,
            tuple(
                list_offsets.Partition(each.partition.partition, each.leader_epoch, each.timestamp_ms)
                for each in items
            ),
        )
        for name, items in by_topic(request.partitions, partition_of).items()
    )
    level = READ_COMMITTED if request.isolation is Isolation.COMMITTED else 0
    return list_offsets.ListOffsetsRequest(_CONSUMER, level, topics)


def _parse_list_offsets(
    request: ListOffsetsRequest, response: list_offsets.ListOffsetsResponse
) -> ListOffsetsResult:
    answers = Answers(response.topics)
    found = []
    for each in request.partitions:
        answer = answers.take(each.partition)
        found.append(
            ListedOffset(each.partition, ErrorCode.UNKNOWN_SERVER_ERROR, message=LEFT_OUT)
            if answer is None
            else ListedOffset(
                each.partition,
                code_of_number(answer.error_code),
                answer.timestamp_ms,
                answer.offset,
                answer.leader_epoch,
                why_of_number(answer.error_code),
            )
        )
    return ListOffsetsResult(tuple(found))


LIST_OFFSETS: Final = Translation(
    key=ApiKey.LIST_OFFSETS,
    build=_build_list_offsets,
    parse=_parse_list_offsets,
    refuse=lambda request, code, message: ListOffsetsResult(
        tuple(ListedOffset(each.partition, code, message=message) for each in request.partitions)
    ),
    judge=lambda _: ErrorCode.NONE,
)


# OffsetForLeaderEpoch


def _build_epochs(
    request: OffsetsForLeaderEpochRequest, version: int
) -> offset_for_leader_epoch.OffsetForLeaderEpochRequest:
    topics = tuple(
        offset_for_leader_epoch.Topic(
            name,
            tuple(
                offset_for_leader_epoch.Partition(
                    each.partition.partition, each.current_leader_epoch, each.epoch
                )
                for each in items
            ),
        )
        for name, items in by_topic(request.partitions, partition_of).items()
    )
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(_CONSUMER, topics)


def _parse_epochs(
    request: OffsetsForLeaderEpochRequest, response: offset_for_leader_epoch.OffsetForLeaderEpochResponse
) -> OffsetsForLeaderEpochResult:
    answers = Answers(response.topics)
    found = []
    for each in request.partitions:
        answer = answers.take(each.partition)
        found.append(
            EpochEnd(each.partition, ErrorCode.UNKNOWN_SERVER_ERROR, message=LEFT_OUT)
            if answer is None
            else EpochEnd(
                each.partition,
                code_of_number(answer.error_code),
                answer.leader_epoch,
                answer.end_offset,
                why_of_number(answer.error_code),
            )
        )
    return OffsetsForLeaderEpochResult(tuple(found))


EPOCHS: Final = Translation(
    key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
    build=_build_epochs,
    parse=_parse_epochs,
    refuse=lambda request, code, message: OffsetsForLeaderEpochResult(
        tuple(EpochEnd(each.partition, code, message=message) for each in request.partitions)
    ),
    judge=lambda _: ErrorCode.NONE,
)


# DeleteRecords


def _build_delete(request: DeleteRecordsRequest, version: int) -> delete_records.DeleteRecordsRequest:
    topics = tuple(
        delete_records.Topic(
            name, tuple(delete_records.Partition(each.partition.partition, each.offset) for each in items)
        )
        for name, items in by_topic(request.partitions, partition_of).items()
    )
    return delete_records.DeleteRecordsRequest(topics, _DELETE_TIMEOUT_MS)


def _parse_delete(
    request: DeleteRecordsRequest, response: delete_records.DeleteRecordsResponse
) -> DeleteRecordsResult:
    answers = Answers(response.topics)
    return DeleteRecordsResult(
        tuple(_deleted(each.partition, answers.take(each.partition)) for each in request.partitions)
    )


def _deleted(partition: Any, answer: Any | None) -> DeletedRecords:
    if answer is None:
        return DeletedRecords(partition, ErrorCode.UNKNOWN_SERVER_ERROR, message=LEFT_OUT)
    code = code_of_number(answer.error_code)
    return DeletedRecords(partition, code, answer.low_watermark, why_of_number(answer.error_code))


DELETE_RECORDS: Final = Translation(
    key=ApiKey.DELETE_RECORDS,
    build=_build_delete,
    parse=_parse_delete,
    refuse=lambda request, code, message: DeleteRecordsResult(
        tuple(DeletedRecords(each.partition, code, message=message) for each in request.partitions)
    ),
    judge=lambda _: ErrorCode.NONE,
    lane=Lane.WAITS,
    wait_ms=lambda _: _DELETE_TIMEOUT_MS,
)
