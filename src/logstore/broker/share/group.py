"""A share group: its members, and its epoch. No I/O, no clock, and no lock: its owner has one.

The epoch counts what members may have to hear of: that one came or left, or subscribes to other topics, and
that a topic has other partitions or is another one. A member's own epoch is the group's as of its last
heartbeat, and it says in each heartbeat which one it has heard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logstore.broker.codes import ErrorCode
from logstore.broker.share.held import HeldPartition
from logstore.broker.share.requests import (
    JOINING,
    LEAVING,
    ShareGroupConfig,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareGroupMember,
    TopicIdPartition,
)
from logstore.errors import UsageError
from logstore.model import TopicPartition


class Member:
    """Of one group."""

    def __init__(self, topics: tuple[str, ...], heard_ms: int) -> None:
        self.topics = topics
        self.heard_ms = heard_ms
        self.epoch = 0
        self.previous_epoch = 0
        """An answer may not have come: then the member goes on with this one."""
        self.assignment: tuple[TopicIdPartition, ...] = ()
        self.client_id = ""
        self.client_host = ""
        self.rack_id: str | None = None
        self.session_timeout_ms = 0

    def describe(self, member_id: str) -> ShareGroupMember:
        """As an administrator sees it."""
        return ShareGroupMember(
            member_id,
            self.client_id,
            self.topics,
            self.epoch,
            self.client_host,
            self.rack_id,
            self.assignment,
        )


def refusal_of(beat: ShareGroupHeartbeat) -> ShareGroupHeartbeatResult | None:
    """Why a heartbeat is not valid, if so, for any group and any member."""
    if not beat.group:
        return ShareGroupHeartbeatResult(ErrorCode.INVALID_GROUP_ID, message="a group needs a name")
    if not beat.member_id or beat.member_epoch < LEAVING or beat.rack_id == "":
        message = "a member needs an id, and an epoch of -1 or above; its rack, if it has one, a name"
        return ShareGroupHeartbeatResult(ErrorCode.INVALID_REQUEST, message=message)
    return None


class Group:
    """The members of a share group, and the partitions that they work on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.config: ShareGroupConfig | None = None
        """Of its members; None before the first."""
        self.members: dict[str, Member] = {}
        self.left: set[str] = set()
        """Those who are members no more, and whose share sessions are open."""
        self.held: dict[TopicPartition, HeldPartition] = {}
        self.epoch = 0
        self._partitions: dict[str, tuple[TopicIdPartition, ...]] = {}
        """Of each topic, when a member last asked."""

    def expire(self, now_ms: int) -> list[str]:
        """Take out the members that were not heard of for too long; returns them."""
        gone = [
            name
            for name, member in self.members.items()
            if now_ms - member.heard_ms > member.session_timeout_ms
        ]
        for name in gone:
            self.remove(name)
        return gone

    def remove(self, member_id: str) -> bool:
        """A member leaves; whether there was one. The settings are those of the next who comes, if it was
        the last."""
        if self.members.pop(member_id, None) is None:
            return False
        self.epoch += 1
        return True

    def check(self, beat: ShareGroupHeartbeat) -> ErrorCode:
        """Whether a heartbeat of a member that does not leave counts."""
        member = self.members.get(beat.member_id)
        if beat.member_epoch == JOINING:
            return ErrorCode.NONE if beat.topics else ErrorCode.INVALID_REQUEST
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if beat.member_epoch not in (member.epoch, member.previous_epoch):
            return ErrorCode.FENCED_MEMBER_EPOCH
        return ErrorCode.NONE

    def check_config(self, config: ShareGroupConfig | None) -> None:
        """Check the settings of a member that joins; None takes what there are.

        Raises:
            UsageError: other members have other settings.
        """
        if not self.members:
            self.config = None
        if config is None or self.config is None or self.config == config:
            return
        differences = ", ".join(
            f"{name} is {have!r} and not {want!r}"
            for name, have, want in zip(config._fields, self.config, config, strict=True)
            if have != want
        )
        raise UsageError(
            f"the workers of group {self.name!r} have other settings: {differences}; "
            "give this one the same, or close the others first"
        )

    def hear(
        self,
        beat: ShareGroupHeartbeat,
        topics: tuple[str, ...],
        partitions: Mapping[str, Sequence[TopicIdPartition]],
        now_ms: int,
    ) -> tuple[Member, bool]:
        """Take in a heartbeat that counts. ``topics``: what the member subscribes to now. ``partitions``: of
        those topics that there are. Returns the member, and whether its assignment is news to it."""
        member = self.members.get(beat.member_id)
        has_changed = member is None or member.topics != topics
        if member is None:
            member = self.members[beat.member_id] = Member(topics, now_ms)
            self.left.discard(beat.member_id)
        for topic in topics:
            found = tuple(partitions.get(topic, ()))
            if self._partitions.get(topic, ()) != found:
                self._partitions[topic] = found
                has_changed = True
        self.epoch += has_changed
        member.topics, member.heard_ms = topics, now_ms
        member.client_id, member.client_host = beat.client_id, beat.client_host
        member.rack_id = member.rack_id if beat.rack_id is None else beat.rack_id
        member.session_timeout_ms = beat.session_timeout_ms
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch
        assignment = tuple(each for topic in topics for each in partitions.get(topic, ()))
        is_new = beat.member_epoch == JOINING or assignment != member.assignment
        member.assignment = assignment
        return member, is_new
