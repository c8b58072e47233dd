"""CreateAcls."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.errors import LogstoreError, UsageError
from logstore.logdir.acls import Operation, check_acl
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.security.words import NO_ACLS, may_not
from logstore.wire.messages.security.create_acls import AclResult, CreateAclsRequest, CreateAclsResponse


def answer(call: Call, request: CreateAclsRequest, version: int) -> CreateAclsResponse:
    """Adds all rules that can be ones, durably before it is answered."""
    if not call.allows_cluster(Operation.ALTER):
        return _same(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, may_not(Operation.ALTER))
    if call.acls is None:
        return _same(request, ErrorCode.SECURITY_DISABLED, NO_ACLS)
    added = []
    results = []
    for each in request.creations:
        try:
            added.append(check_acl(tuple(each)))
            results.append(AclResult())
        except UsageError as error:
            results.append(AclResult(ErrorCode.INVALID_REQUEST, str(error)))
    try:
        call.acls.add(added)
    except LogstoreError as error:
        return _same(request, code_of(error), str(error))
    return CreateAclsResponse(results=tuple(results))


def refuse(request: CreateAclsRequest, code: ErrorCode, version: int) -> CreateAclsResponse:
    """The error for each rule."""
    return _same(request, code, code.name)


def _same(request: CreateAclsRequest, code: ErrorCode, message: str) -> CreateAclsResponse:
    return CreateAclsResponse(results=(AclResult(code, message),) * len(request.creations))
