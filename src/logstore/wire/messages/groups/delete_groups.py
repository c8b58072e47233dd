"""Delete groups that have no members (KIP-229)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Int16, Int32, String


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
