"""The server's side of SCRAM (RFC 5802, RFC 7677): two messages in, two messages out.

As Kafka: names and passwords are UTF-8 as they come, without SASLprep; there is no channel binding; optional
extensions are passed over. Unlike Kafka, an unknown user is refused only at the end, as a wrong password is.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from logstore.errors import UsageError
from logstore.logdir.users import ScramMechanism
from logstore.wire.security.hashing import is_proof, server_signature
from logstore.wire.security.users import Login, Users

_NONCE_BYTES: Final = 24
_EXTENSIONS: Final = r"(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*)"
_NONCE: Final = r"(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
"""Printable, without a comma."""
_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>[^,\0]+))?,)(?P<bare>n=(?P<name>[^,\0]+),r={_NONCE}{_EXTENSIONS})"
)
_FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<binding>[^,\0]+),r={_NONCE}{_EXTENSIONS}),p=(?P<proof>[^,\0]+)"
)
_ESCAPED: Final = re.compile("=2C|=3D")
_DELEGATED: Final = ",tokenauth="

INVALID: Final = "invalid credentials"
"""All that a client is told that does not prove who it is."""


class ClientFirst(NamedTuple):
    """The first message of a client."""

    header: str
    """What precedes the rest, about channel binding."""
    bare: str
    name: str
    nonce: str


class ClientFinal(NamedTuple):
    """The second one."""

    unproved: str
    """All of it but the proof."""
    binding: bytes
    """The header of the first message once more."""
    nonce: str
    proof: bytes


class ScramExchange:
    """One login."""

    def __init__(
        self, users: Users, mechanism: ScramMechanism, *, make_nonce: Callable[[], str] | None = None
    ) -> None:
        """``make_nonce``: in place of random text, for tests."""
        self._users = users
        self._mechanism = mechanism
        self._make_nonce = make_nonce or _random_nonce
        self._first: ClientFirst | None = None
        self._login: Login | None = None
        self._nonce = ""
        self._server_first = ""
        self.claimed: str | None = None
        self.user: str | None = None

    def evaluate(self, message: bytes) -> bytes:
        """
        Raises:
            UsageError: the client did not prove who it is, or its message is none. It ends the exchange.
        """
        if self._first is None:
            return self._begin(decode_first(message))
        return self._finish(self._first, decode_final(message))

    def _begin(self, first: ClientFirst) -> bytes:
        self._first = first
        self.claimed = first.name
        self._login = self._users.scram_login(first.name, self._mechanism)
        credential = self._login.credential
        self._nonce = first.nonce + self._make_nonce()
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def _finish(self, first: ClientFirst, final: ClientFinal) -> bytes:
        if final.binding != first.header.encode():
            raise UsageError("the second message of SCRAM has another header than the first")
        # librdkafka before 2.6.1 puts its own nonce in front once more, and Kafka takes that.
        if not final.nonce.endswith(self._nonce):
            raise UsageError("the second message of SCRAM has another nonce than the server's")
        assert self._login is not None
        _, credential, is_real = self._login
        auth_message = f"{first.bare},{self._server_first},{final.unproved}".encode()
        is_proved = is_proof(self._mechanism, credential, final.proof, auth_message)
        signature = server_signature(self._mechanism, credential, auth_message)
        if not (is_proved and is_real):
            raise UsageError(INVALID)
        self.user = first.name
        return b"v=" + base64.b64encode(signature)


def _random_nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


def decode_first(message: bytes) -> ClientFirst:
    """
    Raises:
        UsageError: it is not of the form, or asks for what there is not: channel binding, a mandatory
            extension, another's rights, or a login by delegation token.
    """
    text = _decode(message)
    if text.startswith(("p=", "y,")):
        raise UsageError("there is no channel binding here: a SCRAM message must begin with 'n,'")
    found = _FIRST.fullmatch(text)
    if found is None:
        raise UsageError(
            "the first message of SCRAM is malformed, or has an extension that is not known here"
        )
    name = _unescape(found["name"])
    if found["authzid"] is not None and _unescape(found["authzid"]) != name:
        raise UsageError("the client asks for the rights of another user")
    if any(value != "false" for value in _values_of(found["extensions"], _DELEGATED)):
        raise UsageError("there are no delegation tokens here")
    return ClientFirst(found["header"], found["bare"], name, found["nonce"])


def _values_of(extensions: str, name: str) -> list[str]:
    return [part.partition(",")[0].lower() for part in extensions.split(name)[1:]]


def decode_final(message: bytes) -> ClientFinal:
    """
    Raises:
        UsageError: it is not of the form.
    """
    found = _FINAL.fullmatch(_decode(message))
    if found is None:
        raise UsageError("the second message of SCRAM is malformed")
    return ClientFinal(
        found["unproved"], _decode_base64(found["binding"]), found["nonce"], _decode_base64(found["proof"])
    )


def _decode(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise UsageError("a message of SCRAM is not UTF-8") from None


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise UsageError("the second message of SCRAM is malformed: it is not Base64") from None


def _unescape(name: str) -> str:
    """
    Raises:
        UsageError: an equals sign is not part of one of the two escapes.
    """
    if "=" in _ESCAPED.sub("", name):
        raise UsageError("the name in a message of SCRAM has a bare '='; it must be written '=3D'")
    return name.replace("=2C", ",").replace("=3D", "=")
