"""Quotas of users, clients and addresses (KIP-546)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Bool, Float64, Int8, Int16, Int32, String


class Component(NamedTuple):
    """What one part of an entity must be."""

    entity_type: String = ""
    match_type: Int8 = 0
    """0: exactly ``match``. 1: the default. 2: any that has a name."""
    match: String | None = None


class DescribeClientQuotasRequest(NamedTuple):
    """Which entities: those that match all components."""

    components: tuple[Component, ...] = ()
    strict: Bool = False
    """Whether the entity has no other components."""


class EntityPart(NamedTuple):
    """A part of an entity: a user, a client id or an address. Null stands for the default."""

    entity_type: String = ""
    entity_name: String | None = None


class Quota(NamedTuple):
    """A quota."""

    key: String = ""
    value: Float64 = 0.0


class Entry(NamedTuple):
    """An entity, and its quotas."""

    entity: tuple[EntityPart, ...] = ()
    values: tuple[Quota, ...] = ()


class DescribeClientQuotasResponse(NamedTuple):
    """The quotas."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    entries: tuple[Entry, ...] | None = ()
