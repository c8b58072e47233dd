"""SaslHandshake."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.wire.handlers.call import Call
from logstore.wire.messages.security.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def answer(call: Call, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
    """Begins a login, if there is such a mechanism here. After an error the connection is to be closed: see
    :attr:`.SaslServer.has_failed`."""
    if call.sasl is None:
        return refuse(request, ErrorCode.ILLEGAL_SASL_STATE, version)
    code = call.sasl.handshake(request.mechanism)
    if code is not ErrorCode.NONE:
        call.note_failed_login(call.sasl.claimed, request.mechanism, code.name)
    return SaslHandshakeResponse(code, call.sasl.mechanisms)


def refuse(request: SaslHandshakeRequest, code: ErrorCode, version: int) -> SaslHandshakeResponse:
    """The error."""
    return SaslHandshakeResponse(code)
