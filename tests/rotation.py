"""Which part of the long tests a run tries. Each commit tries the next part, and ``make soak`` all of them.

The turn is the number of commits up to HEAD; without git it is 0. ``LOGSTORE_TURN=526`` makes a run try
exactly what that turn tried, ``LOGSTORE_TURN=all`` every part. A run says at its end which turn it was.

A test takes its part in one of these ways:

* ``parametrize(..., rotating(cases, period))`` gives each case to one turn in ``period``; fewer cases than
  turns leave turns without the test;
* ``@in_turn(0, 5)`` gives the whole test to the turns 0, 5, 10, ..., if starting it is expensive;
* ``part(cases, period)`` returns the cases for a loop;
* ``seed_of_turn()`` is a different number in each turn, for random choices, which no period covers.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

VARIABLE = "LOGSTORE_TURN"
ALL = "all"
WITHOUT_GIT = 0
LONGEST_PERIOD = 16
"""Every case of every rotating test runs at least once in this many turns."""

T = TypeVar("T")


def pytest_configure(config: pytest.Config) -> None:
    # The processes that the run starts inherit it, so a commit made meanwhile changes nothing.
    os.environ.setdefault(VARIABLE, str(_turn_of_commit()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    chosen = os.environ[VARIABLE]
    if chosen == ALL:
        terminalreporter.write_line(f"long tests: every part ({VARIABLE}={ALL})")
    else:
        terminalreporter.write_line(
            f"long tests: the parts of turn {chosen}, all of them within {LONGEST_PERIOD} turns; "
            f"{VARIABLE}={chosen} in front of the command repeats them"
        )


def turn() -> int | None:
    """The turn of this run; None if it tries every part."""
    chosen = os.environ.get(VARIABLE) or str(_turn_of_commit())
    if chosen == ALL:
        return None
    if not chosen.isdecimal():
        raise pytest.UsageError(f"{VARIABLE} is {chosen!r}; it must be a number, or {ALL!r}")
    return int(chosen)


def seed_of_turn() -> int:
    """A different number in each turn; the same when the turn is repeated."""
    return turn() or 0


def rotating(cases: Iterable[Any], period: int, *, first: int = 0) -> list[Any]:
    """The cases for ``parametrize``, those of other turns marked ``soak``. A tuple is several arguments.

    If the period has more turns than there are cases, the turns from ``first`` on have one each, and the rest
    none.
    """
    listed = list(cases)
    number = turn()
    chosen = set(part_of_turn(range(len(listed)), period, None if number is None else number - first))
    return [
        pytest.param(
            *(case if type(case) is tuple else (case,)), marks=() if at in chosen else pytest.mark.soak
        )
        for at, case in enumerate(listed)
    ]


def in_turn(at: int, period: int) -> Callable[[T], T]:
    """A decorator that marks a test ``soak`` in all other turns."""
    return (lambda test: test) if at in part(range(period), period) else pytest.mark.soak


def part(cases: Sequence[T], period: int) -> list[T]:
    """The cases of this turn."""
    return part_of_turn(cases, period, turn())


def part_of_turn(cases: Sequence[T], period: int, number: int | None) -> list[T]:
    """One of each ``period`` consecutive cases, and the neighbouring one of the next: in a table with that
    many columns this is a diagonal, so that a turn covers every row and every column."""
    if not 1 <= period <= LONGEST_PERIOD:
        raise ValueError(f"a period of {period} turns: it must be from 1 to {LONGEST_PERIOD}")
    if number is None:
        return list(cases)
    return [case for at, case in enumerate(cases) if (at + at // period - number) % period == 0]


@cache
def _turn_of_commit() -> int:
    """The number of commits. In a repository without its history, which would always count the same, a number
    made of the commit's hash."""
    if _git("rev-parse", "--is-shallow-repository") == "true":
        return int(_git("rev-parse", "HEAD")[:7] or "0", 16)
    return int(_git("rev-list", "--count", "HEAD") or WITHOUT_GIT)


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    try:
        asked = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""
