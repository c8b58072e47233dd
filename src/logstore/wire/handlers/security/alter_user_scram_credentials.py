"""AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.security.words import NO_USERS, may_not
from logstore.wire.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    UserResult,
)


def answer(
    call: Call, request: AlterUserScramCredentialsRequest, version: int
) -> AlterUserScramCredentialsResponse:
    """Deletes and sets credentials, durably before it is answered."""
    if not call.allows_cluster(Operation.ALTER):
        return _same(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, may_not(Operation.ALTER))
    if call.users is None:
        return _same(request, ErrorCode.SECURITY_DISABLED, NO_USERS)
    altered = call.users.alter(request.deletions, request.upsertions)
    return AlterUserScramCredentialsResponse(users=tuple(UserResult(*each) for each in altered))


def refuse(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, version: int
) -> AlterUserScramCredentialsResponse:
    """The error for each user."""
    return _same(request, code, code.name)


def _same(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, message: str
) -> AlterUserScramCredentialsResponse:
    deleted = [each.name for each in request.deletions]
    names = dict.fromkeys([*deleted, *(each.name for each in request.upsertions)])
    return AlterUserScramCredentialsResponse(users=tuple(UserResult(name, code, message) for name in names))
