"""Which quota holds for a client: the first of eight levels that has one (KIP-55).

Each key is looked up by itself: a quota for produced bytes hides none for requests. A quota for a user counts
all its clients together, and one for a client id all users of it; a default gives each its own measure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from logstore.logdir.quotas import DEFAULT, QuotaEntity, Quotas

ANONYMOUS: Final = "ANONYMOUS"
"""The user of clients that have said no name, as in Kafka."""


class Client(NamedTuple):
    """Who asks a broker."""

    user: str = ANONYMOUS
    client_id: str = ""


class Applied(NamedTuple):
    """A quota that holds for a client."""

    entity: QuotaEntity
    """Where it is set."""
    value: float
    measured: QuotaEntity
    """Whose amounts are added up: a user's, a client id's, or those of one client id of one user."""


def levels(client: Client) -> tuple[tuple[QuotaEntity, QuotaEntity], ...]:
    """Where a quota for a client may be set, and what it measures; the most particular first."""
    user, client_id = client
    both, by_user, by_id = QuotaEntity(user, client_id), QuotaEntity(user), QuotaEntity(None, client_id)
    return (
        (both, both),
        (QuotaEntity(user, DEFAULT), both),
        (by_user, by_user),
        (QuotaEntity(DEFAULT, client_id), both),
        (QuotaEntity(DEFAULT, DEFAULT), both),
        (QuotaEntity(DEFAULT), by_user),
        (by_id, by_id),
        (QuotaEntity(None, DEFAULT), by_id),
    )


def find_quota(quotas: Quotas, client: Client, key: str) -> Applied | None:
    """The quota that holds for a client; None if there is none."""
    for entity, measured in levels(client):
        value = quotas.get(entity, {}).get(key)
        if value is not None:
            return Applied(entity, value, measured)
    return None
