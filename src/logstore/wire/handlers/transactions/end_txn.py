"""EndTxn."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.transactions.requests import (
    EndTransaction,
    EndTransactionResult,
    TransactionalProducer,
)
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.coordinated import as_told
from logstore.wire.handlers.then import then
from logstore.wire.handlers.transactions.older_codes import as_known
from logstore.wire.messages.transactions.end_txn import EndTxnRequest, EndTxnResponse

_TAKES_EPOCH: Final = 5
"""From this version on each transaction has an epoch of its own: the answer has the next one's (KIP-890).
Only clients that know it ask in this version."""


def answer(call: Call, request: EndTxnRequest, version: int) -> Pending[EndTxnResponse]:
    """Commit or abort. The answer waits until readers see the outcome."""
    name = request.transactional_id
    if not call.allows_transactions(Operation.WRITE, name):
        return Answered(refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, version))
    if not name:
        return Answered(refuse(request, ErrorCode.INVALID_REQUEST, version))
    producer = TransactionalProducer(name, request.producer_id, request.producer_epoch)
    asked = EndTransaction(producer, request.committed, version >= _TAKES_EPOCH)
    return then(
        call.broker.end_transaction(asked),
        lambda result: _response(result._replace(error=as_told(call, result.error)), version),
    )


def _response(result: EndTransactionResult, version: int) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=as_known(result.error, version),
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
    )


def refuse(request: EndTxnRequest, code: ErrorCode, version: int) -> EndTxnResponse:
    """The error."""
    return _response(EndTransactionResult(code), version)
