"""The table of a transaction's states, and the page that is drawn from it.
``python -m tests.broker.transactions.test_states`` writes the diagram into the page."""

from __future__ import annotations

import re

import pytest

from logstore.broker.transactions.states import (
    TABLE,
    Event,
    TransactionState,
    draw,
    next_state,
    state_of_number,
)
from tests.pages import ROOT

PAGE = ROOT / "docs/transactions.md"
_DIAGRAM = re.compile(r"(<!-- states.draw\(\) -->\n```mermaid\n)(.*?)(```\n)", re.DOTALL)


def filled_page() -> str:
    text, count = _DIAGRAM.subn(lambda found: found[1] + draw() + found[3], PAGE.read_text(encoding="utf-8"))
    assert count == 1
    return text


def test_the_page_shows_the_table():
    assert PAGE.read_text(encoding="utf-8") == filled_page()


def test_every_state_can_be_reached_and_left():
    reached = {after for row in TABLE.values() for after in row.values()}
    assert reached == set(TransactionState) == set(TABLE)
    assert [state for state, row in TABLE.items() if not row] == [TransactionState.DEAD]


def test_every_event_leads_somewhere():
    assert {event for row in TABLE.values() for event in row} == set(Event)


def test_every_arrow_is_drawn():
    lines = draw().splitlines()
    for state, row in TABLE.items():
        for event, after in row.items():
            arrow = f"    {state.value} --> {after.value}: "
            (line,) = [line for line in lines if line.startswith(arrow)]
            assert event.value in line.removeprefix(arrow).split("<br>")


def test_the_numbers_are_kafkas():
    assert [state_of_number(number) for number in range(8)] == [*TransactionState, None]
    assert [state.number for state in TransactionState] == list(range(7))
    assert state_of_number(-1) is None


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("event", Event)
def test_what_is_not_in_the_table_cannot_happen(state, event):
    if event in TABLE[state]:
        assert next_state(state, event) is TABLE[state][event]
    else:
        with pytest.raises(RuntimeError, match=f"in state {state.value} meets {event.name}"):
            next_state(state, event)


if __name__ == "__main__":
    PAGE.write_text(filled_page(), encoding="utf-8")
