"""Change quotas of users, clients and addresses (KIP-546)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Bool, Float64, Int16, Int32, String


class EntityPart(NamedTuple):
    """A part of an entity: a user, a client id or an address. Null stands for the default."""

    entity_type: String = ""
    entity_name: String | None = None


class Operation(NamedTuple):
    """A quota to set or to remove."""

    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class Entry(NamedTuple):
    """An entity, and what to change."""

    entity: tuple[EntityPart, ...] = ()
    operations: tuple[Operation, ...] = ()


class AlterClientQuotasRequest(NamedTuple):
    """The changes."""

    entries: tuple[Entry, ...] = ()
    validate_only: Bool = False


class EntryResult(NamedTuple):
    """An entity that was changed, or why it was not."""

    error_code: Int16 = 0
    error_message: String | None = None
    entity: tuple[EntityPart, ...] = ()


class AlterClientQuotasResponse(NamedTuple):
    """What became of the changes."""

    throttle_time_ms: Int32 = 0
    entries: tuple[EntryResult, ...] = ()
