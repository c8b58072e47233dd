"""The quotas of a store: the calls that set, remove and show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.pending import wait_for
from logstore.broker.quotas.precedence import ANONYMOUS, Applied, Client, find_quota
from logstore.broker.quotas.requests import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlteration,
)
from logstore.errors import ReadOnlyError, RetriableError, UsageError
from logstore.logdir.quotas import (
    DEFAULT,
    KEYS,
    QuotaEntity,
    QuotaName,
    check_client_name,
    check_entity,
    check_key,
    check_value,
    entity_of,
    parts_of,
    read_quotas,
)

if TYPE_CHECKING:
    from logstore.broker.broker import Broker
    from logstore.logdir.directory import LogDirectory
    from logstore.logdir.watched import WatchedDirectory

__all__ = ["DEFAULT", "Applied", "QuotaEntity", "QuotaName", "StoreQuotas"]


class StoreQuotas:
    """The quotas of one store. Get them by :attr:`.Store.quotas`.

    A quota is for a user, for a client id, or for a client id of a user; :data:`DEFAULT` in place of a name
    is for each that has no quota of its own. Its keys are Kafka's: ``producer_byte_rate`` and
    ``consumer_byte_rate`` are bytes of batches per second, ``request_percentage`` is the time that requests
    take, in percent of one thread's.
    """

    def __init__(self, directory: LogDirectory | WatchedDirectory, broker: Broker | None) -> None:
        """``broker``: what changes them; None if they can only be read."""
        self._directory = directory
        self._broker = broker

    def set(
        self, *, user: QuotaName | None = None, client_id: QuotaName | None = None, **quotas: float
    ) -> None:
        """Set quotas, durably. They hold from the next request on; others of the same client stay.

        ::

            store.quotas.set(user="alice", client_id=DEFAULT, consumer_byte_rate=1_000_000)

        Args:
            user: whom they are for: a name, or :data:`DEFAULT`.
            client_id: the same. At least one of the two is needed.
            quotas: ``producer_byte_rate``, ``consumer_byte_rate``: whole numbers, 1 or above.
                ``request_percentage``: above 0; 100 is all the time of one thread.

        Raises:
            UsageError: a name or value is wrong, or there is none.
            ReadOnlyError: the store was opened read-only.
            CorruptionError: ``quotas.json`` is damaged; says what to do.
            StorageError: the disk refused. Nothing has changed.
            RetriableError: the store is a node of a cluster that cannot be asked now.
            ClosedError: the store is closed.
        """
        entity = check_entity(user, client_id)
        ops = tuple((check_key(key), check_value(key, value)) for key, value in quotas.items())
        if not ops:
            raise UsageError(f"no quota is given: set(..., {KEYS[0]}=1_000_000); there are {KEYS}")
        self._alter(entity, ops)

    def remove(self, *keys: str, user: QuotaName | None = None, client_id: QuotaName | None = None) -> None:
        """Remove quotas, durably: those named, or all of the entity. What is not set is not missed.

        Raises:
            LogstoreError: as :meth:`set`.
        """
        entity = check_entity(user, client_id)
        self._alter(entity, tuple((check_key(key), None) for key in dict.fromkeys(keys or KEYS)))

    def _alter(self, entity: QuotaEntity, ops: tuple[tuple[str, float | None], ...]) -> None:
        self._directory.check_open()
        if self._broker is None:
            raise ReadOnlyError(
                f"{self._directory.path} was opened read-only; open it without read_only to change quotas"
            )
        request = AlterClientQuotasRequest((QuotaAlteration(parts_of(entity), ops),))
        result = wait_for(self._broker.alter_client_quotas(request))
        if result is None:
            raise RetriableError("the broker did not say what became of the quotas")
        (outcome,) = result.entries
        if outcome.error is not ErrorCode.NONE:
            raise error_of(outcome.error, outcome.message or outcome.error.name)

    def list(self) -> dict[QuotaEntity, dict[str, float]]:
        """All quotas: whom each is for, and its keys and values. In a read-only store, as the file has them
        now.

        Raises:
            CorruptionError: ``quotas.json`` is damaged; says what to do.
            ClosedError: the store is closed.
        """
        self._directory.check_open()
        if self._broker is None:
            found = read_quotas(self._directory.context.files, self._directory.path)
            return {entity: dict(found[entity]) for entity in sorted(found, key=str)}
        result = wait_for(self._broker.describe_client_quotas(DescribeClientQuotasRequest()))
        if result is None:
            raise RetriableError("the broker did not tell of the quotas")
        if result.error is not ErrorCode.NONE:
            raise error_of(result.error, result.message or result.error.name)
        return {entity_of(each.entity): dict(each.values) for each in result.entries}

    def of(self, *, user: str = ANONYMOUS, client_id: str = "") -> dict[str, Applied]:
        """The quotas that hold for a client, by key: for each the first that is set, of the user with the
        client id, the user with any, the user; the same of the default user; the client id, any.

        Raises:
            LogstoreError: as :meth:`list`.
        """
        client = Client(
            check_client_name("user", user, least=1), check_client_name("client_id", client_id, least=0)
        )
        quotas = self.list()
        found = {key: find_quota(quotas, client, key) for key in KEYS}
        return {key: applied for key, applied in found.items() if applied is not None}

    def __repr__(self) -> str:
        return f"<Quotas of {self._directory.path}>"
