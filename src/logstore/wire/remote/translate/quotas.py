"""Quotas of clients: DescribeClientQuotas, AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from typing import Any, Final

from logstore.broker.codes import ErrorCode
from logstore.broker.quotas.requests import (
    AlterClientQuotasRequest,
    AlterClientQuotasResult,
    AlteredQuotas,
    ClientQuotas,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResult,
    EntityParts,
)
from logstore.wire.apis import ApiKey
from logstore.wire.messages.quotas import alter_client_quotas, describe_client_quotas
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.translate.translation import Translation

_KNOWN: Final = frozenset({"user", "client-id"})
"""Kafka has quotas for addresses, too; the seam has not."""


def _parts_of(entity: Any) -> EntityParts:
    return {part.entity_type: part.entity_name for part in entity}


DESCRIBE: Final = Translation[DescribeClientQuotasRequest, DescribeClientQuotasResult](
    key=ApiKey.DESCRIBE_CLIENT_QUOTAS,
    build=lambda request, version: describe_client_quotas.DescribeClientQuotasRequest(
        tuple(
            describe_client_quotas.Component(each.entity_type, each.match_type, each.match)
            for each in request.components
        ),
        request.strict,
    ),
    parse=lambda request, response: DescribeClientQuotasResult(
        code_of_number(response.error_code),
        tuple(
            ClientQuotas(_parts_of(entry.entity), {each.key: each.value for each in entry.values})
            for entry in response.entries or ()
            if {part.entity_type for part in entry.entity} <= _KNOWN
        ),
        why_of_number(response.error_code, response.error_message),
    ),
    refuse=lambda request, code, message: DescribeClientQuotasResult(code, message=message),
)


def _parse_altered(request: AlterClientQuotasRequest, response: Any) -> AlterClientQuotasResult:
    answers = {frozenset(_parts_of(each.entity).items()): each for each in response.entries}
    found = []
    for wanted in request.alterations:
        answer = answers.get(frozenset(wanted.entity.items()))
        number, message = (-1, None) if answer is None else (answer.error_code, answer.error_message)
        found.append(AlteredQuotas(wanted.entity, code_of_number(number), why_of_number(number, message)))
    return AlterClientQuotasResult(tuple(found))


ALTER: Final = Translation[AlterClientQuotasRequest, AlterClientQuotasResult](
    key=ApiKey.ALTER_CLIENT_QUOTAS,
    build=lambda request, version: alter_client_quotas.AlterClientQuotasRequest(
        tuple(
            alter_client_quotas.Entry(
                tuple(alter_client_quotas.EntityPart(*part) for part in each.entity.items()),
                tuple(
                    alter_client_quotas.Operation(key, 0.0 if value is None else float(value), value is None)
                    for key, value in each.ops
                ),
            )
            for each in request.alterations
        ),
        request.validate_only,
    ),
    parse=_parse_altered,
    refuse=lambda request, code, message: AlterClientQuotasResult(
        tuple(AlteredQuotas(each.entity, code, message) for each in request.alterations)
    ),
    judge=lambda result: next((each.error for each in result.entries if each.error), ErrorCode.NONE),
)
