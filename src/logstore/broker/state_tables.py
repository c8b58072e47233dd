"""What state machines have in common that are a table: state -> event -> next state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


def look_up(table: Mapping[S, Mapping[E, S]], state: S, event: E, who: str) -> S:
    """Where the event leads. ``who`` names, for the error, what is in the state.

    Raises:
        RuntimeError: it cannot happen in this state.
    """
    after = table[state].get(event)
    if after is None:
        raise RuntimeError(f"{who} meets {event.name}, which its table does not have")
    return after


def draw_table(table: Mapping[S, Mapping[E, S]], first: S, name_of: Callable[[S], str]) -> str:
    """The table as a Mermaid state diagram: one line for each pair of states. A state that nothing leads out
    of is an end."""
    lines = ["stateDiagram-v2", f"    [*] --> {name_of(first)}"]
    ends = []
    for state, row in table.items():
        for after in type(first):
            events = [event.value for event, leads_to in row.items() if leads_to is after]
            if events:
                lines.append(f"    {name_of(state)} --> {name_of(after)}: {'<br>'.join(events)}")
        if not row:
            ends.append(f"    {name_of(state)} --> [*]")
    return "\n".join([*lines, *ends, ""])
