"""Share groups and their members (KIP-932)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Bool, Int16, Int32, String
from logstore.wire.messages.parts import NOT_ASKED, Assignment


class ShareGroupDescribeRequest(NamedTuple):
    """Which groups."""

    group_ids: tuple[String, ...] = ()
    include_authorized_operations: Bool = False


class Member(NamedTuple):
    """A member, with the partitions that it fetches from."""

    member_id: String = ""
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: tuple[String, ...] = ()
    assignment: Assignment = Assignment()


class Group(NamedTuple):
    """A group."""

    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: tuple[Member, ...] = ()
    authorized_operations: Int32 = NOT_ASKED
    """A bit for each operation that the client may do; ``NOT_ASKED`` if it did not ask."""


class ShareGroupDescribeResponse(NamedTuple):
    """The groups."""

    throttle_time_ms: Int32 = 0
    groups: tuple[Group, ...] = ()
