"""DescribeAcls."""

from __future__ import annotations

from itertools import groupby

from logstore.broker.codes import ErrorCode
from logstore.errors import UsageError
from logstore.logdir.acls import Acl, Operation, PatternType, ResourceType, check_filter
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.security.words import NO_ACLS, may_not
from logstore.wire.messages.security import describe_acls as messages
from logstore.wire.messages.security.describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    Resource,
)


def answer(call: Call, request: DescribeAclsRequest, version: int) -> DescribeAclsResponse:
    """The rules that the filter matches, by resource."""
    if not call.allows_cluster(Operation.DESCRIBE):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeAclsResponse(0, code, may_not(Operation.DESCRIBE))
    if call.acls is None:
        return DescribeAclsResponse(0, ErrorCode.SECURITY_DISABLED, NO_ACLS)
    try:
        found = call.acls.matching(check_filter(tuple(request)))
    except UsageError as error:
        return DescribeAclsResponse(0, ErrorCode.INVALID_REQUEST, str(error))
    resources = (_resource(pattern, list(acls)) for pattern, acls in groupby(found, _pattern))
    return DescribeAclsResponse(resources=tuple(resources))


def _pattern(acl: Acl) -> tuple[ResourceType, str, PatternType]:
    """By which ACLs are in order."""
    return acl.resource_type, acl.resource_name, acl.pattern_type


def _resource(pattern: tuple[ResourceType, str, PatternType], acls: list[Acl]) -> Resource:
    rules = (messages.Acl(each.principal, each.host, each.operation, each.permission) for each in acls)
    return Resource(*pattern, tuple(rules))


def refuse(request: DescribeAclsRequest, code: ErrorCode, version: int) -> DescribeAclsResponse:
    """The error."""
    return DescribeAclsResponse(0, code, code.name)
