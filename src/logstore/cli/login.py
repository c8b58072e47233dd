"""How commands connect to brokers that want to know who we are: their options, and what they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from logstore.cli.errors import WRONG, CommandError
from logstore.errors import InvalidConfigError, StorageError, UsageError

if TYPE_CHECKING:
    from logstore.connected import Sasl
    from logstore.security import ClientTls

Tls = Annotated[bool, typer.Option("--tls", help="encrypt, and check who the broker is")]
Authorities = Annotated[
    str | None, typer.Option("--ca", metavar="FILE", help="certificates to trust, in place of the system's")
]
Certificate = Annotated[
    str | None, typer.Option("--certificate", metavar="FILE", help="our own, for brokers that ask who we are")
]
User = Annotated[str | None, typer.Option("--user", help="log in, by --password")]
Mechanism = Annotated[
    str, typer.Option("--mechanism", metavar="NAME", help="of the login: also SCRAM-SHA-512, and PLAIN")
]
Password = Annotated[
    str | None,
    typer.Option("--password", envvar="LOGSTORE_PASSWORD", help="better given in the environment"),
]


class Login(NamedTuple):
    """What the options say."""

    is_encrypted: bool
    """``--tls``; files that only make sense with it mean it, too."""
    authorities: str | None
    certificate: str | None
    key: str | None
    user: str | None
    password: str | None
    mechanism: str

    def settings(self) -> dict[str, Any]:
        """Those of a connection: see :func:`logstore.connect`.

        Raises:
            CommandError: a file is not there, or has something else; there is no such mechanism; or no
                password.
        """
        if self.user is not None and self.password is None:
            raise CommandError("--user needs a password, in the environment's LOGSTORE_PASSWORD", WRONG)
        has_files = any(each is not None for each in (self.authorities, self.certificate, self.key))
        return {"tls": self._tls() if self.is_encrypted or has_files else None, "sasl": self._sasl()}

    def _tls(self) -> ClientTls:
        from logstore.security import ClientTls  # most commands need none

        try:
            return ClientTls(self.authorities, self.certificate, self.key)
        except (StorageError, UsageError) as error:
            raise CommandError(f"--ca, --certificate or --key: {error}", WRONG) from None

    def _sasl(self) -> Sasl | None:
        from logstore.connected import Sasl  # as above

        if self.user is None:
            return None
        try:
            return Sasl(username=self.user, password=self.password or "", mechanism=self.mechanism)
        except InvalidConfigError as error:
            raise CommandError(str(error), WRONG) from None
