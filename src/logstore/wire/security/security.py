"""All that a listener needs to know who calls and what they may do, put together."""

from __future__ import annotations

from collections.abc import Iterable

from logstore.errors import UsageError
from logstore.logdir.acls import Operation, ResourceType, check_principal
from logstore.wire.security.acls import Acls, stamp_of
from logstore.wire.security.audit import note_refused
from logstore.wire.security.sasl import SaslServer, check_mechanisms
from logstore.wire.security.tls import ServerTls
from logstore.wire.security.users import Users


def protocol_of(*, has_tls: bool, has_sasl: bool) -> str:
    """Kafka's name of what clients and brokers speak with each other."""
    return ("SASL_" if has_sasl else "") + ("SSL" if has_tls else "PLAINTEXT")


class Security:
    """Of one listener. Each part may be missing: without mechanisms there is no login, unless authorized
    everyone may do everything, without TLS everything can be read on the way.

    With ACLs, what none allows is refused. A resource of which none says anything is refused too, unless
    ``allow_everyone_if_no_acl_found``.
    """

    def __init__(
        self,
        users: Users | None = None,
        acls: Acls | None = None,
        *,
        tls: ServerTls | None = None,
        mechanisms: Iterable[str] = (),
        super_users: Iterable[str] = (),
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        """
        Args:
            mechanisms: of SASL, one of which clients have to log in with.
            super_users: principals, such as ``User:admin``, that may do everything, whatever ACLs deny them.
            allow_everyone_if_no_acl_found: allow everything with resources of which no ACL says anything.
                False as in Kafka; with True, a store without ACLs is open to everyone who can log in.

        Raises:
            UsageError: a mechanism of SASL does not exist, or a super user is no principal.
        """
        if isinstance(super_users, str):
            raise UsageError(f"super_users is {super_users!r}; it must be a list of principals")
        self.users = users
        self.acls = acls
        self.tls = tls
        self.super_users = frozenset(map(check_principal, super_users))
        found = tuple(mechanisms)
        self._mechanisms = check_mechanisms(found) if found else ()
        self._is_open = allow_everyone_if_no_acl_found

    @property
    def knows_clients(self) -> bool:
        """Whether a client has to prove who it is."""
        is_shown = self.tls is not None and self.tls.requires_client_certificate
        return bool(self._mechanisms) or is_shown

    @property
    def protocol(self) -> str:
        """Kafka's name of what clients have to speak."""
        return protocol_of(has_tls=self.tls is not None, has_sasl=bool(self._mechanisms))

    @property
    def stamp(self) -> object:
        """While it is the same object, the same client may do the same."""
        return None if self.acls is None else stamp_of(self.acls)

    def sasl_server(self) -> SaslServer | None:
        """For a new connection; None if its client does not have to log in."""
        if self.users is None or not self._mechanisms:
            return None
        return SaslServer(self.users, self._mechanisms)

    def allows(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        is_noted: bool = True,
    ) -> bool:
        """Whether a client may do it. Refused calls go to the log, unless the client did not ask for it:
        pass ``is_noted=False`` for what only filters a list."""
        if self.acls is None or principal in self.super_users:
            return True
        said = self.acls.says(principal, host, operation, resource_type, name)
        is_allowed = self._is_open if said is None else said
        if is_noted and not is_allowed:
            note_refused(principal, host, operation, resource_type, name)
        return is_allowed

    def allows_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether a client may do it with some resource of the type (KIP-679)."""
        if self.acls is None or principal in self.super_users:
            return True
        said = self.acls.says_of_any(principal, host, operation, resource_type)
        return self._is_open if said is None else said
