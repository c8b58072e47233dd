"""SaslAuthenticate."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.errors import UsageError
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.security.words import NO_USERS
from logstore.wire.messages.security.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def answer(call: Call, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
    """One step of a login. After an error the connection is to be closed: see
    :attr:`.SaslServer.has_failed`."""
    sasl = call.sasl
    if sasl is None:
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, NO_USERS)
    is_begun = sasl.is_begun
    try:
        auth_bytes = sasl.evaluate(request.auth_bytes)
    except UsageError as error:
        call.note_failed_login(sasl.claimed, sasl.mechanism, str(error))
        code = ErrorCode.SASL_AUTHENTICATION_FAILED if is_begun else ErrorCode.ILLEGAL_SASL_STATE
        return SaslAuthenticateResponse(code, f"Authentication failed: {error}")
    lifetime_ms = call.session_lifetime_ms if sasl.is_complete else 0
    return SaslAuthenticateResponse(ErrorCode.NONE, None, auth_bytes, lifetime_ms)


def refuse(request: SaslAuthenticateRequest, code: ErrorCode, version: int) -> SaslAuthenticateResponse:
    """The error."""
    return SaslAuthenticateResponse(code, code.name)
