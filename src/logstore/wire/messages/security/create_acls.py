"""Allow or deny operations."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Int8, Int16, Int32, String


class Acl(NamedTuple):
    """A rule: who may, or may not, do what, and from which host."""

    resource_type: Int8 = 0
    """2: topic. 3: group. 4: cluster. 5: transactional id. 6: delegation token. 7: user."""
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    """3: the name itself. 4: names that begin with it."""
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
    """1, in a filter: any. 2: deny. 3: allow."""


class CreateAclsRequest(NamedTuple):
    """The rules to add."""

    creations: tuple[Acl, ...] = ()


class AclResult(NamedTuple):
    """A rule that was added, or why it was not."""

    error_code: Int16 = 0
    error_message: String | None = None


class CreateAclsResponse(NamedTuple):
    """What became of the rules, in the same order."""

    throttle_time_ms: Int32 = 0
    results: tuple[AclResult, ...] = ()
