"""DescribeUserScramCredentials (KIP-554)."""

from __future__ import annotations

from collections import Counter

from logstore.broker.codes import ErrorCode
from logstore.logdir.acls import Operation
from logstore.logdir.users import ScramMechanism
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.security.words import NO_USERS, may_not
from logstore.wire.messages.security.describe_user_scram_credentials import (
    Credential,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserResult,
)


def answer(
    call: Call, request: DescribeUserScramCredentialsRequest, version: int
) -> DescribeUserScramCredentialsResponse:
    """The credentials of the users that are named; of all, if none is."""
    if not call.allows_cluster(Operation.DESCRIBE):
        return _same(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, may_not(Operation.DESCRIBE))
    if call.users is None:
        return _same(request, ErrorCode.SECURITY_DISABLED, NO_USERS)
    described = call.users.described()
    counts = Counter(each.name for each in request.users or ()) or Counter(list(described))
    rows = tuple(_row(name, count, described.get(name)) for name, count in counts.items())
    return DescribeUserScramCredentialsResponse(users=rows)


def _row(name: str, count: int, credentials: dict[ScramMechanism, int] | None) -> UserResult:
    if count > 1:
        return UserResult(name, ErrorCode.DUPLICATE_RESOURCE, "a user is named twice in one request")
    if credentials is None:
        return UserResult(name, ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {name!r}")
    return UserResult(name, ErrorCode.NONE, None, tuple(Credential(*each) for each in credentials.items()))


def refuse(
    request: DescribeUserScramCredentialsRequest, code: ErrorCode, version: int
) -> DescribeUserScramCredentialsResponse:
    """The error."""
    return _same(request, code, code.name)


def _same(
    request: DescribeUserScramCredentialsRequest, code: ErrorCode, message: str
) -> DescribeUserScramCredentialsResponse:
    """For each user that is named. Only if none is, for the whole request, as Kafka always does it:
    librdkafka 2.16 then frees what it must not, which ends the client's process."""
    names = dict.fromkeys(each.name for each in request.users or ())
    if not names:
        return DescribeUserScramCredentialsResponse(0, code, message)
    return DescribeUserScramCredentialsResponse(
        users=tuple(UserResult(each, code, message) for each in names)
    )
