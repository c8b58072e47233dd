"""TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import OffsetCommitRequest, OffsetCommitResult
from logstore.broker.transactions.requests import AddOffsetsToTransaction, TransactionalProducer
from logstore.logdir.acls import Operation
from logstore.model import OffsetAndMetadata, TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.coordinated import as_told
from logstore.wire.handlers.resolving import resolve
from logstore.wire.handlers.then import then, then_ask
from logstore.wire.messages.transactions.txn_offset_commit import (
    Partition,
    PartitionResult,
    Topic,
    TopicResult,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

_ABORTABLE: Final = 4
"""From this version on clients know TRANSACTION_ABORTABLE (KIP-890)."""
_ADDS: Final = 5
"""From this version on clients have not asked AddOffsetsToTxn before: this request adds the group, too."""

_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
"""What is not there is told whoever commits, and begins no transaction."""


def answer(call: Call, request: TxnOffsetCommitRequest, version: int) -> Pending[TxnOffsetCommitResponse]:
    """Commit offsets with the transaction, of the topics that the client may read."""
    code = _refusal(call, request)
    if code is not ErrorCode.NONE:
        return Answered(refuse(request, code, version))
    named = [(topic, resolve(call, Operation.READ, topic.name)[1]) for topic in request.topics]
    offsets = {
        TopicPartition(topic.name, each.partition): _committed(each)
        for topic, code in named
        if code is ErrorCode.NONE
        for each in topic.partitions
        if call.node.topics.has(TopicPartition(topic.name, each.partition))
    }
    if not offsets:
        return Answered(_response(named, {}))
    producer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
    asked = OffsetCommitRequest(
        request.group_id,
        offsets,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        producer,
    )
    return then(
        _commit(call, asked, producer, version),
        lambda result: _response(named, _known(call, result, version)),
    )


def _refusal(call: Call, request: TxnOffsetCommitRequest) -> ErrorCode:
    if not call.allows_transactions(Operation.WRITE, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not call.allows_group(Operation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID


def _committed(each: Partition) -> OffsetAndMetadata:
    epoch = each.leader_epoch if each.leader_epoch >= 0 else None
    return OffsetAndMetadata(each.offset, each.metadata or "", epoch)


def _commit(
    call: Call, asked: OffsetCommitRequest, producer: TransactionalProducer, version: int
) -> Pending[OffsetCommitResult]:
    if version < _ADDS:
        return call.broker.offset_commit(asked)

    def then_commit(code: ErrorCode) -> Pending[OffsetCommitResult]:
        if code is not ErrorCode.NONE:
            return Answered(OffsetCommitResult(dict.fromkeys(asked.offsets, code)))
        return call.broker.offset_commit(asked)

    adds = AddOffsetsToTransaction(producer, asked.group, is_implied=True)
    return then_ask(call.broker.add_offsets_to_transaction(adds), then_commit)


def _known(call: Call, result: OffsetCommitResult, version: int) -> dict[TopicPartition, ErrorCode]:
    """The codes that clients of this request know."""
    instead = {
        ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
    }
    if version >= _ABORTABLE:
        instead[ErrorCode.INVALID_TXN_STATE] = ErrorCode.TRANSACTION_ABORTABLE
    return {
        each: as_told(call, instead.get(code, code), result.message) for each, code in result.errors.items()
    }


def _response(
    named: list[tuple[Topic, ErrorCode]], errors: Mapping[TopicPartition, ErrorCode]
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            TopicResult(
                topic.name,
                tuple(
                    PartitionResult(
                        each.partition,
                        errors.get(TopicPartition(topic.name, each.partition), _UNKNOWN)
                        if code is ErrorCode.NONE
                        else code,
                    )
                    for each in topic.partitions
                ),
            )
            for topic, code in named
        )
    )


def refuse(request: TxnOffsetCommitRequest, code: ErrorCode, version: int) -> TxnOffsetCommitResponse:
    """The same error for every partition."""
    return _response([(topic, code) for topic in request.topics], {})
