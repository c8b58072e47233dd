"""Which part of the long tests a run tries. Each commit tries the next part, and ``make soak`` all of them.

The turn is the number of commits up to HEAD; without git it is 0. ``LOGSTORE_TURN=526`` makes a run try
exactly what that turn tried, ``LOGSTORE_TURN=all`` every part. A run says at its end which turn it was.

A test takes its part in one of these ways:

* ``parametrize(..., rotating(cases, period))`` gives each case to one turn in ``period``;
* ``@in_turn(0, 5)`` gives the whole test to the turns 0, 5, 10, ...; what is started anew for it costs much;
* ``part(cases, period)`` is what a loop over the cases takes;
* ``seed_of_turn()`` is another number in each turn, for what is drawn at random: no period covers that.
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
LONGEST_PERIOD = 8
"""Every case of every rotating test comes up once in so many turns, or sooner."""

T = TypeVar("T")


def pytest_configure(config: pytest.Config) -> None:
    # The processes that the run starts inherit it: a commit that is made meanwhile changes nothing.
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
    """Another number in each turn, the same whenever the turn is repeated."""
    return turn() or 0


def rotating(cases: Iterable[Any], period: int) -> list[Any]:
    """The cases for ``parametrize``, those of other turns marked ``soak``. A tuple is several arguments."""
    listed = list(cases)
    chosen = set(part(range(len(listed)), period))
    return [
        pytest.param(
            *(case if type(case) is tuple else (case,)), marks=() if at in chosen else pytest.mark.soak
        )
        for at, case in enumerate(listed)
    ]


def in_turn(at: int, period: int) -> Callable[[T], T]:
    """For a test, which in the other turns is marked ``soak``."""
    return (lambda test: test) if at in part(range(period), period) else pytest.mark.soak


def part(cases: Sequence[T], period: int) -> list[T]:
    """The cases of this turn."""
    return part_of_turn(cases, period, turn())


def part_of_turn(cases: Sequence[T], period: int, number: int | None) -> list[T]:
    """Of each ``period`` cases in a row one, and of the next ones its neighbour: of a table with as many
    columns a diagonal, so that a turn meets every row and every column."""
    if not 1 <= period <= LONGEST_PERIOD:
        raise ValueError(f"a period of {period} turns: it must be from 1 to {LONGEST_PERIOD}")
    if number is None:
        return list(cases)
    return [case for at, case in enumerate(cases) if (at + at // period - number) % period == 0]


@cache
def _turn_of_commit() -> int:
    """Without its history a repository always counts the same; there the commit's own name is the turn."""
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
