"""The table of states, and the page that is drawn from it.
``python -m tests.broker.consumer_groups.test_states`` writes the diagram into the page."""

from __future__ import annotations

import re

import pytest

from logstore.broker.consumer_groups.states import TABLE, Event, MemberState, draw, next_state
from tests.pages import ROOT

PAGE = ROOT / "docs/groups.md"
_DIAGRAM = re.compile(r"(<!-- consumer_groups.states.draw\(\) -->\n```mermaid\n)(.*?)(```\n)", re.DOTALL)


def filled_page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    text, count = _DIAGRAM.subn(lambda found: found[1] + draw() + found[3], text)
    assert count == 1
    return text


def test_the_page_shows_the_table():
    assert PAGE.read_text(encoding="utf-8") == filled_page()


def test_every_state_can_be_reached_and_left():
    reached = {after for row in TABLE.values() for after in row.values()}
    assert reached == set(MemberState) == set(TABLE)
    assert [state for state, row in TABLE.items() if not row] == [MemberState.GONE]


def test_every_event_leads_somewhere():
    assert {event for row in TABLE.values() for event in row} == set(Event)


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("event", Event)
def test_what_is_not_in_the_table_cannot_happen(state, event):
    if event in TABLE[state]:
        assert next_state(state, event) is TABLE[state][event]
    else:
        with pytest.raises(RuntimeError, match=f"a member that is {state.label} meets {event.name}"):
            next_state(state, event)


if __name__ == "__main__":
    PAGE.write_text(filled_page(), encoding="utf-8")
