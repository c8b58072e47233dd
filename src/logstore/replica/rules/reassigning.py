"""Partitions that move to other nodes (KIP-455): what an administrator asks for, and what the controller does
until it is so.

1. The partition gets the nodes that are new as further replicas. They copy its log, and join the ISR like any
   follower.
2. When all of them are in the ISR, and enough of the replicas that stay, the others are replicas no more:
   they delete their logs.

Until then it can be called off, or be sent elsewhere.
"""

from __future__ import annotations

from logstore.replica.rules.electing import give_to, is_kept
from logstore.replica.rules.partition_state import Living, PartitionState


def is_moving(state: PartitionState) -> bool:
    """Whether the partition is not yet where it is to be."""
    return bool(state.adding or state.removing)


def origin(state: PartitionState) -> tuple[int, ...]:
    """The replicas that it had before."""
    return tuple(each for each in state.replicas if each not in state.adding)


def target(state: PartitionState) -> tuple[int, ...]:
    """The replicas that it is to have."""
    return tuple(each for each in state.replicas if each not in state.removing)


def reassign(
    state: PartitionState,
    wanted: tuple[int, ...],
    living: Living,
    *,
    min_isr: int,
    is_durable: bool = False,
) -> PartitionState | None:
    """The state in which the partition is on the way to these replicas, in their order of preference; with
    those that it had, if that is called off. None if no replica that would be left has everything."""
    had = origin(state)
    losing = tuple(each for each in had if each not in wanted)
    return give_to(
        state,
        wanted + losing,
        living,
        min_isr=min_isr,
        is_durable=is_durable,
        adding=tuple(each for each in wanted if each not in had),
        removing=losing,
    )


def arrive(
    state: PartitionState, living: Living, *, min_isr: int, is_durable: bool = False
) -> PartitionState | None:
    """The state in which the partition is where it was to be; None as long as it moves, or does not. To be
    asked when an election has nothing to change: the ISR are nodes that live."""
    if not is_moving(state) or state.leader is None:
        return None
    there = target(state)
    have = {
        each.node_id
        for each in state.isr
        if each.node_id in there and is_kept(each, living, is_durable=is_durable)
    }
    if not have.issuperset(state.adding) or len(have) < min(min_isr, len(there)):
        return None
    return give_to(state, there, living, min_isr=min_isr, is_durable=is_durable)
