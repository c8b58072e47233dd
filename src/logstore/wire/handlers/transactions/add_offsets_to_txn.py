"""AddOffsetsToTxn."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.transactions.requests import AddOffsetsToTransaction, TransactionalProducer
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.coordinated import as_told
from logstore.wire.handlers.then import then
from logstore.wire.handlers.transactions.older_codes import as_known
from logstore.wire.messages.transactions.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)


def answer(call: Call, request: AddOffsetsToTxnRequest, version: int) -> Pending[AddOffsetsToTxnResponse]:
    """Let a transaction commit offsets of a group."""
    code = _refusal(call, request)
    if code is not ErrorCode.NONE:
        return Answered(refuse(request, code, version))
    producer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
    return then(
        call.broker.add_offsets_to_transaction(AddOffsetsToTransaction(producer, request.group_id)),
        lambda code: refuse(request, as_told(call, code), version),
    )


def _refusal(call: Call, request: AddOffsetsToTxnRequest) -> ErrorCode:
    if not call.allows_transactions(Operation.WRITE, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not call.allows_group(Operation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE if request.transactional_id else ErrorCode.INVALID_REQUEST


def refuse(request: AddOffsetsToTxnRequest, code: ErrorCode, version: int) -> AddOffsetsToTxnResponse:
    """The error."""
    return AddOffsetsToTxnResponse(error_code=as_known(code, version))
