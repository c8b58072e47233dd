"""Say that a member of a classic group is alive, and hear of a rebalance."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Int16, Int32, String, needs, since


class HeartbeatRequest(NamedTuple):
    """Which member is alive."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, needs(3)] = None


class HeartbeatResponse(NamedTuple):
    """Whether to go on, or to join again."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
