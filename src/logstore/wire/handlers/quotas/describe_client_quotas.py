"""DescribeClientQuotas."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.quotas.requests import ClientQuotas, FilterComponent, MatchType
from logstore.broker.quotas.requests import DescribeClientQuotasRequest as Asked
from logstore.broker.quotas.requests import DescribeClientQuotasResult as Found
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.messages.quotas.describe_client_quotas import (
    Component,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityPart,
    Entry,
    Quota,
)

_MATCH_TYPES: Final = frozenset(MatchType)
_ADDRESSES: Final = "ip"
"""What Kafka limits the connections of. Here there are no such quotas, and so none is found."""


def answer(
    call: Call, request: DescribeClientQuotasRequest, version: int
) -> Pending[DescribeClientQuotasResponse]:
    """The quotas of the entities that the filter lets through."""
    if not call.allows_cluster(Operation.DESCRIBE_CONFIGS):
        return Answered(_refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    unknown = [each.match_type for each in request.components if each.match_type not in _MATCH_TYPES]
    if unknown:
        why = f"the filter has match type {unknown[0]}; there are 0, 1 and 2"
        return Answered(_refused(ErrorCode.INVALID_REQUEST, why))
    if [each.entity_type for each in request.components] == [_ADDRESSES]:
        return Answered(_response(Found(ErrorCode.NONE)))
    components = tuple(_component(each) for each in request.components)
    return then(call.broker.describe_client_quotas(Asked(components, request.strict)), _response)


def _component(component: Component) -> FilterComponent:
    return FilterComponent(component.entity_type, MatchType(component.match_type), component.match)


def _response(found: Found) -> DescribeClientQuotasResponse:
    if found.error is not ErrorCode.NONE:
        return _refused(found.error, found.message)
    return DescribeClientQuotasResponse(entries=tuple(_entry(each) for each in found.entries))


def _entry(found: ClientQuotas) -> Entry:
    return Entry(
        tuple(EntityPart(*each) for each in found.entity.items()),
        tuple(Quota(*each) for each in found.values.items()),
    )


def _refused(code: ErrorCode, why: str | None = None) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=why, entries=None)


def refuse(
    request: DescribeClientQuotasRequest, code: ErrorCode, version: int
) -> DescribeClientQuotasResponse:
    """The error."""
    return _refused(code)
