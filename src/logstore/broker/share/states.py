"""The states of a record in a share group, as one table.

Kafka's four states, with their numbers as ``__share_group_state`` has them, and one of our own: a record that
failed waits until the dead-letter topic has it, or the topic's absence is clear. It is stored as what it was
before, so that a crash in between does not lose it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final

from logstore.broker.state_tables import draw_table, look_up


class RecordState(IntEnum):
    """Where a record is on its way through a share group."""

    AVAILABLE = 0
    """A worker may take it."""
    ACQUIRED = 1
    """A worker has it, until its lock runs out."""
    ACKNOWLEDGED = 2
    """Done."""
    FAILED = 3
    """Rejected, or delivered too often: it waits for the dead-letter topic. Not stored."""
    ARCHIVED = 4
    """No worker gets it any more."""


DONE: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
"""No worker gets such a record again."""


class Event(Enum):
    """What happens to a record."""

    ACQUIRED = "a worker takes it"
    ACCEPTED = "accepted"
    RELEASED = "released, or the lock runs out"
    RENEWED = "the lock is renewed"
    REJECTED = "rejected"
    EXHAUSTED = "released, delivered too often"
    IS_GAP = "there is no record"
    BURIED = "the dead-letter topic has it"


_AVAILABLE, _ACQUIRED, _ACKNOWLEDGED, _FAILED, _ARCHIVED = RecordState

TABLE: Final[Mapping[RecordState, Mapping[Event, RecordState]]] = {
    _AVAILABLE: {
        Event.ACQUIRED: _ACQUIRED,
        Event.EXHAUSTED: _FAILED,  # a process that was killed had it
        Event.IS_GAP: _ARCHIVED,
    },
    _ACQUIRED: {
        Event.ACCEPTED: _ACKNOWLEDGED,
        Event.RELEASED: _AVAILABLE,
        Event.RENEWED: _ACQUIRED,
        Event.REJECTED: _FAILED,
        Event.EXHAUSTED: _FAILED,
        Event.IS_GAP: _ARCHIVED,
    },
    _ACKNOWLEDGED: {},
    _FAILED: {
        Event.BURIED: _ARCHIVED,
    },
    _ARCHIVED: {},
}
"""State -> event -> next state. What the retention of the topic deletes is forgotten in any state."""


def next_state(state: RecordState, event: Event) -> RecordState:
    """Where the event leads.

    Raises:
        RuntimeError: it cannot happen in this state.
    """
    return look_up(TABLE, state, event, f"a record that is {state.name}")


def draw() -> str:
    """The table as a Mermaid state diagram; one line for each pair of states."""
    return draw_table(TABLE, _AVAILABLE, lambda state: state.name)
