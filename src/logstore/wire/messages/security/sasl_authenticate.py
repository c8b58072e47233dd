"""One step of a SASL exchange (KIP-152)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Data, Int16, Int64, String, since


class SaslAuthenticateRequest(NamedTuple):
    """The client's bytes."""

    auth_bytes: Data = b""


class SaslAuthenticateResponse(NamedTuple):
    """The broker's bytes."""

    error_code: Int16 = 0
    error_message: String | None = None
    auth_bytes: Data = b""
    session_lifetime_ms: Annotated[Int64, since(1)] = 0
    """After which the client has to authenticate again (KIP-368); 0: never."""
