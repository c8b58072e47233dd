"""Choose the SASL mechanism of a connection."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Int16, String


class SaslHandshakeRequest(NamedTuple):
    """The mechanism that the client wants."""

    mechanism: String = ""


class SaslHandshakeResponse(NamedTuple):
    """The mechanisms that there are."""

    error_code: Int16 = 0
    mechanisms: tuple[String, ...] = ()
