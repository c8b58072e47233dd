"""What a group must not forget when the broker stops, and the seam to what stores it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import Done, JoinGroup


class MemberSnapshot(NamedTuple):
    """A member, with the fields of Kafka's GroupMetadataValue."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    """-1 in records of Kafka 0.10.0 and before: the session timeout serves."""
    session_timeout_ms: int
    subscription: bytes
    """The metadata for the group's protocol."""
    assignment: bytes


class GroupSnapshot(NamedTuple):
    """A group between two rebalances, with the fields of Kafka's GroupMetadataValue, version 3."""

    group_id: str
    protocol_type: str
    """Empty for a group that only ever had offsets committed."""
    generation: int
    protocol: str | None
    leader_id: str | None
    state_timestamp_ms: int
    """Since when the group is in its state; -1 in records of Kafka 2.0 and before."""
    members: tuple[MemberSnapshot, ...]


class HandedGroup(NamedTuple):
    """A group with its members on the way from one protocol to the other."""

    snapshot: GroupSnapshot
    joins: tuple[JoinGroup, ...]
    """With which its members have joined, in the order of the snapshot, each with its member id."""
    generations: tuple[int, ...]
    """What each of them takes for the generation, until it joins again."""


class GroupStorage(Protocol):
    """Where snapshots go. Each method answers ``done`` exactly once, possibly before it returns.

    Calls for one group come in the order of its changes, one at a time, without a lock held. They may come
    from a thread that must not wait for the disk, so hand over what does. The error given to ``done`` is
    passed on to clients as it is; COORDINATOR_NOT_AVAILABLE makes them try again.
    """

    def store(self, snapshot: GroupSnapshot, done: Done[ErrorCode]) -> None:
        """Keep the snapshot in place of the group's previous one."""
        ...

    def delete(self, group_id: str, done: Done[ErrorCode]) -> None:
        """Forget the group's snapshot, and what it has committed."""
        ...

    def forget(self, group_id: str, done: Done[ErrorCode]) -> None:
        """Forget the group's snapshot. What is committed meanwhile stays."""
        ...
