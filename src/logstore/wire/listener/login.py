"""Who a client is: from its certificate, or from a login that comes before all other requests.

A connection asks here before it answers a request. What a client that is not known yet may send is small.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from logstore.errors import UsageError
from logstore.model import Bytes
from logstore.wire.apis import ApiKey
from logstore.wire.frames import encode_frame
from logstore.wire.handlers.call import Call
from logstore.wire.security.names import principal_of
from logstore.wire.security.sasl import MAX_AUTH_BYTES

_BEFORE: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""What may be asked before a login."""
_LOGIN: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_HEADER_BYTES: Final = 64 * 1024
MAX_BYTES_BEFORE: Final = MAX_AUTH_BYTES + _HEADER_BYTES
"""The largest frame of a client that has not logged in."""


class Login:
    """That of one connection. Used by one thread at a time."""

    def __init__(self, call: Call, as_client: Callable[[Call], None]) -> None:
        self._call = call
        self._as_client = as_client
        self._is_raw = False
        """Whether the messages of the login come without headers: after a handshake of version 0."""
        self._ends_at = 0.0

    @property
    def is_awaited(self) -> bool:
        """Whether the client has not said yet who it is."""
        sasl = self._call.sasl
        return sasl is not None and sasl.principal is None

    @property
    def has_failed(self) -> bool:
        """Whether the connection is to be closed after the answer."""
        sasl = self._call.sasl
        return sasl is not None and sasl.has_failed

    def take_certificate(self, certificate: bytes | None) -> None:
        """The client has shown it, or none.

        Raises:
            UsageError: it is no certificate.
        """
        if certificate is not None and self._call.sasl is None:
            self._become(principal_of(certificate))

    def allows(self, key: ApiKey) -> bool:
        """Whether the client may ask for this now."""
        sasl = self._call.sasl
        if sasl is None or key in _LOGIN:
            return True
        if not sasl.is_complete:
            return key in _BEFORE and sasl.principal is None
        return not self._ends_at or time.monotonic() < self._ends_at

    def note_handshake(self, version: int) -> None:
        """A handshake was answered."""
        sasl = self._call.sasl
        self._is_raw = version == 0 and sasl is not None and sasl.is_begun

    def note_step(self) -> None:
        """A message of a login was answered."""
        sasl, lifetime_ms = self._call.sasl, self._call.session_lifetime_ms
        if sasl is None or not sasl.is_complete or sasl.principal is None:
            return
        self._is_raw = False
        if lifetime_ms:
            self._ends_at = time.monotonic() + lifetime_ms / 1000
        self._become(sasl.principal)

    def _become(self, principal: str) -> None:
        self._call.principal = principal
        self._as_client(self._call)

    def raw_answer(self, frame: memoryview) -> list[Bytes] | None:
        """The frame that answers a message without a header; None if it has one."""
        sasl = self._call.sasl
        if not self._is_raw or sasl is None:
            return None
        try:
            answer = sasl.evaluate(bytes(frame))
        except UsageError as error:
            self._call.note_failed_login(self._call.principal, sasl.mechanism, str(error))
            return []
        self.note_step()
        return encode_frame([answer])
