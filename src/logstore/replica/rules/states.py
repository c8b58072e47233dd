"""The states of a replica, as one table.

A replica is what one node has of one partition. It leads or follows as the coordinator's state of the
partition says, which is told again for each change. ``TABLE`` says which event leads where. A pair of state
and event that is not in the table cannot happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from logstore.broker.state_tables import draw_table, look_up


class ReplicaState(Enum):
    """What a replica does."""

    IDLE = "Idle"
    """It knows of no leader, or was not told of the partition by the coordinator since it started."""
    COMPARING = "Comparing"
    """It follows, and has to find out where its log and the leader's have parted, if they have."""
    FOLLOWING = "Following"
    """Its log is a beginning of the leader's."""
    LEADING = "Leading"


class Event(Enum):
    """What happens to a replica."""

    ELECTED = "it is elected"
    OTHER_LEADS = "another leads, or leads again"
    NO_LEADER = "nobody leads"
    PARTED = "the logs have parted: it cuts its own"
    AGREED = "the logs agree: it appends"
    LEASE_ENDED = "the coordinator is not heard of"


_IDLE, _COMPARING, _FOLLOWING, _LEADING = ReplicaState

_TOLD: Final = {Event.ELECTED: _LEADING, Event.OTHER_LEADS: _COMPARING, Event.NO_LEADER: _IDLE}

TABLE: Final[Mapping[ReplicaState, Mapping[Event, ReplicaState]]] = {
    _IDLE: {**_TOLD, Event.LEASE_ENDED: _IDLE},
    _COMPARING: {
        **_TOLD,
        Event.PARTED: _COMPARING,
        Event.AGREED: _FOLLOWING,
        Event.LEASE_ENDED: _COMPARING,  # a follower needs no lease: its leader's epoch guards it
    },
    _FOLLOWING: {
        **_TOLD,
        Event.PARTED: _COMPARING,
        Event.AGREED: _FOLLOWING,
        Event.LEASE_ENDED: _FOLLOWING,
    },
    _LEADING: {**_TOLD, Event.LEASE_ENDED: _IDLE},
}
"""State -> event -> next state."""


def next_state(state: ReplicaState, event: Event) -> ReplicaState:
    """Where the event leads.

    Raises:
        RuntimeError: it cannot happen in this state.
    """
    return look_up(TABLE, state, event, f"a replica in state {state.value}")


def draw() -> str:
    """The table as a Mermaid state diagram."""
    return draw_table(TABLE, _IDLE, lambda state: state.value)
