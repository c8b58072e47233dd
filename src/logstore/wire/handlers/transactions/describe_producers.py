"""DescribeProducers."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.transactions.requests import DescribedProducers, DescribeProducersResult
from logstore.logdir.acls import Operation
from logstore.model import ActiveProducer, TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.resolving import resolve
from logstore.wire.handlers.then import then
from logstore.wire.messages.transactions.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResult,
    Producer,
    TopicResult,
)

_NO_OFFSET: Final = -1


def answer(call: Call, request: DescribeProducersRequest, version: int) -> Pending[DescribeProducersResponse]:
    """The producers that the partitions remember, of topics that the client may read."""
    named = [(topic, resolve(call, Operation.READ, topic.name)[1]) for topic in request.topics]
    partitions = tuple(
        TopicPartition(topic.name, each)
        for topic, code in named
        if code is ErrorCode.NONE
        for each in topic.partitions
    )

    def convert(result: DescribeProducersResult) -> DescribeProducersResponse:
        found = iter(result.partitions)
        return DescribeProducersResponse(
            topics=tuple(
                TopicResult(
                    topic.name,
                    tuple(
                        [
                            _part(next(found)) if code is ErrorCode.NONE else _refused(each, code)
                            for each in topic.partitions
                        ]
                    ),
                )
                for topic, code in named
            )
        )

    return then(call.broker.describe_producers(partitions), convert)


def _part(found: DescribedProducers) -> PartitionResult:
    return PartitionResult(
        found.partition.partition, found.error, found.message, tuple(map(_producer, found.producers))
    )


def _producer(known: ActiveProducer) -> Producer:
    first = known.transaction_first_offset
    return Producer(
        known.producer_id,
        known.producer_epoch,
        known.last_sequence,
        known.last_timestamp_ms,
        known.coordinator_epoch,
        _NO_OFFSET if first is None else first,
    )


def _refused(number: int, code: ErrorCode) -> PartitionResult:
    return PartitionResult(number, code, code.name)


def refuse(request: DescribeProducersRequest, code: ErrorCode, version: int) -> DescribeProducersResponse:
    """The same error for every partition."""
    return DescribeProducersResponse(
        topics=tuple(
            TopicResult(topic.name, tuple([_refused(each, code) for each in topic.partitions]))
            for topic in request.topics
        )
    )
