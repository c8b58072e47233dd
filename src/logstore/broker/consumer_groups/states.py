"""The states of a member, as one table; and those of a group, which follow from them.

A group has an epoch, which rises when a member comes or goes, when one subscribes to something else, and when
a topic gets partitions. For each epoch the coordinator makes a *target assignment*: what each member shall
have in the end. Each member then goes there by itself, in its heartbeats, without waiting for the others:

1. It gives up what is not in its target. The coordinator says what it may keep, and waits until a heartbeat
   no longer names the rest (UNREVOKED_PARTITIONS).
2. It gets what is in its target and has no other owner, and the epoch of the target. If something still has
   one, it goes on asking (UNRELEASED_PARTITIONS).
3. It has its whole target (STABLE).

So a partition is given to a member only when its last owner has given it up, or is out of the group.

``TABLE`` says which event leads where. The numbers of the states are those of Kafka's records, and the names
of the groups' states those of ConsumerGroupDescribe.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from logstore.broker.state_tables import draw_table, look_up


class MemberState(Enum):
    """How far a member is on the way to its target."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    AWAY = 3
    """A static member that has left for a while. Stored as stable, with the epoch -2."""
    GONE = 4
    """Never stored."""

    @property
    def label(self) -> str:
        """The name as the page has it."""
        return "".join(part.capitalize() for part in self.name.split("_"))


class Event(Enum):
    """What a heartbeat leads to, or the lack of one."""

    MUST_REVOKE = "its target lacks something that it has"
    MUST_WAIT = "others have parts of its target"
    HAS_ALL = "it has its target"
    PAUSES = "a static member leaves for a while"
    RETURNS = "it is back under a new id"
    GOES = "it leaves, fails, or revokes too slowly"


_STABLE, _UNREVOKED, _UNRELEASED, _AWAY, _GONE = MemberState

_ON_THE_WAY: Final = {
    Event.MUST_REVOKE: _UNREVOKED,
    Event.MUST_WAIT: _UNRELEASED,
    Event.HAS_ALL: _STABLE,
    Event.PAUSES: _AWAY,
    Event.GOES: _GONE,
}

TABLE: Final[Mapping[MemberState, Mapping[Event, MemberState]]] = {
    _STABLE: _ON_THE_WAY,
    _UNREVOKED: _ON_THE_WAY,  # MUST_REVOKE: a new target came meanwhile
    _UNRELEASED: _ON_THE_WAY,
    _AWAY: {
        Event.RETURNS: _STABLE,
        Event.GOES: _GONE,
    },
    _GONE: {},
}
"""State -> event -> next state."""


class GroupState(Enum):
    """Where a group is between two target assignments."""

    EMPTY = "Empty"
    """It has no members."""
    ASSIGNING = "Assigning"
    """The next heartbeat makes a target assignment for its epoch."""
    RECONCILING = "Reconciling"
    """A member is not at the target yet, or is away."""
    STABLE = "Stable"
    """All are."""
    DEAD = "Dead"
    """There is no such group."""


def next_state(state: MemberState, event: Event) -> MemberState:
    """Where the event leads.

    Raises:
        RuntimeError: it cannot happen in this state.
    """
    return look_up(TABLE, state, event, f"a member that is {state.label}")


def draw() -> str:
    """The table as a Mermaid state diagram; one line for each pair of states."""
    return draw_table(TABLE, _STABLE, lambda state: state.label)
