"""Cuts the power at every point of a program's life, and checks what the program does with each result.

A :class:`Scenario` is a program in sessions: each opens what is on the disk, works on it, and may be cut off
after any operation. :func:`explore` runs a session on a disk in memory, computes the states that a cut after
each operation may leave (see :mod:`~logstore.testing.crash`), and lets the scenario check each. On some
states it runs another session and cuts that too, which covers cuts during and after recovery.

A state that fails is named by a rule, one line of text from which :func:`reproduce` makes it again::

    explore(MyScenario(), seed=7)      # CrashError: ... rule: '7 > 12:0.3.1 > 4:1.0'
    reproduce(MyScenario(), "7 > 12:0.3.1 > 4:1.0")

Write a scenario for your own program: pass the disk to its :func:`logstore.open`, record with
``files.note(...)`` what the program promises its users, and check that all of it still holds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from logstore.testing.crash import Choices, CrashStates
from logstore.testing.memory import Image, MemoryFiles
from logstore.testing.operations import Note, Trace

_SHOWN_OPERATIONS = 12


class Scenario(Protocol):
    """A program that uses a disk, and what must hold after a power cut."""

    def session(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> None:
        """Open what is there and work on it. ``said`` is what earlier sessions noted before they were cut.
        Take all random choices from ``rng``."""
        ...

    def check(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        """Raise, or return False, if the disk contradicts what was noted. You may write to the disk: it is
        not used afterwards."""
        ...


class CrashError(AssertionError):
    """A state after a power cut that violates a scenario's rules, or that the scenario does not survive."""

    def __init__(self, rule: str, reason: BaseException, story: str, files: MemoryFiles) -> None:
        super().__init__(f"{type(reason).__name__}: {reason}\nrule: {rule!r}\n{story}")
        self.rule = rule
        """Makes the state again: see :func:`reproduce`."""
        self.reason = reason
        self.files = files
        """The disk in this state, as it was before the check; after a failed session, as that left it."""


@dataclass(slots=True)
class Explored:
    """How far an exploration went."""

    state_count: int = 0
    """States that were checked. They differ in contents or in what was noted."""
    repeated_count: int = 0
    """States that were skipped because an identical one was checked before."""
    stricter_count: int = 0
    """States that were also checked as just before a note, without that note; not counted elsewhere."""
    point_count: int = 0
    """Operations after which the power was cut."""
    session_count: int = 0
    deepest: int = 0
    """The most power cuts one after another."""

    def add(self, other: Explored) -> None:
        self.state_count += other.state_count
        self.repeated_count += other.repeated_count
        self.stricter_count += other.stricter_count
        self.point_count += other.point_count
        self.session_count += other.session_count
        self.deepest = max(self.deepest, other.deepest)


class _Cut(NamedTuple):
    """A power cut after an entry of a trace."""

    states: CrashStates
    said: list[Any]
    trace: Trace
    point: int
    rule: str
    """The rule of the session that is cut."""

    def rule_of(self, choices: Choices) -> str:
        return f"{self.rule} > {self.point}:{'.'.join(map(str, choices))}"


@dataclass(slots=True)
class _Exploration:
    scenario: Scenario
    seed: int
    states_per_point: int
    max_states: int
    depth: int
    chained_share: float
    explored: Explored = field(default_factory=Explored)
    _seen: set[int] = field(default_factory=set)
    _fair_count: float = 0
    """How many states may have been checked so far, if those to come are to have as many."""

    def run(self, image: Image, said: Sequence[Any], rule: str, depth: int) -> None:
        """Run a session on an image, and cut it after each of its operations."""
        trace = _run_session(self.scenario, image, said, rule)
        self.explored.session_count += 1
        self.explored.deepest = max(self.explored.deepest, depth)
        states = CrashStates(image, self.seed)
        rng = random.Random(f"choices {rule}")
        limit = self._states_per_point(trace, depth)
        said = list(said)
        for point, entry in enumerate(trace):
            if isinstance(entry, Note):
                said.append(entry.said)
            else:
                states.follow(entry)
                self.explored.point_count += 1
            if depth == 1:
                self._fair_count = self.max_states * (point + 1) / len(trace)
            cut = _Cut(states, said, trace, point, rule)
            if point + 1 < len(trace) and isinstance(trace[point + 1], Note):
                self._check_in_front_of_note(cut, max(limit // 4, 2), depth)
                continue  # the same disks are checked after the note
            for choices in states.choices(limit, rng):
                if self.explored.state_count >= self.max_states:
                    return
                self._check(cut, choices, depth)

    def _states_per_point(self, trace: Trace, depth: int) -> int:
        """How many states to check per operation. The last operations of a session get as many as the first.
        A session after a cut, of which there are many, gets an eighth of what the session before it has."""
        point_count = sum(not isinstance(entry, Note) for entry in trace)
        budget = self.max_states >> 3 * (depth - 1)
        return max(min(self.states_per_point, budget // max(point_count, 1)), 2)

    def _check_in_front_of_note(self, cut: _Cut, limit: int, depth: int) -> None:
        """Check some states without the coming note too: the note may allow what must not have happened
        yet, and the next session may do again what it was to say."""
        rng = random.Random(f"in front of the note {cut.rule} > {cut.point}")
        for choices in cut.states.choices(limit, rng):
            self.explored.stricter_count += 1
            image = cut.states.image(choices)
            self._hold(cut, choices, image)
            self._go_on(cut, choices, image, depth)

    def _check(self, cut: _Cut, choices: Choices, depth: int) -> None:
        image = cut.states.image(choices)
        key = hash((len(cut.said), depth, frozenset(image.paths().items())))
        if key in self._seen:
            self.explored.repeated_count += 1
            return
        self._seen.add(key)
        self.explored.state_count += 1
        self._hold(cut, choices, image)
        self._go_on(cut, choices, image, depth)

    def _go_on(self, cut: _Cut, choices: Choices, image: Image, depth: int) -> None:
        """Run another session on some of the states, the last ones as often as the first."""
        rule = cut.rule_of(choices)
        is_fair = depth < self.depth and self.explored.state_count <= self._fair_count
        if is_fair and random.Random(f"chain {rule}").random() < self.chained_share:
            self.run(image, cut.said, rule, depth + 1)

    def _hold(self, cut: _Cut, choices: Choices, image: Image) -> None:
        """Let the scenario check a state, on a disk of its own."""
        try:
            _check_scenario(self.scenario, image, cut.said)
        except Exception as error:
            story = _story(cut.trace, cut.point, cut.states.describe(choices))
            raise CrashError(cut.rule_of(choices), error, story, MemoryFiles(image)) from error


def explore(
    scenario: Scenario,
    *,
    seed: int = 0,
    states_per_point: int = 64,
    max_states: int = 10_000,
    depth: int = 1,
    chained_share: float = 0.02,
) -> Explored:
    """Check the states that power cuts in a scenario may leave, beginning with an empty disk.

    Args:
        seed: the seed of all random choices.
        states_per_point: the most states to check after each operation. Fewer if ``max_states`` would not
            suffice for all operations.
        max_states: how many states to check before stopping.
        depth: how many power cuts may follow each other.
        chained_share: the share of the states that get another session, which is cut again. Where
            ``max_states`` does not suffice for all of these, they are spread over the first session.

    Raises:
        CrashError: for the first state that the scenario does not accept.
        ValueError: a number is none, or so small that nothing would be checked; the seed is no whole number:
            nothing could be repeated; or the first session does nothing on its disk, such as one that opens
            its files elsewhere.
    """
    if type(seed) is not int:
        raise ValueError(f"seed is {seed!r}; it must be a whole number, to repeat with what is found")
    counts = (states_per_point, max_states, depth)
    if any(type(count) is not int or count < 1 for count in counts):
        raise ValueError("states_per_point, max_states and depth must be 1 or above, and whole numbers")
    if not (isinstance(chained_share, int | float) and 0 <= chained_share <= 1):
        raise ValueError(f"chained_share is {chained_share!r}; it must be a share from 0 to 1, such as 0.02")
    exploration = _Exploration(scenario, seed, states_per_point, max_states, depth, chained_share)
    exploration.run(Image(), (), str(seed), 1)
    if not exploration.explored.point_count:
        raise ValueError(
            "the session does nothing on the disk that it is given: pass files on to what it opens"
        )
    return exploration.explored


def reproduce(scenario: Scenario, rule: str) -> MemoryFiles:
    """Make the state of a rule again, let the scenario check it, and run a session on it. Returns the disk as
    it was before that.

    Raises:
        CrashError: the check or the session fails, as before.
        ValueError: the text is not a rule, or belongs to another scenario.
    """
    if not (isinstance(rule, str) and re.fullmatch(r"-?\d+( > \d+:[\d.]*)*", rule)):
        raise ValueError(f"{rule!r} is not a rule; it must be what a CrashError shows, like '7 > 12:0.3.1'")
    seed, *cuts = rule.split(" > ")
    image, done = Image(), seed
    said: list[Any] = []
    trace: Trace = []
    point, description = 0, ""
    for cut in cuts:
        text, _, numbers = cut.partition(":")
        point = int(text)
        trace = _run_session(scenario, image, said, done)
        if not 0 <= point < len(trace):
            raise _no_rule_of(rule)
        states = CrashStates(image, int(seed))
        for entry in trace[: point + 1]:
            if isinstance(entry, Note):
                said.append(entry.said)
            else:
                states.follow(entry)
        choices = tuple(map(int, filter(None, numbers.split("."))))
        try:
            image, description = states.image(choices), states.describe(choices)
        except (ValueError, IndexError):
            raise _no_rule_of(rule) from None
        done = f"{done} > {cut}"
    if cuts:
        _check_again(scenario, image, said, rule, _story(trace, point, description))
    _run_session(scenario, image, said, rule)
    return MemoryFiles(image)


def _check_scenario(scenario: Scenario, image: Image, said: Sequence[Any]) -> None:
    accepted: object = scenario.check(MemoryFiles(image), said)  # type: ignore[func-returns-value]
    if accepted is False:
        raise AssertionError("check returned False")


def _check_again(scenario: Scenario, image: Image, said: Sequence[Any], rule: str, story: str) -> None:
    try:
        _check_scenario(scenario, image, said)
    except Exception as error:
        raise CrashError(rule, error, story, MemoryFiles(image)) from error


def _no_rule_of(rule: str) -> ValueError:
    return ValueError(f"no such state: rule {rule!r} is of another scenario, or the scenario has changed")


def _run_session(scenario: Scenario, image: Image, said: Sequence[Any], rule: str) -> Trace:
    """The trace of a session; the same for the same arguments."""
    files = MemoryFiles(image)
    try:
        scenario.session(files, said, random.Random(f"session {rule}"))
    except Exception as error:
        raise CrashError(rule, error, _story(files.trace, len(files.trace) - 1), files) from error
    return files.trace


def _story(trace: Trace, point: int, description: str | None = None) -> str:
    """The last operations up to a point, and what they left on the disk."""
    shown = trace[max(point + 1 - _SHOWN_OPERATIONS, 0) : point + 1]
    lines = [f"  {entry!s:.200}" for entry in shown]
    if description is None:
        return "\n".join(["a session failed after:", *lines])
    return "\n".join(["the power was cut after:", *lines, f"on the disk are: {description}"])
