"""Rotating tests leave nothing out: what one turn does not try is tried within the period."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rotation import ALL, LONGEST_PERIOD, VARIABLE, in_turn, part_of_turn, rotating, turn


@pytest.mark.parametrize("period", range(1, LONGEST_PERIOD + 1))
@pytest.mark.parametrize("count", [0, 1, 3, 8, 28, 61])
@pytest.mark.parametrize("first", [0, 526])
def test_each_case_has_one_turn_in_every_period(count, period, first):
    parts = [part_of_turn(range(count), period, number) for number in range(first, first + period)]
    assert sorted(case for part in parts for case in part) == list(range(count))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert part_of_turn(range(count), period, first + period) == parts[0]


def test_every_part_is_all():
    assert part_of_turn("abc", 3, None) == ["a", "b", "c"]


def test_of_a_table_a_turn_meets_every_row_and_every_column():
    table = [(row, column) for row in range(5) for column in range(7)]
    for number in range(7):
        part = part_of_turn(table, 7, number)
        assert [row for row, _ in part] == list(range(5))
        assert len({column for _, column in part}) == 5


def test_a_period_that_nobody_has_promised_is_refused():
    with pytest.raises(ValueError, match=f"1 to {LONGEST_PERIOD}"):
        rotating(range(100), LONGEST_PERIOD + 1)


def test_the_cases_of_other_turns_are_left_to_the_soak(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    marked = {case.values: [mark.name for mark in case.marks] for case in rotating([5, 5, (6, "x")], 3)}
    assert marked == {(5,): [], (6, "x"): ["soak"]}
    monkeypatch.setenv(VARIABLE, ALL)
    assert not any(case.marks for case in rotating(range(9), 3))


def test_a_few_cases_leave_turns_without_one(monkeypatch):
    tried = []
    for number in range(12):
        monkeypatch.setenv(VARIABLE, str(number))
        tried.append([case.values[0] for case in rotating("abc", 6, first=2) if not case.marks])
    assert tried == [[], [], ["a"], ["b"], ["c"], [], [], [], ["a"], ["b"], ["c"], []]


def test_a_test_of_its_own_has_one_turn_in_the_period(monkeypatch):
    for number in range(10):
        monkeypatch.setenv(VARIABLE, str(number))
        assert [at for at in range(5) if not hasattr(in_turn(at, 5), "name")] == [number % 5]
    monkeypatch.setenv(VARIABLE, ALL)
    assert in_turn(3, 5)("the test") == "the test"


@pytest.mark.parametrize("wrong", ["x", "-1", "1.5"])
def test_what_is_no_turn_is_refused(monkeypatch, wrong):
    monkeypatch.setenv(VARIABLE, wrong)
    with pytest.raises(pytest.UsageError, match=VARIABLE):
        turn()


SMALL = """
import pytest
from tests.rotation import rotating, seed_of_turn

@pytest.mark.parametrize("case", rotating("abcde", 3))
def test_case(case):
    print("tried", case, seed_of_turn())
"""


def run_small(tmp_path, chosen):
    """What a run of a small rotating test tried, and its last lines."""
    (tmp_path / "test_small.py").write_text(SMALL)
    options = ["-p", "tests.rotation", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-s", "-m", "not soak", str(tmp_path)],
        env={name: value for name, value in os.environ.items() if name != VARIABLE}
        | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # none is needed, and Hypothesis takes long to import
        | chosen,
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"tried (\w \d+)", done.stdout), done.stdout


def test_a_run_says_how_to_try_the_same_again(tmp_path):
    tried, said = run_small(tmp_path, {})
    [again] = set(re.findall(rf"{VARIABLE}=\d+", said))
    name, _, number = again.partition("=")
    assert 1 <= len(tried) <= 2
    assert run_small(tmp_path, {name: number})[0] == tried
    turns = [run_small(tmp_path, {VARIABLE: str(int(number) + later)})[0] for later in (1, 2)]
    assert sorted(case[0] for case in [*tried, *turns[0], *turns[1]]) == list("abcde")
    everything, said = run_small(tmp_path, {VARIABLE: ALL})
    assert [case[0] for case in everything] == list("abcde")
    assert f"every part ({VARIABLE}={ALL})" in said
