"""Producers and their transactions: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn,
ListTransactions, DescribeTransactions."""

from __future__ import annotations

from typing import Any, Final

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import InitProducerIdRequest, InitProducerIdResult
from logstore.broker.transactions.requests import (
    AddOffsetsToTransaction,
    AddPartitionsResult,
    AddPartitionsToTransaction,
    DescribedTransaction,
    EndTransaction,
    EndTransactionResult,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResult,
)
from logstore.broker.transactions.states import TransactionState
from logstore.model import TopicPartition
from logstore.wire.apis import ApiKey
from logstore.wire.messages.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.connections.peer import Peer
from logstore.wire.remote.translate.translation import Translation, by_topic, codes_of

_NO_TRANSACTION_MS: Final = 60_000
"""The field is there, and means nothing, if there is no transactional id."""
_ONE_TRANSACTION: Final = 3
"""AddPartitionsToTxn: later versions are for brokers."""
_MANY_TRANSACTIONS: Final = 4
_KEEPS_EPOCH: Final = 4
"""EndTxn: later versions give the producer its next epoch (KIP-890)."""
_FEATURE: Final = "transaction.version"
_GIVES_EPOCHS: Final = 2
"""The level of the feature from which a coordinator does so."""

INIT_PRODUCER_ID: Final = Translation[InitProducerIdRequest, InitProducerIdResult](
    key=ApiKey.INIT_PRODUCER_ID,
    build=lambda request, version: init_producer_id.InitProducerIdRequest(
        request.transactional_id,
        request.transaction_timeout_ms if request.transactional_id is not None else _NO_TRANSACTION_MS,
        request.producer_id,
        request.producer_epoch,
    ),
    parse=lambda request, response: InitProducerIdResult(
        code_of_number(response.error_code),
        response.producer_id,
        response.producer_epoch,
        why_of_number(response.error_code),
    ),
    refuse=lambda request, code, message: InitProducerIdResult(code, message=message),
)


def _build_add(
    request: AddPartitionsToTransaction, version: int
) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
    producer = request.producer
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=tuple(
            add_partitions_to_txn.Topic(name, tuple(each.partition for each in items))
            for name, items in by_topic(request.partitions, lambda each: each).items()
        ),
    )


_NOT_ATTEMPTED: Final = 55


def _parse_add(request: AddPartitionsToTransaction, response: Any) -> AddPartitionsResult:
    """All or none: what a broker has not attempted has the error of the others."""
    numbers = codes_of(request.partitions, response.topics)
    first = next((number for number in numbers.values() if number not in (0, _NOT_ATTEMPTED)), 0)
    return AddPartitionsResult(dict.fromkeys(request.partitions, code_of_number(first)))


ADD_PARTITIONS: Final = Translation[AddPartitionsToTransaction, AddPartitionsResult](
    key=ApiKey.ADD_PARTITIONS_TO_TXN,
    build=_build_add,
    parse=_parse_add,
    refuse=lambda request, code, message: AddPartitionsResult(dict.fromkeys(request.partitions, code)),
    last=_ONE_TRANSACTION,
)


def adding_for_clients(*, verify_only: bool) -> Translation[AddPartitionsToTransaction, AddPartitionsResult]:
    """AddPartitionsToTxn as brokers ask it: for a producer that has not asked, or whether it has."""

    def build(
        request: AddPartitionsToTransaction, version: int
    ) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
        asked = _build_add(request, version)
        one = add_partitions_to_txn.Transaction(
            asked.transactional_id, asked.producer_id, asked.producer_epoch, verify_only, asked.topics
        )
        return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=(one,))

    def parse(request: AddPartitionsToTransaction, response: Any) -> AddPartitionsResult:
        if response.error_code:
            code = code_of_number(response.error_code)
            return AddPartitionsResult(dict.fromkeys(request.partitions, code))
        (one,) = response.transactions
        numbers = codes_of(request.partitions, one.topics)
        return AddPartitionsResult({each: code_of_number(number) for each, number in numbers.items()})

    return Translation(
        key=ApiKey.ADD_PARTITIONS_TO_TXN,
        build=build,
        parse=parse,
        refuse=ADD_PARTITIONS.refuse,
        first=_MANY_TRANSACTIONS,
    )


ADD_FOR_CLIENTS: Final = adding_for_clients(verify_only=False)
VERIFY: Final = adding_for_clients(verify_only=True)

ADD_OFFSETS: Final = Translation[AddOffsetsToTransaction, ErrorCode](
    key=ApiKey.ADD_OFFSETS_TO_TXN,
    build=lambda request, version: add_offsets_to_txn.AddOffsetsToTxnRequest(
        request.producer.transactional_id,
        request.producer.producer_id,
        request.producer.producer_epoch,
        request.group,
    ),
    parse=lambda request, response: code_of_number(response.error_code),
    refuse=lambda request, code, message: code,
    judge=lambda code: code,
)


def _parse_end(request: EndTransaction, response: end_txn.EndTxnResponse) -> EndTransactionResult:
    code, producer = code_of_number(response.error_code), request.producer
    producer_id, epoch = response.producer_id, response.producer_epoch
    if code is ErrorCode.NONE and producer_id < 0:  # it goes on as it is
        producer_id, epoch = producer.producer_id, producer.producer_epoch
    return EndTransactionResult(code, producer_id, epoch, why_of_number(response.error_code))


def ending(request: EndTransaction) -> Translation[EndTransaction, EndTransactionResult]:
    """EndTxn: with the next epoch if the producer takes it, and the cluster gives it."""

    def last(peer: Peer) -> int:
        gives = peer.features.get(_FEATURE, 0) >= _GIVES_EPOCHS
        return 5 if request.takes_epoch and gives else _KEEPS_EPOCH

    return Translation(
        key=ApiKey.END_TXN,
        build=lambda request, version: end_txn.EndTxnRequest(*request.producer, request.committed),
        parse=_parse_end,
        refuse=lambda request, code, message: EndTransactionResult(code, message=message),
        last=last,
    )


# Looking after them


def _state(name: str) -> TransactionState:
    try:
        return TransactionState(name)
    except ValueError:  # PrepareEpochFence
        return TransactionState.ONGOING


def _build_list(request: ListTransactions, version: int) -> list_transactions.ListTransactionsRequest:
    return list_transactions.ListTransactionsRequest(
        tuple(sorted(each.value for each in request.states)),
        tuple(sorted(request.producer_ids)),
        request.open_for_ms,
    )


LIST_TRANSACTIONS: Final = Translation[ListTransactions, ListTransactionsResult](
    key=ApiKey.LIST_TRANSACTIONS,
    build=_build_list,
    parse=lambda request, response: ListTransactionsResult(
        code_of_number(response.error_code),
        tuple(
            ListedTransaction(each.transactional_id, each.producer_id, _state(each.transaction_state))
            for each in response.transactions
        ),
        why_of_number(response.error_code),
    ),
    refuse=lambda request, code, message: ListTransactionsResult(code, message=message),
)


def _described(each: describe_transactions.Transaction) -> DescribedTransaction:
    return DescribedTransaction(
        code_of_number(each.error_code),
        each.transactional_id,
        _state(each.transaction_state) if each.transaction_state else TransactionState.DEAD,
        each.transaction_timeout_ms,
        each.transaction_start_time_ms,
        each.producer_id,
        each.producer_epoch,
        frozenset(TopicPartition(topic.name, number) for topic in each.topics for number in topic.partitions),
    )


DESCRIBE_TRANSACTIONS: Final = Translation[tuple[str, ...], dict[str, DescribedTransaction]](
    key=ApiKey.DESCRIBE_TRANSACTIONS,
    build=lambda names, version: describe_transactions.DescribeTransactionsRequest(names),
    parse=lambda names, response: {each.transactional_id: _described(each) for each in response.transactions},
    refuse=lambda names, code, message: {name: DescribedTransaction(code, name) for name in names},
    judge=lambda found: next((each.error for each in found.values() if each.error), ErrorCode.NONE),
)
