"""Join a group of the classic protocol, or join it again as it rebalances."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Bool, Data, Int16, Int32, String, needs, null_since, since


class Protocol(NamedTuple):
    """A protocol (for consumers an assignor), and what the member says in it."""

    name: String = ""
    metadata: Data = b""


class JoinGroupRequest(NamedTuple):
    """Who joins, and the protocols that the member can follow."""

    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1
    member_id: String = ""
    """Empty at the first join, which is answered with the id to join with (KIP-394)."""
    group_instance_id: Annotated[String | None, needs(5)] = None
    protocol_type: String = ""
    protocols: tuple[Protocol, ...] = ()
    reason: Annotated[String | None, since(8)] = None
    """Why, for the broker's log (KIP-800)."""


class Member(NamedTuple):
    """A member, and what it said in the chosen protocol."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, since(5)] = None
    metadata: Data = b""


class JoinGroupResponse(NamedTuple):
    """The new generation. Its leader gets all members, and assigns."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, since(7)] = None
    protocol_name: Annotated[String | None, null_since(7)] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, since(9)] = False
    """Whether the leader keeps the assignment as it is (KIP-814)."""
    member_id: String = ""
    members: tuple[Member, ...] = ()
