"""JoinGroup: who may join, and how.

A request is first held against the group, which changes nothing, and then carried out by
:class:`~logstore.broker.groups.active.ActiveGroup`.
"""

from __future__ import annotations

from collections.abc import Callable

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.active import ActiveGroup
from logstore.broker.groups.config import GroupConfig
from logstore.broker.groups.group import Group
from logstore.broker.groups.requests import NO_MEMBER_ID, Done, JoinGroup, JoinGroupResult
from logstore.broker.groups.states import State


def check_join(config: GroupConfig, joins: JoinGroup) -> ErrorCode:
    """What is wrong with a request, whatever the group is."""
    if not joins.group_id:
        return ErrorCode.INVALID_GROUP_ID
    shortest_ms, longest_ms = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not shortest_ms <= joins.session_timeout_ms <= longest_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def join(
    active: ActiveGroup, joins: JoinGroup, new_member_id: Callable[[str], str], done: Done[JoinGroupResult]
) -> None:
    """Let a member join, new or known. Answers at once or when the next generation begins."""
    if not _has_room(active.group, joins, active.config.group_max_size):
        member = active.group.members.get(joins.member_id)
        if member is not None:
            active.drop(member)
        elif joins.member_id in active.group.pending:
            active.remove_pending(joins.member_id)
        active.answer(done, JoinGroupResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
        active.begin_if_all_joined()
        return
    refusal = _refusal(active.group, joins)
    if refusal is not ErrorCode.NONE:
        active.answer(done, JoinGroupResult(refusal, joins.member_id))
    elif joins.member_id == NO_MEMBER_ID:
        _join_new(active, joins, new_member_id(joins.instance_id or joins.client_id), done)
    elif joins.member_id in active.group.pending:
        active.add(joins, joins.member_id, done)
    else:
        _join_known(active, joins, done)


def _has_room(group: Group, joins: JoinGroup, max_size: int) -> bool:
    """During a rebalance those who have joined count, so that a group which has become too large loses those
    that come last. A static member that restarts takes the place that it has; Kafka refuses it."""
    if group.state in (State.EMPTY, State.DEAD):
        return True
    member = group.members.get(joins.member_id)
    if member is None and joins.member_id == NO_MEMBER_ID:
        member = group.static_member(joins.instance_id)
    if group.state is State.PREPARING_REBALANCE:
        return (member is not None and member.join_done is not None) or group.joined_count < max_size
    return member is not None or len(group.members) < max_size


def _refusal(group: Group, joins: JoinGroup) -> ErrorCode:
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not group.accepts(joins):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    is_pending = joins.member_id in group.pending and joins.instance_id is None
    if joins.member_id == NO_MEMBER_ID or is_pending:
        return ErrorCode.NONE
    return group.check_member(joins.member_id, joins.instance_id)


def _join_new(active: ActiveGroup, joins: JoinGroup, member_id: str, done: Done[JoinGroupResult]) -> None:
    former = active.group.static_member(joins.instance_id)
    if former is not None:
        active.restart(former, joins, member_id, done)
    elif joins.instance_id is None and joins.requires_member_id:
        active.add_pending(member_id, joins.session_timeout_ms)
        active.answer(done, JoinGroupResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        active.add(joins, member_id, done)


def _join_known(active: ActiveGroup, joins: JoinGroup, done: Done[JoinGroupResult]) -> None:
    """A member that has nothing new to say hears of the generation again, as after a lost answer. The leader
    of a stable group is different: it joins because topics have changed, which its metadata does not show."""
    state = active.group.state
    member = active.group.members[joins.member_id]
    leads_stable = state is State.STABLE and member.member_id == active.group.leader_id
    has_changed = joins.protocols != member.joins.protocols
    if state is State.PREPARING_REBALANCE or leads_stable or has_changed:
        active.rejoin(member, joins, done)
    else:
        active.answer(done, active.group.joined(member))
