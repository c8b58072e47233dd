"""Classic groups and their members."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Bool, Data, Int16, Int32, String, needs, since
from logstore.wire.messages.parts import NOT_ASKED


class DescribeGroupsRequest(NamedTuple):
    """Which groups."""

    groups: tuple[String, ...] = ()
    include_authorized_operations: Annotated[Bool, needs(3)] = False


class Member(NamedTuple):
    """A member, with what it said when it joined, and what it was assigned."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, since(4)] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Data = b""
    member_assignment: Data = b""


class Group(NamedTuple):
    """A group."""

    error_code: Int16 = 0
    error_message: Annotated[String | None, since(6)] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: tuple[Member, ...] = ()
    authorized_operations: Annotated[Int32, since(3)] = NOT_ASKED
    """A bit for each operation that the client may do; ``NOT_ASKED`` if it did not ask."""


class DescribeGroupsResponse(NamedTuple):
    """The groups."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    groups: tuple[Group, ...] = ()
