"""The rules about who may do what."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Int8, Int16, Int32, String


class DescribeAclsRequest(NamedTuple):
    """A filter; what is null in it matches everything."""

    resource_type_filter: Int8 = 0
    """1: any. 2: topic. 3: group. 4: cluster. 5: transactional id. 6: delegation token. 7: user."""
    resource_name_filter: String | None = None
    pattern_type_filter: Int8 = 3
    """1: any. 2: all that apply to the name. 3: the name itself. 4: names that begin with it."""
    principal_filter: String | None = None
    host_filter: String | None = None
    operation: Int8 = 0
    permission_type: Int8 = 0
    """1, in a filter: any. 2: deny. 3: allow."""


class Acl(NamedTuple):
    """A rule."""

    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class Resource(NamedTuple):
    """The rules of a resource."""

    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    """3: the name itself. 4: names that begin with it."""
    acls: tuple[Acl, ...] = ()


class DescribeAclsResponse(NamedTuple):
    """The rules that match."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    resources: tuple[Resource, ...] = ()
