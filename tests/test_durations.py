"""A run writes its durations into the page on the tests, and nothing else of the page changes."""

from __future__ import annotations

from pathlib import Path

from tests.durations import END, START, in_page
from tests.rotation import LONGEST_PERIOD

PAGE = (Path(__file__).parent.parent / "docs" / "testing.md").read_text(encoding="utf-8")


def test_the_table_takes_the_place_of_the_one_before():
    before, behind = PAGE.partition(START)[0], PAGE.partition(END)[2]
    assert in_page(in_page(PAGE, "old"), "new") == f"{before}{START}\n\nnew\n{END}{behind}"


def test_the_page_tells_the_longest_period():
    assert f"within {LONGEST_PERIOD} commits" in PAGE
