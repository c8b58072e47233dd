"""Requests about quotas, and their results, in the terms of Kafka's protocol (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from logstore.broker.codes import ErrorCode

EntityParts = Mapping[str, str | None]
"""Entity type, ``user`` or ``client-id`` -> name. None is the default entity."""


class MatchType(IntEnum):
    """What the name of a filter's component means."""

    EXACT = 0
    """The entity of that name."""
    DEFAULT = 1
    """The default entity."""
    SPECIFIED = 2
    """Any entity of the type, the default one too."""


class FilterComponent(NamedTuple):
    """What an entity has to have."""

    entity_type: str
    match_type: MatchType
    match: str | None = None
    """The name, with ``EXACT``."""


class DescribeClientQuotasRequest(NamedTuple):
    """Which quotas are set, for entities that all components let through."""

    components: tuple[FilterComponent, ...] = ()
    strict: bool = False
    """Leave out entities that have a type which no component names."""


class ClientQuotas(NamedTuple):
    """The quotas of one entity."""

    entity: EntityParts
    values: Mapping[str, float]


class DescribeClientQuotasResult(NamedTuple):
    """The answer to a :class:`DescribeClientQuotasRequest`."""

    error: ErrorCode
    entries: tuple[ClientQuotas, ...] = ()
    message: str | None = None


class QuotaAlteration(NamedTuple):
    """Changes of the quotas of one entity."""

    entity: EntityParts
    ops: tuple[tuple[str, float | None], ...]
    """Key and value; None removes the quota."""


class AlterClientQuotasRequest(NamedTuple):
    """Change quotas; all others stay."""

    alterations: tuple[QuotaAlteration, ...]
    validate_only: bool = False


class AlteredQuotas(NamedTuple):
    """What became of the changes for one entity: all are made, or none."""

    entity: EntityParts
    error: ErrorCode
    message: str | None = None


class AlterClientQuotasResult(NamedTuple):
    """The answer to an :class:`AlterClientQuotasRequest`, in its order."""

    entries: tuple[AlteredQuotas, ...]
