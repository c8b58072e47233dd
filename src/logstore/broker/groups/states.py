"""The states of a consumer group, as one table.

A group exists to split partitions between its members. It does so in generations, and each generation takes
two rounds of requests:

1. *Join*. Each member sends JoinGroup and waits. When all known members wait, or the rebalance timeout is
   over, the generation begins: all get its number, and one of them, the leader, gets the list of members.
2. *Sync*. The leader computes the assignment and sends it with SyncGroup; the others send an empty SyncGroup
   and wait. When the assignment is stored, each gets its part.

Any change of membership starts again at round 1, so a group is always before round 1 (EMPTY), in it
(PREPARING_REBALANCE), in round 2 (COMPLETING_REBALANCE), or done with both (STABLE).

``TABLE`` says which event leads where, and ``ANSWERS`` what a valid member hears in each state. A pair of
state and event that is not in the table cannot happen. The names of the states are Kafka's, as
DescribeGroups returns them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.state_tables import draw_table, look_up


class State(Enum):
    """Where a group is between two generations."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    """What happens to a group."""

    JOINS = "a member joins"
    CHANGES = "a member changes, or the leader rejoins"
    RESTARTS = "a static member restarts"
    GOES = "a member leaves or fails"
    ALL_JOINED = "all joined, or time is up"
    NONE_LEFT = "no member is left"
    STORED = "the assignment is stored"
    NOT_STORED = "storing fails"
    DELETED = "deleted"
    CLOSED = "the broker closes"


_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = State

TABLE: Final[Mapping[State, Mapping[Event, State]]] = {
    _EMPTY: {
        Event.JOINS: _PREPARING,
        Event.DELETED: _DEAD,
        Event.CLOSED: _DEAD,
    },
    _PREPARING: {
        Event.JOINS: _PREPARING,
        Event.CHANGES: _PREPARING,
        Event.RESTARTS: _PREPARING,
        Event.GOES: _PREPARING,
        Event.ALL_JOINED: _COMPLETING,
        Event.NONE_LEFT: _EMPTY,
        Event.CLOSED: _DEAD,
    },
    _COMPLETING: {
        Event.JOINS: _PREPARING,
        Event.CHANGES: _PREPARING,
        Event.RESTARTS: _PREPARING,  # the leader assigns to the old member id
        Event.GOES: _PREPARING,
        Event.STORED: _STABLE,
        Event.NOT_STORED: _PREPARING,
        Event.CLOSED: _DEAD,
    },
    _STABLE: {
        Event.JOINS: _PREPARING,
        Event.CHANGES: _PREPARING,
        Event.RESTARTS: _STABLE,  # KIP-345: what static members are for
        Event.GOES: _PREPARING,
        Event.CLOSED: _DEAD,
    },
    _DEAD: {},
}
"""State -> event -> next state."""


class Answers(NamedTuple):
    """What a member of the current generation hears."""

    heartbeat: ErrorCode
    sync: ErrorCode | None
    """None: the answer waits for the leader's assignment."""
    commit: ErrorCode


ANSWERS: Final[Mapping[State, Answers]] = {
    _EMPTY: Answers(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE),
    _PREPARING: Answers(ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE),
    _COMPLETING: Answers(ErrorCode.NONE, None, ErrorCode.REBALANCE_IN_PROGRESS),
    _STABLE: Answers(ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE),
    _DEAD: Answers(*[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3),
}
"""State -> what is answered in it."""


def next_state(state: State, event: Event) -> State:
    """Where the event leads.

    Raises:
        RuntimeError: it cannot happen in this state.
    """
    return look_up(TABLE, state, event, f"a group that is {state.value}")


def draw() -> str:
    """The table as a Mermaid state diagram; one line for each pair of states."""
    return draw_table(TABLE, _EMPTY, lambda state: state.value)


def tabulate() -> str:
    """``ANSWERS`` as a Markdown table."""
    lines = ["| State | Heartbeat | SyncGroup | OffsetCommit |", "|---|---|---|---|"]
    for state, answers in ANSWERS.items():
        cells = ["waits" if code is None else code.name for code in answers]
        lines.append(f"| {' | '.join([state.value, *cells])} |")
    return "\n".join([*lines, ""])
