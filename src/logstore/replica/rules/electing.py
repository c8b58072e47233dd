"""Who leads a partition: what the controller decides when nodes come and go.

In this order, each of the replicas' order of preference:

1. The leader stays, if it lives on in the life in which it was elected.
2. A member of the ISR that has kept what it had: it has all that was acknowledged.
3. Such a one of the eligible replicas, which have it, too (KIP-966).
4. If none of both is missing, and all have lost something: the last leader, or another of them that has what
   it had flushed. All others have less. With one replica this is every restart after a crash, and then the
   disk may be damaged, too: nobody else has anything.
5. If the topic allows it: any that lives. What it does not have is lost, also at the others.
6. Nobody, until one comes back.

A node with another disk has lost its log, and is never chosen for what the log had, except by 5.

The first of the replicas is the *preferred leader*. When it has come back, and has everything again, it may
lead in place of one that leads well (:func:`prefer`): else one node would lead most after a few losses.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from logstore.replica.rules.partition_state import Living, Member, PartitionState


class Choice(Enum):
    """How a leader was found."""

    STAYS = "stays"
    CLEAN = "clean"
    LAST = "last"
    """All that could have everything came back after a crash: what none had flushed is lost."""
    UNCLEAN = "unclean"
    NOBODY = "nobody"


class Election(NamedTuple):
    """The state to store, unless it is the same as before."""

    choice: Choice
    state: PartitionState


def elect(
    state: PartitionState,
    living: Living,
    *,
    min_isr: int,
    is_durable: bool = False,
    allows_unclean: bool = False,
) -> Election:
    """Who is to lead the partition, and who is in the ISR, with these nodes alive.

    Args:
        min_isr: ``min_insync_replicas`` of the topic.
        is_durable: replicas of the topic tell of nothing that they have not flushed.
        allows_unclean: ``unclean_leader_election_enable`` of the topic.
    """

    def has_all(member: Member) -> bool:
        return is_kept(member, living, is_durable=is_durable)

    # Members that live on in another life stay in the ISR as they were: the leader sees what they have.
    isr = [each for each in state.isr if has_all(each)]
    if state.leader is not None and _can_stay(state.leader, living):
        return Election(Choice.STAYS, state.with_isr(isr, min_isr))
    kept_isr = [_now(each, living) for each in isr]
    kept_eligible = [_now(each, living) for each in state.eligible if has_all(each)]
    for candidates in (kept_isr, kept_eligible):
        leader = _first(state, candidates, living)
        if leader is not None and leader == state.leader:  # it is leaving, and there is no other
            return Election(Choice.STAYS, state.with_isr(isr, min_isr))
        if leader is not None:
            return Election(Choice.CLEAN, _led_by(state, leader, kept_isr or [leader], min_isr))
    last = _last(state, living)
    if last is not None:
        return Election(Choice.LAST, _led_by(state, last, [last], min_isr)._replace(eligible=()))
    anyone = [living[node_id].member for node_id in state.replicas if node_id in living]
    leader = _first(state, anyone, living)
    if allows_unclean and leader is not None:
        return Election(Choice.UNCLEAN, _led_by(state, leader, [leader], min_isr)._replace(eligible=()))
    if state.leader is None:
        return Election(Choice.NOBODY, state)
    return Election(Choice.NOBODY, state._replace(leader=None, leader_epoch=state.leader_epoch + 1))


def prefer(
    state: PartitionState, living: Living, *, min_isr: int, is_durable: bool = False
) -> PartitionState | None:
    """The state in which the preferred leader leads; None if it leads already, or cannot. Arguments as of
    :func:`elect`."""
    preferred = state.member(state.replicas[0])
    if preferred is None or state.leader is None or state.leader.node_id == preferred.node_id:
        return None
    if not is_kept(preferred, living, is_durable=is_durable) or living[preferred.node_id].is_leaving:
        return None
    isr = [_now(each, living) for each in state.isr if is_kept(each, living, is_durable=is_durable)]
    return _led_by(state, _now(preferred, living), isr, min_isr)


def give_to(
    state: PartitionState,
    replicas: tuple[int, ...],
    living: Living,
    *,
    min_isr: int,
    is_durable: bool = False,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> PartitionState | None:
    """The state with these replicas, led by one of them that is in sync; None if there is none. Nodes that
    lose their replica leave the ISR. Other arguments as of :func:`elect`.

    If the partition loses a replica, another leader epoch begins, also with the same leader. So a node that
    does not know yet that it is none, and then is one again, cannot join the ISR before it knows of both: it
    deletes its log in between.
    """
    isr = [each for each in state.isr if each.node_id in replicas]
    left = state._replace(
        replicas=replicas,
        adding=adding,
        removing=removing,
        isr=tuple(isr),  # who leaves with its replica does not become eligible
        eligible=tuple(each for each in state.eligible if each.node_id in replicas),
    )
    if not isr:
        return None
    if set(state.replicas) <= set(replicas):
        return left.with_isr(isr, min_isr)
    leader = state.leader
    if leader is not None and leader.node_id not in replicas:
        isr = [_now(each, living) for each in isr if is_kept(each, living, is_durable=is_durable)]
        leader = _first(left, isr, living)
        if leader is None:
            return None
    return left.with_isr(isr, min_isr)._replace(leader=leader, leader_epoch=state.leader_epoch + 1)


def is_kept(member: Member, living: Living, *, is_durable: bool) -> bool:
    """Whether the node is there, and has what it had as this member."""
    alive = living.get(member.node_id)
    return alive is not None and alive.has_kept(member, is_durable=is_durable)


def _can_stay(leader: Member, living: Living) -> bool:
    alive = living.get(leader.node_id)
    return alive is not None and alive.life == leader.life and not alive.is_leaving


def _now(member: Member, living: Living) -> Member:
    """The node in its present life."""
    return living[member.node_id].member


def _first(state: PartitionState, candidates: list[Member], living: Living) -> Member | None:
    """The most preferred one. One that is leaving only if there is no other."""

    def rank(member: Member) -> tuple[bool, int]:
        return living[member.node_id].is_leaving, state.replicas.index(member.node_id)

    found = [each for each in candidates if each.node_id in state.replicas]
    return min(found, key=rank, default=None)


def _led_by(state: PartitionState, leader: Member, isr: list[Member], min_isr: int) -> PartitionState:
    return state.with_isr([leader, *isr], min_isr)._replace(
        leader=leader, leader_epoch=state.leader_epoch + 1
    )


def _last(state: PartitionState, living: Living) -> Member | None:
    """The best of those that had everything, if all of them are back, and none has all of it."""
    had = (*state.isr, *state.eligible)
    if any(each.node_id not in living for each in had):
        return None
    back = [each for each in had if living[each.node_id].has_disk_of(each)]
    whole = [each for each in back if is_kept(each, living, is_durable=True)]
    found = back if len(state.replicas) == 1 else whole
    return _now(found[0], living) if found else None
