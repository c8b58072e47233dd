"""WriteTxnMarkers."""

from __future__ import annotations

from collections.abc import Callable

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.transactions.requests import TransactionMarker, WriteMarkersResult
from logstore.logdir.acls import Operation
from logstore.model import TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.messages.transactions.write_txn_markers import (
    Marker,
    MarkerResult,
    PartitionResult,
    TopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def answer(call: Call, request: WriteTxnMarkersRequest, version: int) -> Pending[WriteTxnMarkersResponse]:
    """End transactions in partitions: administrators ask for it, of those that hang (KIP-664)."""
    may_alter = call.allows_cluster(Operation.ALTER, is_noted=False)
    if not may_alter and not call.allows_cluster(Operation.CLUSTER_ACTION):
        return Answered(refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version))
    asked = tuple([_marker(each) for each in request.markers])

    def convert(result: WriteMarkersResult) -> WriteTxnMarkersResponse:
        found = iter(result.partitions)
        return _response(request, lambda: next(found).error)

    return then(call.broker.write_transaction_markers(asked), convert)


def _marker(each: Marker) -> TransactionMarker:
    partitions = tuple(
        TopicPartition(topic.name, number) for topic in each.topics for number in topic.partitions
    )
    return TransactionMarker(
        each.producer_id, each.producer_epoch, each.committed, partitions, each.coordinator_epoch
    )


def _response(request: WriteTxnMarkersRequest, next_code: Callable[[], ErrorCode]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        tuple(
            [
                MarkerResult(
                    marker.producer_id,
                    tuple(
                        [
                            TopicResult(
                                topic.name,
                                tuple([PartitionResult(each, next_code()) for each in topic.partitions]),
                            )
                            for topic in marker.topics
                        ]
                    ),
                )
                for marker in request.markers
            ]
        )
    )


def refuse(request: WriteTxnMarkersRequest, code: ErrorCode, version: int) -> WriteTxnMarkersResponse:
    """The same error for every partition."""
    return _response(request, lambda: code)
