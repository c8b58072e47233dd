"""The groups that a broker coordinates."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Int16, Int32, String, needs, since


class ListGroupsRequest(NamedTuple):
    """Which groups are wanted: all, or those of some states and types."""

    states_filter: Annotated[tuple[String, ...], needs(4)] = ()
    types_filter: Annotated[tuple[String, ...], needs(5)] = ()


class Group(NamedTuple):
    """A group."""

    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, since(4)] = ""
    group_type: Annotated[String, since(5)] = ""


class ListGroupsResponse(NamedTuple):
    """The groups."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    groups: tuple[Group, ...] = ()
