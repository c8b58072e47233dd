"""How the tests are shared among processes, and that ``longest.txt`` names tests that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import longest
from tests.longest import PERIODS, TOGETHER, dividing, is_for_another_turn, place_of, turns, unit_of

ROOT = Path(__file__).parent.parent
KNOWN = {
    "tests/a/test_x.py::test_two_seconds": 2.0,
    "tests/a/test_x.py::test_long": 9.0,
    "tests/b/test_y.py::test_longer": 70.5,
    "tests/crash/test_store.py::test_chains_of_cuts": 20.9,
    "tests/crash/test_store.py::test_single_cuts": 6.5,
}


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

    def __init__(self, nodeid, *, marks=()):
        self.nodeid, self.marks = nodeid, marks

    def get_closest_marker(self, name):
        return name if name in self.marks else None


@pytest.fixture
def dealt(known):
    turns.cache_clear()
    yield
    turns.cache_clear()


def test_the_longer_a_test_the_fewer_turns_run_it(dealt):
    def count(nodeid, **options):
        item = Item(nodeid, **options)
        return sum(not is_for_another_turn(item, number) for number in range(48, 64))

    assert count("tests/a/test_x.py::test_short") == 16
    assert count("tests/a/test_x.py::test_two_seconds") == 2
    assert count("tests/a/test_x.py::test_long[1]") == count("tests/a/test_x.py::test_long[2]") == 1
    assert count("tests/a/test_x.py::test_long[1]", marks=["every_turn"]) == 16
    assert count("tests/crash/test_store.py::test_chains_of_cuts") == 16  # it divides itself
    assert count("tests/crash/test_store.py::test_single_cuts") == 1
    assert not is_for_another_turn(Item("tests/a/test_x.py::test_long[1]"), None)


DIVIDED = """
from tests.rotation import in_turn, part, rotating, seed_of_turn
from tests.some import CASES

SOME = rotating(CASES, 3)

def an_eighth(places):
    return part(places, 8)

@pytest.fixture
def places():
    return an_eighth(CASES)

@pytest.mark.parametrize("case", SOME)
def test_by_a_constant(case): ...

def test_by_a_fixture(places): ...

@in_turn(0, 2)
def test_as_a_whole(): ...

class TestAll:
    def test_by_a_function(self):
        an_eighth([])

    def test_with_a_seed(self):
        seed_of_turn()

def test_of_all(case): ...
"""


def test_a_test_divides_itself_by_whatever_it_has_from_the_rotation(monkeypatch, tmp_path):
    monkeypatch.setattr(longest, "ROOT", tmp_path)
    (tmp_path / "divided.py").write_text(DIVIDED)
    (tmp_path / "whole.py").write_text("def part(): ...\n\ndef test_by_its_own(): part()\n")
    found = {name for name in dividing("divided.py") if name.startswith("test")}
    assert found == {"test_by_a_constant", "test_by_a_fixture", "test_as_a_whole", "test_by_a_function"}
    assert not dividing("whole.py")
    assert not dividing("gone.py")


def test_the_turns_take_the_same_time():
    took = longest.longest()
    dealt = [turns()[name] + (took[name],) for name in turns()]
    seconds = [
        sum(s for period, first, s in dealt if number % period == first)
        for number in range(max(PERIODS.values()))
    ]
    assert max(seconds) - min(seconds) < 20


def test_what_is_said_to_take_long_is_there():
    texts = {}
    for name in longest.longest():
        file, *_, function = name.split("::")
        if file not in texts:
            texts[file] = (ROOT / file).read_text(encoding="utf-8")
        is_inherited = name.count("::") == 2 and f"conformance.{name.split('::')[1]}" in texts[file]
        assert f"def {function}(" in texts[file] or is_inherited or function == "runTest", f"{name} is gone"
