"""AlterClientQuotas."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.quotas.requests import AlterClientQuotasRequest as Asked
from logstore.broker.quotas.requests import AlterClientQuotasResult as Done
from logstore.broker.quotas.requests import QuotaAlteration
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.messages.quotas.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    Entry,
    EntryResult,
)


def answer(call: Call, request: AlterClientQuotasRequest, version: int) -> Pending[AlterClientQuotasResponse]:
    """Change quotas. What is asked for one entity is done whole, or not at all."""
    if not call.allows_cluster(Operation.ALTER_CONFIGS):
        return Answered(refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version))
    asked = tuple(_alteration(each) for each in request.entries if not _is_twofold(each))
    return then(
        call.broker.alter_client_quotas(Asked(asked, request.validate_only)),
        lambda done: _response(request, done),
    )


def _is_twofold(entry: Entry) -> bool:
    """Whether the entity is, for example, of two users."""
    return len({each.entity_type for each in entry.entity}) < len(entry.entity)


def _alteration(entry: Entry) -> QuotaAlteration:
    return QuotaAlteration(
        {each.entity_type: each.entity_name for each in entry.entity},
        tuple((each.key, None if each.remove else each.value) for each in entry.operations),
    )


def _response(request: AlterClientQuotasRequest, done: Done) -> AlterClientQuotasResponse:
    found = iter(done.entries)
    entries = []
    for each in request.entries:
        if _is_twofold(each):
            why = "the entity has two parts of one type"
            entries.append(EntryResult(ErrorCode.INVALID_REQUEST, why, each.entity))
        else:
            outcome = next(found)
            entries.append(EntryResult(outcome.error, outcome.message, each.entity))
    return AlterClientQuotasResponse(entries=tuple(entries))


def refuse(request: AlterClientQuotasRequest, code: ErrorCode, version: int) -> AlterClientQuotasResponse:
    """The same error for every entity."""
    return AlterClientQuotasResponse(
        entries=tuple(EntryResult(code, None, each.entity) for each in request.entries)
    )
