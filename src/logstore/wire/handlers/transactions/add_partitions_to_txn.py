"""AddPartitionsToTxn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import MetadataRequest, MetadataResult
from logstore.broker.transactions.requests import (
    AddPartitionsToTransaction,
    DescribedTransaction,
    TransactionalProducer,
)
from logstore.broker.transactions.states import TransactionState
from logstore.logdir.acls import Operation
from logstore.model import TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.coordinated import as_told
from logstore.wire.handlers.then import gather, then, then_ask
from logstore.wire.handlers.transactions.older_codes import as_known
from logstore.wire.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    PartitionResult,
    TopicResult,
    Transaction,
    TransactionResult,
)

_MANY: Final = 4
"""From this version on brokers ask, for several transactions at once; clients stay below."""
_ABORTABLE: Final = 5
"""From this version on TRANSACTION_ABORTABLE is known (KIP-890)."""

CodeOf = Callable[[TopicPartition], ErrorCode]


def answer(
    call: Call, request: AddPartitionsToTxnRequest, version: int
) -> Pending[AddPartitionsToTxnResponse]:
    """Let transactions write to partitions; or see if they may."""
    if version >= _MANY and not call.allows_cluster(Operation.CLUSTER_ACTION):
        return Answered(refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version))
    transactions = _transactions(request, version)
    names = dict.fromkeys(topic.name for each in transactions for topic in each.topics)

    def ask(found: MetadataResult) -> Pending[AddPartitionsToTxnResponse]:
        asked = [_ask(call, each, _partitions_of(found), version) for each in transactions]
        return then(gather(asked), lambda results: _response(results, version))

    return then_ask(call.node.broker.metadata(MetadataRequest(tuple(names))), ask)


def _transactions(request: AddPartitionsToTxnRequest, version: int) -> tuple[Transaction, ...]:
    if version >= _MANY:
        return request.transactions
    producer = (request.transactional_id, request.producer_id, request.producer_epoch)
    return (Transaction(*producer, False, request.topics),)


def _partitions_of(found: MetadataResult) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.name, each.partition) for topic in found.topics for each in topic.partitions
    )


def _ask(
    call: Call, wanted: Transaction, known: frozenset[TopicPartition], version: int
) -> Pending[TransactionResult]:
    """What becomes of one transaction: of all its partitions the same, unless some are refused."""
    if not wanted.transactional_id:
        return Answered(_result(wanted, lambda _: ErrorCode.INVALID_REQUEST))
    is_clients = version < _MANY  # brokers have asked whether theirs may
    if is_clients and not call.allows_transactions(Operation.WRITE, wanted.transactional_id):
        return Answered(_result(wanted, lambda _: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    partitions = tuple(
        dict.fromkeys(
            TopicPartition(topic.name, each) for topic in wanted.topics for each in topic.partitions
        )
    )
    denied = {
        topic.name
        for topic in wanted.topics
        if is_clients and not call.allows_topic(Operation.WRITE, topic.name)
    }
    refused = {each: _refusal(each, denied, known) for each in partitions}
    if any(code is not ErrorCode.OPERATION_NOT_ATTEMPTED for code in refused.values()):
        return Answered(_result(wanted, refused.__getitem__))
    producer = TransactionalProducer(wanted.transactional_id, wanted.producer_id, wanted.producer_epoch)
    if wanted.verify_only:
        return then(
            call.broker.describe_transactions((wanted.transactional_id,)),
            lambda found: _result(wanted, _verify(found[0], producer, version)),
        )
    return then(
        call.broker.add_partitions_to_transaction(AddPartitionsToTransaction(producer, partitions)),
        lambda added: _result(wanted, _codes(call, added.errors, version)),
    )


def _refusal(partition: TopicPartition, denied: set[str], known: frozenset[TopicPartition]) -> ErrorCode:
    if partition.topic in denied:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if partition not in known:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.OPERATION_NOT_ATTEMPTED


def _codes(call: Call, errors: Mapping[TopicPartition, ErrorCode], version: int) -> CodeOf:
    return lambda partition: as_known(as_told(call, errors[partition]), version)


def _verify(found: DescribedTransaction, asks: TransactionalProducer, version: int) -> CodeOf:
    """Whether each partition is in the producer's open transaction (KIP-890)."""
    code = ErrorCode.NONE
    if found.error not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        code = found.error
    elif found.producer_id != asks.producer_id:
        code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    elif found.producer_epoch != asks.producer_epoch:
        code = ErrorCode.PRODUCER_FENCED
    elif found.state.is_ending:
        code = ErrorCode.CONCURRENT_TRANSACTIONS
    if code is not ErrorCode.NONE:
        return lambda _: code
    is_open = found.state is TransactionState.ONGOING
    missing = ErrorCode.TRANSACTION_ABORTABLE if version >= _ABORTABLE else ErrorCode.INVALID_TXN_STATE
    return lambda partition: ErrorCode.NONE if is_open and partition in found.partitions else missing


def _result(wanted: Transaction, code_of: CodeOf) -> TransactionResult:
    return TransactionResult(
        wanted.transactional_id,
        tuple(
            TopicResult(
                topic.name,
                tuple(
                    [
                        PartitionResult(each, code_of(TopicPartition(topic.name, each)))
                        for each in topic.partitions
                    ]
                ),
            )
            for topic in wanted.topics
        ),
    )


def _response(results: tuple[TransactionResult, ...], version: int) -> AddPartitionsToTxnResponse:
    if version >= _MANY:
        return AddPartitionsToTxnResponse(transactions=results)
    (one,) = results
    return AddPartitionsToTxnResponse(topics=one.topics)


def refuse(request: AddPartitionsToTxnRequest, code: ErrorCode, version: int) -> AddPartitionsToTxnResponse:
    """The error, of the whole request where the version can say so; else of each partition."""
    if version >= _MANY:
        return AddPartitionsToTxnResponse(error_code=code)
    return _response(
        tuple([_result(each, lambda _: code) for each in _transactions(request, version)]), version
    )
