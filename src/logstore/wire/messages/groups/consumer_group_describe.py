"""Groups of the newer consumer protocol and their members (KIP-848)."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from logstore.format.messages.fields import Bool, Int8, Int16, Int32, String, since
from logstore.wire.messages.parts import NOT_ASKED, Assignment

OF_CLASSIC_PROTOCOL: Final = 0
OF_NEWER_PROTOCOL: Final = 1


class ConsumerGroupDescribeRequest(NamedTuple):
    """Which groups."""

    group_ids: tuple[String, ...] = ()
    include_authorized_operations: Bool = False


class Member(NamedTuple):
    """A member, with what it owns, and what it shall own."""

    member_id: String = ""
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: tuple[String, ...] = ()
    subscribed_topic_regex: String | None = None
    """A regular expression of RE2/J."""
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    member_type: Annotated[Int8, since(1)] = -1
    """0: of the classic protocol. 1: of the newer one. -1: not known."""


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


class ConsumerGroupDescribeResponse(NamedTuple):
    """The groups."""

    throttle_time_ms: Int32 = 0
    groups: tuple[Group, ...] = ()
