"""Produce."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.records.looking_up import INTERNAL_TOPICS
from logstore.broker.records.producing import transactional_producer
from logstore.broker.requests import (
    ACKS_NONE,
    ProducedPartition,
    ProducePartition,
)
from logstore.broker.requests import ProduceRequest as ToAppend
from logstore.broker.requests import ProduceResult as Appended
from logstore.broker.transactions.requests import (
    AddPartitionsResult,
    AddPartitionsToTransaction,
    TransactionalProducer,
)
from logstore.format.compression import Codec
from logstore.format.header import ATTRIBUTES_POSITION, CODEC_MASK, HEADER_BYTES
from logstore.logdir.acls import Operation
from logstore.model import Bytes, TopicPartition
from logstore.wire.handlers.call import HANG_UP, NO_ANSWER, Call, NoAnswer
from logstore.wire.handlers.records.leaders import with_leaders
from logstore.wire.handlers.then import then, then_ask
from logstore.wire.messages.records.produce import (
    Partition,
    PartitionResult,
    ProduceRequest,
    ProduceResponse,
    RefusedRecord,
    Topic,
    TopicResult,
)

_ZSTD: Final = 7
"""From this version on clients know zstd (KIP-110)."""
_ABORTABLE: Final = 11
"""From this version on clients know TRANSACTION_ABORTABLE (KIP-890)."""
_ADDS: Final = 12
"""From this version on clients have not asked AddPartitionsToTxn before: this request adds the partitions to
the transaction, too."""
_BY_ID: Final = 13
"""From this version on topics are named by their ids."""
_OF_COORDINATORS: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""What clients of this request know, in place of what a coordinator says: that the producer is shut out, and
that the batch may be sent again."""


def answer(call: Call, request: ProduceRequest, version: int) -> Pending[ProduceResponse | NoAnswer]:
    """Append each batch. The answer waits for what ``acks`` asks for."""
    request = request._replace(topics=_each_once(request.topics))
    name = request.transactional_id
    if name is not None and not call.allows_transactions(Operation.WRITE, name):
        return Answered(refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, version))
    named = [(topic, *_resolved(call, topic, version)) for topic in request.topics]
    batches = tuple(
        ProducePartition(TopicPartition(topic_name, each.partition), each.records or b"")
        for topic, topic_name, code in named
        if code is ErrorCode.NONE
        for each in topic.partitions
    )
    asked = ToAppend(request.acks, request.timeout_ms, batches, name, begins_at_zero=version >= _ADDS)

    def response(result: Appended) -> ProduceResponse | NoAnswer:
        told = _response(request, named, result, version)
        return told if isinstance(told, NoAnswer) else with_leaders(call, told)

    return then(_append(call, asked, version), response)


def _each_once(topics: tuple[Topic, ...]) -> tuple[Topic, ...]:
    """Each partition once, as a broker takes a request that names one twice: the last batch counts."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        return topics
    found: dict[tuple[str, UUID], dict[int, Partition]] = {}
    for topic in topics:
        parts = found.setdefault((topic.name, topic.topic_id), {})
        parts.update({each.partition: each for each in topic.partitions})
    return tuple([Topic(*which, tuple(parts.values())) for which, parts in found.items()])


def _append(call: Call, asked: ToAppend, version: int) -> Pending[Appended]:
    if version < _ZSTD:
        code, why = (
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd is allowed from version {_ZSTD} of Produce on",
        )
        zstd = [each.partition for each in asked.partitions if _is_zstd(each.data)]
        return _append_but(call, asked, {each: ProducedPartition(each, code, message=why) for each in zstd})
    adds = None if version < _ADDS else _to_add(call, asked)
    if adds is None:
        return call.broker.produce(asked)

    def append(added: AddPartitionsResult) -> Pending[Appended]:
        if added.error is ErrorCode.NONE:
            return call.broker.produce(asked)
        why = f"the transaction of {asked.transactional_id!r} does not take its partition"
        refused = {
            each: ProducedPartition(each, code, message=why)
            for each, code in added.errors.items()
            if code is not ErrorCode.NONE  # a marker may have come into some of them since
        }
        return _append_but(call, asked, refused)

    return then_ask(call.broker.add_partitions_to_transaction(adds), append)


def _append_but(
    call: Call, asked: ToAppend, refused: dict[TopicPartition, ProducedPartition]
) -> Pending[Appended]:
    """To all partitions but some."""
    rest = tuple([each for each in asked.partitions if each.partition not in refused])
    return then(
        call.broker.produce(asked._replace(partitions=rest)), lambda result: _joined(asked, refused, result)
    )


def _is_zstd(data: Bytes) -> bool:
    return len(data) > HEADER_BYTES and data[ATTRIBUTES_POSITION + 1] & CODEC_MASK == Codec.ZSTD


def _to_add(call: Call, asked: ToAppend) -> AddPartitionsToTransaction | None:
    """What the batches add to the transaction, if they are of one. All have the same producer."""
    if asked.transactional_id is None:
        return None
    found = [(each.partition, transactional_producer(each.data)) for each in asked.partitions]
    producer = next((each for _, each in found if each is not None), None)
    partitions = tuple(
        [partition for partition, each in found if each is not None and call.node.topics.has(partition)]
    )
    if producer is None or not partitions:
        return None
    by = TransactionalProducer(asked.transactional_id, *producer)
    return AddPartitionsToTransaction(by, partitions, is_implied=True)


def _joined(asked: ToAppend, refused: dict[TopicPartition, ProducedPartition], rest: Appended) -> Appended:
    appended = iter(rest.partitions)
    return Appended(tuple([refused.get(each.partition) or next(appended) for each in asked.partitions]))


_Named = list[tuple[Topic, str, ErrorCode]]


def _resolved(call: Call, topic: Topic, version: int) -> tuple[str, ErrorCode]:
    name: str | None = topic.name
    if version >= _BY_ID:
        name = call.node.topics.name_of(topic.topic_id)
        if name is None:
            return "", ErrorCode.UNKNOWN_TOPIC_ID
    assert name is not None
    if not call.allows_topic(Operation.WRITE, name):
        return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if name in INTERNAL_TOPICS:  # only coordinators write them
        return name, ErrorCode.INVALID_TOPIC_EXCEPTION
    return name, ErrorCode.NONE


def _response(
    request: ProduceRequest, named: _Named, result: Appended, version: int
) -> ProduceResponse | NoAnswer:
    found = iter(result.partitions)
    topics = []
    is_refused = False
    for topic, _, code in named:
        if code is ErrorCode.NONE:
            parts = tuple([_part(next(found), version) for _ in topic.partitions])
        else:
            parts = tuple([PartitionResult(each.partition, code, -1) for each in topic.partitions])
        is_refused = is_refused or any(each.error_code != ErrorCode.NONE for each in parts)
        topics.append(TopicResult(topic.name, topic.topic_id, parts))
    if request.acks == ACKS_NONE:
        if is_refused:  # there is no other way to say so
            return HANG_UP
        return NO_ANSWER
    return ProduceResponse(tuple(topics))


def _part(outcome: ProducedPartition, version: int) -> PartitionResult:
    error = _OF_COORDINATORS.get(outcome.error, outcome.error)
    if error is ErrorCode.INVALID_TXN_STATE and version >= _ABORTABLE:
        error = ErrorCode.TRANSACTION_ABORTABLE
    return PartitionResult(
        outcome.partition.partition,
        error,
        outcome.base_offset,
        outcome.log_append_time_ms,
        outcome.log_start_offset,
        tuple([RefusedRecord(number, outcome.message) for number in outcome.records]),
        outcome.message,
    )


def refuse(request: ProduceRequest, code: ErrorCode, version: int) -> ProduceResponse | NoAnswer:
    """The same error for every partition."""
    if request.acks == ACKS_NONE:
        return HANG_UP
    return ProduceResponse(
        tuple(
            TopicResult(
                topic.name,
                topic.topic_id,
                tuple(PartitionResult(each.partition, code, -1) for each in topic.partitions),
            )
            for topic in request.topics
        )
    )
