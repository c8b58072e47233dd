"""A group: its epochs, its members, and what they shall have. No clock, no storage.

A change is made on a copy, which takes the place of the group when it is stored. Members and targets are
values that copies share, so a copy costs a few microseconds for a hundred members, and what has changed is
found by comparing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from logstore.broker.consumer_groups.member import Member
from logstore.broker.consumer_groups.requests import TopicIdPartition
from logstore.broker.consumer_groups.states import Event, GroupState, MemberState, next_state
from logstore.broker.consumer_groups.topics import Topics, hash_of

Target = frozenset[TopicIdPartition]

_NOTHING: Target = frozenset()


class Matches(NamedTuple):
    """What a regular expression matched."""

    topics: frozenset[str]
    timestamp_ms: int
    """When it was looked for."""


class Group:
    """Members, and the target assignment that they go to."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.topics_hash = 0
        """What the topics of the group were like in this epoch."""
        self.assignment_epoch = 0
        """The epoch for which the target assignment was made."""
        self.assigned_at_ms = 0
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Target] = {}
        """Member id -> what it shall have. A member without one shall have nothing."""
        self.matches: dict[str, Matches] = {}
        """Regular expression -> what it matched."""
        self.static: dict[str, str] = {}
        """Instance id -> member id."""
        self.holders: dict[TopicIdPartition, str] = {}
        """Partition -> the member that has it, or is to give it up. No other member may get it."""
        self.topics_seen: Topics | None = None
        """The topics as they were when they were last looked at. Not stored."""

    def copy(self) -> Group:
        """One that can be changed without changing this."""
        other = Group(self.group_id)
        other.epoch, other.topics_hash = self.epoch, self.topics_hash
        other.assignment_epoch, other.assigned_at_ms = self.assignment_epoch, self.assigned_at_ms
        other.members, other.targets = dict(self.members), dict(self.targets)
        other.matches, other.static = dict(self.matches), dict(self.static)
        other.holders, other.topics_seen = dict(self.holders), self.topics_seen
        return other

    # Members

    def put(self, member: Member) -> None:
        """Take in a member, or what has become of it."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._release(before)
        self.members[member.member_id] = member
        for partition in member.held:
            self.holders[partition] = member.member_id
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """A member is gone. The others share what it had, from the next epoch on."""
        member = self.members.pop(member_id)
        next_state(member.state, Event.GOES)
        self._release(member)
        self.targets.pop(member_id, None)
        self.epoch += 1

    def rename(self, member: Member, member_id: str) -> Member:
        """A static member that was away is back under another id: it gets what it had."""
        del self.members[member.member_id]
        self._release(member)
        target = self.targets.pop(member.member_id, None)
        if target is not None:
            self.targets[member_id] = target
        renamed = member.returned(member_id)
        self.put(renamed)
        return renamed

    def _release(self, member: Member) -> None:
        for partition in member.held:
            if self.holders.get(partition) == member.member_id:
                del self.holders[partition]
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)

    def static_member(self, instance_id: str) -> Member | None:
        """The member that has this instance id now."""
        member_id = self.static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    # Topics

    def topics_of(self, member: Member) -> frozenset[str]:
        """The names of the topics that it subscribes to, whether or not they are there."""
        matched = None if member.pattern is None else self.matches.get(member.pattern)
        return member.topics if matched is None else member.topics | matched.topics

    def subscribed_topics(self) -> frozenset[str]:
        """The same of all members."""
        return frozenset().union(*map(self.topics_of, self.members.values()))

    def patterns(self) -> frozenset[str]:
        """The regular expressions of the members."""
        return frozenset(each.pattern for each in self.members.values() if each.pattern is not None)

    def look_at(self, topics: Topics) -> bool:
        """See what the subscribed topics are like now. Whether that has changed."""
        self.topics_seen = topics
        found = hash_of(topics, self.subscribed_topics())
        has_changed = found != self.topics_hash
        self.topics_hash = found
        return has_changed

    # Views

    @property
    def state(self) -> GroupState:
        """Cost: a look at each member."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        epoch = self.assignment_epoch
        are_there = all(each.is_reconciled_to(epoch) for each in self.members.values())
        return GroupState.STABLE if are_there else GroupState.RECONCILING

    def target_of(self, member_id: str) -> Target:
        """What a member shall have."""
        return self.targets.get(member_id, _NOTHING)

    def preferred_assignor(self, known: Collection[str]) -> str:
        """What most members want; the first that is known if none says, and the first by name in a tie."""
        votes = Counter(each.assignor for each in self.members.values() if each.assignor in known)
        first = next(iter(known))
        return min((name or first for name in votes), key=lambda name: (-votes[name], name), default=first)

    def is_expected_back(self, member_id: str) -> bool:
        """Whether it is a static member that has left for a while."""
        return self.members[member_id].state is MemberState.AWAY

    def __eq__(self, other: object) -> bool:
        """Whether the same would be stored."""
        return isinstance(other, Group) and self._stored == other._stored

    __hash__ = None  # type: ignore[assignment]

    @property
    def _stored(self) -> tuple[object, ...]:
        targets = {member_id: target for member_id, target in self.targets.items() if target}
        numbers = (self.epoch, self.topics_hash, self.assignment_epoch, self.assigned_at_ms)
        return (self.group_id, numbers, self.members, targets, self.matches)
