"""ConsumerGroupHeartbeat: what a heartbeat makes of a group, and what is answered.

A heartbeat is first held against the group, which changes nothing. Then it is carried out on a copy. No
clock, no storage: both are the caller's.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.advancing import Now, Refusal, advance, check_room
from logstore.broker.consumer_groups.config import ConsumerGroupConfig
from logstore.broker.consumer_groups.group import Group
from logstore.broker.consumer_groups.member import Member
from logstore.broker.consumer_groups.patterns import compiled
from logstore.broker.consumer_groups.requests import (
    JOINING,
    LEAVING,
    NO_TIMEOUT,
    PAUSING,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from logstore.broker.consumer_groups.states import MemberState
from logstore.broker.consumer_groups.targets import ASSIGNORS
from logstore.errors import UsageError


class Step(NamedTuple):
    """What a request leads to."""

    group: Group
    """The same one if nothing has changed; else a copy, to be stored."""
    result: ConsumerGroupHeartbeatResult
    member_id: str


def check_heartbeat(beat: ConsumerGroupHeartbeat) -> Refusal | None:
    """What is wrong with a request, whatever the group is."""
    wrong = _wrong_with(beat)
    if wrong is not None:
        return Refusal(ErrorCode.INVALID_REQUEST, wrong)
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        what = f"the assignor {beat.assignor!r} is not supported; these are: {known}"
        return Refusal(ErrorCode.UNSUPPORTED_ASSIGNOR, what)
    if beat.pattern:
        try:
            compiled(beat.pattern)
        except UsageError as error:
            return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error))
    return None


def _wrong_with(beat: ConsumerGroupHeartbeat) -> str | None:
    if not beat.group_id.strip():
        return "the group id is empty"
    for name, given in (("instance id", beat.instance_id), ("rack id", beat.rack_id)):
        if given is not None and not given.strip():
            return f"the {name} is empty; leave it out"
    epoch = beat.member_epoch
    if epoch != JOINING and not beat.member_id.strip():
        return "the member id is empty"
    if epoch < PAUSING:
        return f"the member epoch is {epoch}; it is -2 or above"
    if epoch == PAUSING and beat.instance_id is None:
        return "only a static member leaves for a while, and there is no instance id"
    return _wrong_with_join(beat) if epoch == JOINING else None


def _wrong_with_join(beat: ConsumerGroupHeartbeat) -> str | None:
    if beat.rebalance_timeout_ms == NO_TIMEOUT:
        return "the first heartbeat has to have a rebalance timeout"
    if beat.topics is None and beat.pattern is None:
        return "the first heartbeat has to have topic names or a regular expression"
    if beat.owned is None or beat.owned:
        return "who joins has no partitions, and says so"
    return None


# Join and stay ---------------------------------------------------------------------------------------------


def carry_out(before: Group, beat: ConsumerGroupHeartbeat, now: Now) -> Step | Refusal:
    """A heartbeat that was checked, of a member that joins or stays.

    Cost: 5 µs if it brings nothing new and nothing has changed. A member that joins 100 others with 1,000
    partitions takes 3 ms.
    """
    refusal = check_room(before, beat.member_id, beat.instance_id, now.config)
    if refusal is not None:
        return refusal
    member_id = beat.member_id or now.new_member_id()
    found = _find_member(before, beat, member_id)
    if isinstance(found, Refusal):
        return found
    after, member = advance(before, found, member_id, beat, now)
    return Step(after, _answer(beat, found, member, now.config), member_id)


def _find_member(group: Group, beat: ConsumerGroupHeartbeat, member_id: str) -> Member | Refusal:
    """The member, as it is known; a new one if it joins."""
    is_joining = beat.member_epoch == JOINING
    if beat.instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            return Member(member_id) if is_joining else _unknown(group, member_id)
        return _check_epoch(member, beat) or member
    static = group.static_member(beat.instance_id)
    if static is None:
        return _new_static(group, member_id) if is_joining else _unknown(group, member_id)
    if is_joining and (static.state is MemberState.AWAY or static.classic is not None):
        return static
    if static.member_id != member_id:
        error = ErrorCode.UNRELEASED_INSTANCE_ID if is_joining else ErrorCode.FENCED_INSTANCE_ID
        return Refusal(error, f"the instance id {beat.instance_id!r} is that of member {static.member_id!r}")
    return _check_epoch(static, beat) or static


def _new_static(group: Group, member_id: str) -> Member | Refusal:
    """A member that becomes static goes on as it is."""
    return group.members.get(member_id, Member(member_id))


def _unknown(group: Group, member_id: str) -> Refusal:
    what = f"{member_id!r} is no member of group {group.group_id!r}"
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, what)


def _check_epoch(member: Member, beat: ConsumerGroupHeartbeat) -> Refusal | None:
    """Whether the member is where the coordinator thinks it is; or one step behind, because an answer was
    lost, and has nothing that it should not have."""
    given = beat.member_epoch
    if given in (JOINING, member.epoch):
        return None
    is_behind = given == member.previous_epoch and given < member.epoch
    if is_behind and beat.owned is not None and beat.owned <= member.assigned.keys():
        return None
    what = (
        f"member {member.member_id!r} is in epoch {member.epoch}, and the heartbeat says {given}: give up "
        "all partitions and join again"
    )
    return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, what)


def _answer(
    beat: ConsumerGroupHeartbeat, before: Member, after: Member, config: ConsumerGroupConfig
) -> ConsumerGroupHeartbeatResult:
    """The assignment is in it if it has changed, or if the member says all of itself: it joins, or has lost
    an answer."""
    is_full = beat.member_epoch == JOINING or not (
        beat.rebalance_timeout_ms == NO_TIMEOUT
        or beat.owned is None
        or (beat.topics is None and beat.pattern is None)
    )
    has_changed = after is not before and after.assigned.keys() != before.assigned.keys()
    return ConsumerGroupHeartbeatResult(
        ErrorCode.NONE,
        after.member_id,
        after.epoch,
        config.group_consumer_heartbeat_interval_ms,
        tuple(sorted(after.assigned)) if is_full or has_changed else None,
    )


# Leave ------------------------------------------------------------------------------------------------------


def leave(before: Group, beat: ConsumerGroupHeartbeat) -> Step | Refusal:
    """A heartbeat that was checked, of a member that leaves, for good or for a while."""
    if beat.instance_id is None:
        member = before.members.get(beat.member_id)
    else:
        member = before.static_member(beat.instance_id)
        if member is not None and member.member_id != beat.member_id:
            what = f"the instance id {beat.instance_id!r} is that of member {member.member_id!r}"
            return Refusal(ErrorCode.FENCED_INSTANCE_ID, what)
    if member is None:
        return _unknown(before, beat.member_id)
    after = before.copy()
    if beat.member_epoch == LEAVING:
        after.remove(member.member_id)
    elif member.state is not MemberState.AWAY:
        after.put(member.away())
    result = ConsumerGroupHeartbeatResult(ErrorCode.NONE, member.member_id, beat.member_epoch)
    return Step(after, result, member.member_id)
