"""The main actions do exactly the file operations that were reviewed: see :mod:`tests.crash.traces`."""

from __future__ import annotations

import pytest

from tests.crash.traces import ACTIONS, GOLDEN, trace


@pytest.mark.parametrize("name", ACTIONS)
def test_trace(name):
    expected = (GOLDEN / f"{name}.txt").read_text()
    assert trace(name) == expected, "if this is meant: python -m tests.crash.traces, and review the change"


def test_there_is_no_other_trace():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(ACTIONS)
