"""The table of states, and the page that is drawn from it. ``python -m tests.broker.groups.test_states``
writes the diagram and the table of answers into the page."""

from __future__ import annotations

import re

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.states import ANSWERS, TABLE, Event, State, draw, next_state, tabulate
from tests.pages import ROOT

PAGE = ROOT / "docs/groups.md"
_DIAGRAM = re.compile(r"(<!-- states.draw\(\) -->\n```mermaid\n)(.*?)(```\n)", re.DOTALL)
_ANSWERS = re.compile(r"(<!-- states.tabulate\(\) -->\n)((?:\|.*\n)*)()")


def filled_page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    for part, drawn in ((_DIAGRAM, draw()), (_ANSWERS, tabulate())):
        text, count = part.subn(lambda found, drawn=drawn: found[1] + drawn + found[3], text)
        assert count == 1
    return text


def test_the_page_shows_the_table():
    assert PAGE.read_text(encoding="utf-8") == filled_page()


def test_every_state_can_be_reached_and_left():
    reached = {after for row in TABLE.values() for after in row.values()}
    assert reached == set(State) == set(TABLE) == set(ANSWERS)
    assert [state for state, row in TABLE.items() if not row] == [State.DEAD]


def test_every_event_leads_somewhere():
    assert {event for row in TABLE.values() for event in row} == set(Event)


def test_every_arrow_is_drawn():
    lines = draw().splitlines()
    for state, row in TABLE.items():
        for event, after in row.items():
            arrow = f"    {state.value} --> {after.value}: "
            (line,) = [line for line in lines if line.startswith(arrow)]
            assert event.value in line.removeprefix(arrow).split("<br>")


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_what_is_not_in_the_table_cannot_happen(state, event):
    if event in TABLE[state]:
        assert next_state(state, event) is TABLE[state][event]
    else:
        with pytest.raises(RuntimeError, match=f"a group that is {state.value} meets {event.name}"):
            next_state(state, event)


def test_only_a_sync_waits():
    assert [state for state, answers in ANSWERS.items() if None in answers] == [State.COMPLETING_REBALANCE]
    assert ANSWERS[State.COMPLETING_REBALANCE] == (ErrorCode.NONE, None, ErrorCode.REBALANCE_IN_PROGRESS)


if __name__ == "__main__":
    PAGE.write_text(filled_page(), encoding="utf-8")
