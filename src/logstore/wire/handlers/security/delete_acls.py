"""DeleteAcls."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.errors import LogstoreError, UsageError
from logstore.logdir.acls import AclFilter, Operation, check_filter
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.security.words import NO_ACLS, may_not
from logstore.wire.messages.security import delete_acls as messages
from logstore.wire.messages.security.delete_acls import DeleteAclsRequest, DeleteAclsResponse, FilterResult


def answer(call: Call, request: DeleteAclsRequest, version: int) -> DeleteAclsResponse:
    """Deletes what the filters match that can be ones, durably before it is answered."""
    if not call.allows_cluster(Operation.ALTER):
        return _same(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, may_not(Operation.ALTER))
    if call.acls is None:
        return _same(request, ErrorCode.SECURITY_DISABLED, NO_ACLS)
    checked: list[AclFilter | FilterResult] = []
    for each in request.filters:
        try:
            checked.append(check_filter(tuple(each)))
        except UsageError as error:
            checked.append(FilterResult(ErrorCode.INVALID_REQUEST, str(error)))
    try:
        found = iter(call.acls.remove([each for each in checked if isinstance(each, AclFilter)]))
    except LogstoreError as error:
        return _same(request, code_of(error), str(error))
    rows = (
        FilterResult(acls=tuple(messages.Acl(0, None, *acl) for acl in next(found)))
        if isinstance(each, AclFilter)
        else each
        for each in checked
    )
    return DeleteAclsResponse(filters=tuple(rows))


def refuse(request: DeleteAclsRequest, code: ErrorCode, version: int) -> DeleteAclsResponse:
    """The error for each filter."""
    return _same(request, code, code.name)


def _same(request: DeleteAclsRequest, code: ErrorCode, message: str) -> DeleteAclsResponse:
    return DeleteAclsResponse(filters=(FilterResult(code, message),) * len(request.filters))
