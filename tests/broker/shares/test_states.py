"""The table of a record's states, and the page that is drawn from it. ``python -m
tests.broker.shares.test_states`` writes the diagram into the page."""

from __future__ import annotations

import re

import pytest

from logstore.broker.share.states import TABLE, Event, RecordState, draw, next_state
from tests.pages import ROOT

PAGE = ROOT / "docs/queues.md"
_DIAGRAM = re.compile(r"(<!-- states.draw\(\) -->\n```mermaid\n)(.*?)(```\n)", re.DOTALL)


def filled_page() -> str:
    text, count = _DIAGRAM.subn(lambda found: found[1] + draw() + found[3], PAGE.read_text(encoding="utf-8"))
    assert count == 1
    return text


def test_the_page_shows_the_table():
    assert PAGE.read_text(encoding="utf-8") == filled_page()


def test_every_state_can_be_reached_and_every_event_leads_somewhere():
    reached = {after for row in TABLE.values() for after in row.values()}
    assert reached == set(RecordState) == set(TABLE)
    assert {event for row in TABLE.values() for event in row} == set(Event)


def test_what_is_done_stays_done():
    for state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED):
        for event in Event:
            with pytest.raises(RuntimeError, match=f"{state.name} meets {event.name}"):
                next_state(state, event)


if __name__ == "__main__":
    PAGE.write_text(filled_page(), encoding="utf-8")
