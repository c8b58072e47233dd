"""What every request of a member leads to: what it says is taken in, a changed group gets its next epoch and
target assignment, and the member goes a step towards its target. No clock, no storage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.config import ConsumerGroupConfig
from logstore.broker.consumer_groups.group import Group, Matches
from logstore.broker.consumer_groups.member import Member
from logstore.broker.consumer_groups.patterns import compiled
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResult
from logstore.broker.consumer_groups.states import MemberState
from logstore.broker.consumer_groups.targets import ASSIGNORS, assign
from logstore.broker.consumer_groups.topics import Topics
from logstore.format.messages.consumer_group_records import ClassicMemberMetadata


class Refusal(NamedTuple):
    """Why a request is not carried out."""

    error: ErrorCode
    message: str

    def as_result(self) -> ConsumerGroupHeartbeatResult:
        return ConsumerGroupHeartbeatResult(self.error, message=self.message)


class Now(NamedTuple):
    """What a heartbeat meets."""

    topics: Topics
    now_ms: int
    """The wall clock."""
    config: ConsumerGroupConfig
    new_member_id: Callable[[], str]


def check_room(
    group: Group, member_id: str, instance_id: str | None, config: ConsumerGroupConfig
) -> Refusal | None:
    """A member takes the place that it has, also a static one under a new id."""
    has_place = member_id in group.members or instance_id in group.static
    if has_place or len(group.members) < config.group_consumer_max_size:
        return None
    what = f"group {group.group_id!r} is full: group_consumer_max_size is {config.group_consumer_max_size}"
    return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, what)


def advance(
    before: Group,
    found: Member,
    member_id: str,
    beat: ConsumerGroupHeartbeat,
    now: Now,
    classic: ClassicMemberMetadata | None = None,
) -> tuple[Group, Member]:
    """The group and the member after a request: the same ones if nothing has changed, else copies.

    Args:
        found: the member as it is known; with another id, if a static one takes its place.
        classic: what a member of the classic protocol says beside ``beat``.
    """
    updated = found.updated(beat, classic)
    if _is_quiet(before, updated, found, member_id, now.topics):
        return before, updated
    after = before.copy()
    if found.state is MemberState.AWAY or found.member_id != member_id:
        found = _take_back(after, found, member_id)
        updated = found.updated(beat, classic)
    is_news = member_id not in after.members or not updated.subscribes_as(found)
    after.put(updated)
    move_on(after, now, is_news=is_news or _preferred(after) != _preferred(before))
    reconciled = updated.reconciled(
        after.target_of(member_id),
        after.assignment_epoch,
        beat.owned,
        lambda partition: after.holders.get(partition, member_id) == member_id,
    )
    after.put(reconciled)
    return after, reconciled


def _take_back(group: Group, member: Member, member_id: str) -> Member:
    """A static member is back. Should its new id be that of another member, then that one is gone."""
    if member_id in group.members and member_id != member.member_id:
        group.remove(member_id)
    if member.state is not MemberState.AWAY:  # it has changed its protocol, and its former self is gone
        member = member.away()
        group.put(member)
    return group.rename(member, member_id)


def _preferred(group: Group) -> str:
    return group.preferred_assignor(ASSIGNORS.keys())


def _is_quiet(group: Group, updated: Member, found: Member, member_id: str, topics: Topics) -> bool:
    """Whether nothing has changed, and the member is where it shall be."""
    return (
        updated is found
        and group.members.get(member_id) is updated
        and topics is group.topics_seen
        and group.epoch == group.assignment_epoch
        and updated.is_reconciled_to(group.assignment_epoch)
    )


def move_on(group: Group, now: Now, *, is_news: bool) -> None:
    """The next epoch, if anything has changed, and the target assignment for the epoch."""
    _match(group, now)
    has_changed = group.look_at(now.topics)
    if is_news or has_changed:
        group.epoch += 1
    if group.epoch > group.assignment_epoch:
        assign(group, now.topics, now.now_ms)


def _match(group: Group, now: Now) -> None:
    """Find the topics of regular expressions that are new, or all if topics have changed."""
    patterns = group.patterns()
    for gone in group.matches.keys() - patterns:
        del group.matches[gone]
    for text in patterns:
        known = group.matches.get(text)
        if known is None or now.topics is not group.topics_seen:
            pattern = compiled(text)
            found = frozenset(filter(pattern.matches, now.topics))
            if known is None or found != known.topics:
                group.matches[text] = Matches(found, now.now_ms)
