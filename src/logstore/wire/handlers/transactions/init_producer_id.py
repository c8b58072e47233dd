"""InitProducerId."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import InitProducerIdRequest as Asked
from logstore.broker.requests import InitProducerIdResult as Given
from logstore.format.header import NO_EPOCH, NO_PRODUCER_ID
from logstore.logdir.acls import Operation, ResourceType
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.coordinated import as_told
from logstore.wire.handlers.then import then
from logstore.wire.handlers.transactions.older_codes import as_known
from logstore.wire.messages.transactions.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_FENCED = 4
"""From this version on clients know PRODUCER_FENCED (KIP-588)."""


def answer(call: Call, request: InitProducerIdRequest, version: int) -> Pending[InitProducerIdResponse]:
    """An id for an idempotent producer, or the next epoch for a transactional one."""
    name = request.transactional_id
    if name is not None and not call.allows_transactions(Operation.WRITE, name):
        return Answered(refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, version))
    if name is None and not _may_be_idempotent(call):
        return Answered(refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version))
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return Answered(refuse(request, ErrorCode.INVALID_REQUEST, version))  # both are known, or neither
    asked = Asked(name, request.transaction_timeout_ms, request.producer_id, request.producer_epoch)
    return then(
        call.broker.init_producer_id(asked), lambda given: _response(_told(call, name, given), version)
    )


def _told(call: Call, name: str | None, given: Given) -> Given:
    """Only transactional producers have a coordinator."""
    return given if name is None else given._replace(error=as_told(call, given.error))


def _may_be_idempotent(call: Call) -> bool:
    """Who may write to some topic may do so without duplicates (KIP-679)."""
    return call.allows_any(Operation.WRITE, ResourceType.TOPIC) or call.allows_cluster(
        Operation.IDEMPOTENT_WRITE
    )


def _response(given: Given, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=as_known(given.error, version, fenced_since=_FENCED),
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
    )


def refuse(request: InitProducerIdRequest, code: ErrorCode, version: int) -> InitProducerIdResponse:
    """The error."""
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH)
