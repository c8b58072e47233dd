"""How the tests are shared among processes, and that ``longest.txt`` names tests that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import longest
from tests.longest import ALTERNATING_SECONDS, TOGETHER, is_for_another_turn, place_of, unit_of

ROOT = Path(__file__).parent.parent
KNOWN = {"tests/a/test_x.py::test_long": 9.0, "tests/b/test_y.py::test_longer": 70.5}


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(longest, "longest", lambda: KNOWN)


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        ("tests/a/test_x.py::test_long[case-1]", "tests/a/test_x.py::test_long[case-1]"),
        ("tests/a/test_x.py::test_short[1]", "tests/a/test_x.py"),
        ("tests/a/test_x.py::Test::test_short", "tests/a/test_x.py"),
        (f"{TOGETHER[0]}test_write.py::test_long", TOGETHER[0]),
    ],
)
def test_one_process_runs_a_folder_or_a_long_test_or_the_rest_of_a_file(known, nodeid, unit):
    assert unit_of(nodeid) == unit


def test_the_longest_come_first_and_the_others_stay_in_their_order(known):
    collected = [
        "tests/a/test_w.py::test_2",
        "tests/a/test_x.py::test_long[1]",
        "tests/a/test_w.py::test_1",
        f"{TOGETHER[1]}test_x.py::test_long",
        "tests/b/test_y.py::test_longer",
        f"{TOGETHER[0]}test_x.py::test_long",
    ]
    assert sorted(collected, key=place_of) == [collected[at] for at in (5, 3, 4, 1, 0, 2)]


class Item:
    """As much of a collected test as the question needs."""

    def __init__(self, nodeid, *, marks=(), module=pytest):
        self.nodeid, self.marks, self.module = nodeid, marks, module

    def get_closest_marker(self, name):
        return name if name in self.marks else None


def test_of_two_turns_in_a_row_one_runs_a_long_test(known):
    long = Item("tests/a/test_x.py::test_long[1]")
    assert sorted(is_for_another_turn(long, number) for number in (7, 8)) == [False, True]
    assert not is_for_another_turn(long, None)
    for item in (
        Item("tests/a/test_x.py::test_short"),
        Item(long.nodeid, marks=["every_turn"]),
        Item(long.nodeid, module=longest),  # which uses the turns itself, as this test's module does
    ):
        assert not any(is_for_another_turn(item, number) for number in (7, 8))


def test_two_turns_in_a_row_share_the_long_tests_evenly():
    seconds = [0.0, 0.0]
    for name, took in longest.longest().items():
        if took >= ALTERNATING_SECONDS:
            seconds[is_for_another_turn(Item(name), 0)] += took
    assert min(seconds) > 0.4 * sum(seconds)


def test_what_is_said_to_take_long_is_there():
    texts = {}
    for name in longest.longest():
        file, *_, function = name.split("::")
        if file not in texts:
            texts[file] = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {function}(" in texts[file] or function == "runTest", f"{name} is gone"
