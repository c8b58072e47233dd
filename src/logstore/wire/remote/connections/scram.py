"""The client's side of SCRAM (RFC 5802, RFC 7677): it proves that it knows a password without sending it, and
checks that the server knows it, too. Bytes in, bytes out.

Names and passwords are taken as they come, as Kafka takes them: without SASLprep.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

from logstore.errors import UsageError

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS: Final = 4096
"""What RFC 7677 demands, and Kafka: fewer would let a false server guess the password."""
MOST_ITERATIONS: Final = 1_000_000
"""Ours: a false server must not keep us busy."""
_NO_BINDING: Final = b"n,,"


class ScramClient:
    """One exchange: :meth:`first`, then :meth:`final`, then :meth:`check`."""

    def __init__(self, mechanism: str, username: str, password: str, *, nonce: str | None = None) -> None:
        """``nonce``: for tests."""
        self._hash = HASHES[mechanism]
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._password = password.encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._first_bare = f"n={name},r={self._nonce}".encode()
        self._expected = b""

    def first(self) -> bytes:
        """The client's first message."""
        return _NO_BINDING + self._first_bare

    def final(self, challenge: bytes) -> bytes:
        """The client's final message, in answer to the server's first.

        Raises:
            UsageError: the server's message is not one of the exchange.
        """
        fields = _fields(challenge)
        nonce, salt, iterations = fields.get("r", ""), _decoded(fields.get("s", "")), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise UsageError("SCRAM: the server's nonce does not go on from the client's")
        if not salt or not iterations.isascii() or not iterations.isdigit() or len(iterations) > 7:
            raise UsageError("SCRAM: the server's challenge has no salt, or no count of iterations")
        if not LEAST_ITERATIONS <= int(iterations) <= MOST_ITERATIONS:
            raise UsageError(
                f"SCRAM: the server wants {iterations} iterations; {LEAST_ITERATIONS} to {MOST_ITERATIONS} "
                "are allowed"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, int(iterations))
        without_proof = b"c=" + base64.b64encode(_NO_BINDING) + b",r=" + nonce.encode()
        signed = b",".join((self._first_bare, challenge, without_proof))
        client_key = self._sign(salted, b"Client Key")
        signature = self._sign(hashlib.new(self._hash, client_key).digest(), signed)
        self._expected = self._sign(self._sign(salted, b"Server Key"), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return without_proof + b",p=" + base64.b64encode(proof)

    def check(self, outcome: bytes) -> None:
        """
        Raises:
            UsageError: the server does not know the password, or refuses the client.
        """
        fields = _fields(outcome)
        if "e" in fields:
            raise UsageError(f"SCRAM: the server refuses: {fields['e'][:200]}")
        if not hmac.compare_digest(_decoded(fields.get("v", "")), self._expected) or not self._expected:
            raise UsageError("SCRAM: the server does not prove that it knows the password")

    def _sign(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise UsageError("SCRAM: the server's message is not UTF-8") from None
    return {each[0]: each[2:] for each in text.split(",") if each[1:2] == "="}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("SCRAM: the server's message is not base64") from None
