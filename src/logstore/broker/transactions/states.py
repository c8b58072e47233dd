"""The states of a transaction, as one table.

A producer with a transactional id has at most one transaction at a time. It ends in two steps, so that all
its partitions end alike, whatever fails in between:

1. *Prepare*. The decision is stored, and durable before anything else happens: from here on it stands.
2. *Complete*. Each partition gets a marker, which tells readers that the records before it count, or that
   they do not. When all markers are durable, the end is stored. A crash before that repeats this step.

``TABLE`` says which event leads where. A pair of state and event that is not in the table cannot happen. The
names of the states are Kafka's, as DescribeTransactions returns them, and so are their numbers in
``__transaction_state``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from logstore.broker.state_tables import draw_table, look_up


class TransactionState(Enum):
    """How far the last transaction of a transactional id has come."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"

    def __init__(self, name: str) -> None:
        self.number = len(type(self).__members__)
        """As it is stored."""
        self.is_ending = name.startswith("Prepare")
        """Whether its end is decided, and markers are missing."""
        self.is_over = name.startswith("Complete")
        """Whether it has ended in all its partitions."""

    __hash__ = object.__hash__  # there is one object of each; hashing its name takes ten times as long


class Event(Enum):
    """What happens to a transaction."""

    BEGINS_ANEW = "a producer starts"
    ADDS = "partitions are added"
    COMMITS = "the producer commits"
    ABORTS = "the producer aborts"
    FENCES = "the time is up, or another producer starts"
    MARKED = "all markers are durable"
    EXPIRES = "the id was not used for long"

    __hash__ = object.__hash__


_EMPTY, _ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT, _COMPLETE_COMMIT, _COMPLETE_ABORT, _DEAD = TransactionState

_AT_REST: Final = {
    Event.BEGINS_ANEW: _EMPTY,
    Event.ADDS: _ONGOING,
    Event.ABORTS: _PREPARE_ABORT,  # KIP-890: only for the next epoch
    Event.EXPIRES: _DEAD,
}

TABLE: Final[Mapping[TransactionState, Mapping[Event, TransactionState]]] = {
    _EMPTY: _AT_REST,
    _ONGOING: {
        Event.ADDS: _ONGOING,
        Event.COMMITS: _PREPARE_COMMIT,
        Event.ABORTS: _PREPARE_ABORT,
        Event.FENCES: _PREPARE_ABORT,  # with the next epoch, which shuts the old producer out
    },
    _PREPARE_COMMIT: {Event.MARKED: _COMPLETE_COMMIT},
    _PREPARE_ABORT: {Event.MARKED: _COMPLETE_ABORT},
    _COMPLETE_COMMIT: _AT_REST,
    _COMPLETE_ABORT: _AT_REST,
    _DEAD: {},
}
"""State -> event -> next state."""


def next_state(state: TransactionState, event: Event) -> TransactionState:
    """Where the event leads.

    Raises:
        RuntimeError: it cannot happen in this state.
    """
    after = TABLE[state].get(event)
    return after or look_up(TABLE, state, event, f"a transaction in state {state.value}")


def state_of_number(number: int) -> TransactionState | None:
    """The state that is stored under a number; None if there is no such state."""
    states = list(TransactionState)
    return states[number] if 0 <= number < len(states) else None


def draw() -> str:
    """The table as a Mermaid state diagram; one line for each pair of states."""
    return draw_table(TABLE, _EMPTY, lambda state: state.value)
