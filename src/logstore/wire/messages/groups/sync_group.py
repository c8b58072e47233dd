"""Hand out the assignments of a new generation. The leader brings them, and each member takes its own."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Data, Int16, Int32, String, needs, since


class Assignment(NamedTuple):
    """What a member gets."""

    member_id: String = ""
    assignment: Data = b""


class SyncGroupRequest(NamedTuple):
    """The assignments, from the leader; from the others none."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, needs(3)] = None
    protocol_type: Annotated[String | None, since(5)] = None
    protocol_name: Annotated[String | None, since(5)] = None
    assignments: tuple[Assignment, ...] = ()


class SyncGroupResponse(NamedTuple):
    """The assignment of the member that asks."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, since(5)] = None
    protocol_name: Annotated[String | None, since(5)] = None
    assignment: Data = b""
