"""What requests about quotas ask for, checked and carried out on a table of them. Pure: stores nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from logstore.arguments import shown
from logstore.broker.codes import ErrorCode
from logstore.broker.quotas.requests import (
    AlterClientQuotasRequest,
    AlteredQuotas,
    ClientQuotas,
    DescribeClientQuotasRequest,
    FilterComponent,
    MatchType,
    QuotaAlteration,
)
from logstore.errors import UsageError
from logstore.logdir.quotas import (
    QuotaEntity,
    Quotas,
    check_key,
    check_type,
    check_value,
    entity_of,
    parts_of,
)


def alter(quotas: Quotas, request: AlterClientQuotasRequest) -> tuple[Quotas, tuple[AlteredQuotas, ...]]:
    """The quotas after the changes, and what became of each. The changes for an entity are made together, or
    not at all."""
    changed: dict[QuotaEntity, Mapping[str, float]] = dict(quotas)
    outcomes: list[AlteredQuotas] = []
    seen: set[QuotaEntity] = set()
    for alteration in request.alterations:
        try:
            entity = entity_of(alteration.entity)
            if entity in seen:
                raise UsageError(f"the request changes {entity} twice")
            seen.add(entity)
            values = _altered(changed.get(entity, {}), alteration)
        except UsageError as error:
            outcomes.append(AlteredQuotas(alteration.entity, ErrorCode.INVALID_REQUEST, str(error)))
            continue
        changed[entity] = values
        if not values:
            del changed[entity]
        outcomes.append(AlteredQuotas(alteration.entity, ErrorCode.NONE))
    return changed, tuple(outcomes)


def _altered(values: Mapping[str, float], alteration: QuotaAlteration) -> Mapping[str, float]:
    """
    Raises:
        UsageError: an op is wrong, or two have the same key.
    """
    altered, seen = dict(values), set()
    for key, value in alteration.ops:
        key = check_key(key)
        if key in seen:
            raise UsageError(f"the request sets {key} twice")
        seen.add(key)
        if value is None:
            altered.pop(key, None)
        else:
            altered[key] = check_value(key, value)
    return altered


def describe(quotas: Quotas, request: DescribeClientQuotasRequest) -> tuple[ClientQuotas, ...]:
    """The quotas of the entities that the filter lets through.

    Raises:
        UsageError: the filter is wrong.
    """
    tests = _tests_of(request.components)
    found = []
    for entity in sorted(quotas, key=str):
        parts = parts_of(entity)
        lets = all(kind in parts and test(parts[kind]) for kind, test in tests.items())
        if lets and not (request.strict and parts.keys() - tests.keys()):
            found.append(ClientQuotas(parts, dict(quotas[entity])))
    return tuple(found)


def _tests_of(components: tuple[FilterComponent, ...]) -> dict[str, Callable[[str | None], bool]]:
    tests: dict[str, Callable[[str | None], bool]] = {}
    for kind, match_type, match in components:
        check_type(kind)
        if kind in tests:
            raise UsageError(f"the filter names {kind} twice")
        if (match_type == MatchType.EXACT) == (match is None):
            raise UsageError(f"the filter for {kind} needs a name with EXACT, and only then")
        tests[kind] = _test_of(match_type, match)
    return tests


def _test_of(match_type: int, match: str | None) -> Callable[[str | None], bool]:
    if match_type == MatchType.SPECIFIED:
        return lambda name: True
    if match_type == MatchType.DEFAULT:
        return lambda name: name is None
    if match_type == MatchType.EXACT:
        return lambda name: name == match
    raise UsageError(f"the filter has match type {shown(match_type)}; there are 0, 1 and 2")
