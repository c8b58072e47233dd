"""What is asked of a group coordinator, and what it answers, in Kafka's terms and independent of versions.

Metadata and assignments are bytes that only clients understand. Times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from logstore.broker.codes import ErrorCode

T = TypeVar("T")

Done = Callable[[T], object]
"""Is called exactly once with the result, without a lock held, in any thread; possibly before the call that
took it returns. It must not block."""

NO_MEMBER_ID = ""
CLASSIC = "classic"
CONSUMER = "consumer"
NO_GENERATION = -1


class GroupProtocol(NamedTuple):
    """A way to assign that a member supports, such as ``range``."""

    name: str
    metadata: bytes


class JoinGroup(NamedTuple):
    """Join a group, or stay in it for the next generation."""

    group_id: str
    protocol_type: str
    """``consumer`` for consumers; a group has one type."""
    protocols: tuple[GroupProtocol, ...]
    """The member's preference comes first."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None
    """Makes the member static (KIP-345)."""
    client_id: str = ""
    client_host: str = ""
    requires_member_id: bool = False
    """Version 4 and later: a new dynamic member first gets an id, and joins with it (KIP-394)."""
    can_skip_assignment: bool = False
    """Version 9 and later: the client understands ``skip_assignment`` (KIP-814)."""

    def metadata(self, protocol: str | None) -> bytes:
        """What the member says for a protocol; empty if it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


class JoinedMember(NamedTuple):
    """A member, as its leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes
    """For the protocol that was chosen."""


class JoinGroupResult(NamedTuple):
    """The generation that begins, or an error."""

    error: ErrorCode
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str = NO_MEMBER_ID
    skip_assignment: bool = False
    """The leader keeps the assignment that the group has (KIP-814)."""
    members: tuple[JoinedMember, ...] = ()
    """All members for the leader, none for the others."""
    message: str | None = None
    """Why nobody could be asked. Not of the protocol."""


class SyncGroup(NamedTuple):
    """Ask for the assignment of a generation; the leader brings it."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    """If given, it must be the group's (KIP-559)."""
    protocol: str | None = None
    assignments: Mapping[str, bytes] = {}
    """Member id -> its part; from the leader."""


class SyncGroupResult(NamedTuple):
    """The member's part, or an error."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Heartbeat(NamedTuple):
    """The member is alive. Answered with an :class:`~logstore.broker.codes.ErrorCode`."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    """Who leaves. An administrator removes a static member by its instance id alone."""

    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None


class LeaveGroup(NamedTuple):
    """Members leave, and do not wait for their session timeouts."""

    group_id: str
    members: tuple[LeavingMember, ...]


class LeftMember(NamedTuple):
    """What became of one of them."""

    error: ErrorCode
    member_id: str
    instance_id: str | None


class LeaveGroupResult(NamedTuple):
    """One result for each member of the request, in its order."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


class DescribedMember(NamedTuple):
    """A member, as an administrator sees it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    """Empty unless the group is stable, as is the assignment."""
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A group, as an administrator sees it. One that is not known is ``Dead``, without an error."""

    error: ErrorCode
    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
    message: str | None = None
    """What the error is."""


class ListedGroup(NamedTuple):
    """One line of a list of groups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = CLASSIC
    """``CLASSIC``, or ``CONSUMER`` of the newer protocol (KIP-848)."""


class ListGroupsResult(NamedTuple):
    """All groups, or why they cannot be read."""

    error: ErrorCode
    groups: tuple[ListedGroup, ...] = ()
    message: str | None = None
