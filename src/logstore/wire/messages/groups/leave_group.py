"""Leave a classic group."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Int16, Int32, String, needs, since


class Member(NamedTuple):
    """A member, by its id or as a static member."""

    member_id: String = ""
    group_instance_id: String | None = None
    reason: Annotated[String | None, since(5)] = None
    """Why, for the broker's log (KIP-800)."""


class LeaveGroupRequest(NamedTuple):
    """Who leaves; before version 3 one member."""

    group_id: String = ""
    member_id: Annotated[String, needs(0, 2)] = ""
    members: Annotated[tuple[Member, ...], needs(3)] = ()


class MemberResult(NamedTuple):
    """A member that left, or why it did not."""

    member_id: String = ""
    group_instance_id: String | None = None
    error_code: Int16 = 0


class LeaveGroupResponse(NamedTuple):
    """What became of the members."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[tuple[MemberResult, ...], needs(3)] = ()
