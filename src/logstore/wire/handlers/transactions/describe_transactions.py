"""DescribeTransactions."""

from __future__ import annotations

from itertools import groupby

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.transactions.requests import DescribedTransaction
from logstore.logdir.acls import Operation, ResourceType
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.messages.transactions.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    Topic,
    Transaction,
)


def answer(
    call: Call, request: DescribeTransactionsRequest, version: int
) -> Pending[DescribeTransactionsResponse]:
    """What is known of transactional ids, with the topics that the client may see."""
    allowed = tuple(
        dict.fromkeys(
            each
            for each in request.transactional_ids
            if each and call.allows_transactions(Operation.DESCRIBE, each)
        )
    )

    def convert(found: tuple[DescribedTransaction, ...]) -> DescribeTransactionsResponse:
        known = {each.transactional_id: _described(call, each) for each in found}
        return DescribeTransactionsResponse(
            transactions=tuple([known.get(each) or _refused(each) for each in request.transactional_ids])
        )

    return then(call.broker.describe_transactions(allowed), convert)


def _refused(name: str) -> Transaction:
    return Transaction(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if name else ErrorCode.INVALID_REQUEST, name
    )


def _described(call: Call, found: DescribedTransaction) -> Transaction:
    if found.error is not ErrorCode.NONE:
        return Transaction(found.error, found.transactional_id)
    topics = groupby(sorted(found.partitions), key=lambda each: each.topic)
    return Transaction(
        found.error,
        found.transactional_id,
        found.state.value,
        found.timeout_ms,
        found.start_ms,
        found.producer_id,
        found.producer_epoch,
        tuple(
            Topic(name, tuple([each.partition for each in partitions]))
            for name, partitions in topics
            if call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, is_noted=False)
        ),
    )


def refuse(
    request: DescribeTransactionsRequest, code: ErrorCode, version: int
) -> DescribeTransactionsResponse:
    """The same error for every transactional id."""
    return DescribeTransactionsResponse(
        transactions=tuple([Transaction(code, each) for each in request.transactional_ids])
    )
