"""Delete groups that have no members (KIP-229)."""

from __future__ import annotations

from typing import Final, NamedTuple

from logstore.format.messages.fields import Int16, Int32, String
from logstore.format.messages.message import Message


class DeleteGroupsRequest(NamedTuple):
    """Which groups."""

    groups: tuple[String, ...] = ()


class GroupResult(NamedTuple):
    """A group that was deleted, or why it was not."""

    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(NamedTuple):
    """What became of the groups."""

    throttle_time_ms: Int32 = 0
    groups: tuple[GroupResult, ...] = ()


REQUEST: Final = Message(DeleteGroupsRequest, 0, 2, flexible=2)
RESPONSE: Final = Message(DeleteGroupsResponse, 0, 2, flexible=2)
