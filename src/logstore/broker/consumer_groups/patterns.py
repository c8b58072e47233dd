"""Regular expressions that members subscribe to (KIP-848): matched in linear time, as RE2 does.

Python's own ``re`` goes back and tries again, which for some expressions takes longer than anyone waits. A
member could stop the coordinator with one. So expressions are compiled here to a program in which each step
goes on to others, and a name is matched by following all of them at once (Thompson: Regular expression search
algorithm, 1968). Nothing is kept of what groups matched: only whether a whole name matches counts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NoReturn

from logstore.broker.consumer_groups.pattern_syntax import (
    Assertion,
    Chars,
    Choice,
    Node,
    Repeat,
    Sequence,
    parse_pattern,
)
from logstore.errors import UsageError

MAX_LENGTH: Final = 4_096
"""Characters of an expression."""
MAX_STEPS: Final = 2_000
"""Of a program. They bound the time that a name takes."""

_Step = tuple[Chars | Assertion | None, tuple[int, ...]]
"""What is to be met, and where to go on then."""


class Pattern:
    """A compiled expression."""

    def __init__(self, text: str) -> None:
        """
        Raises:
            UsageError: it is no expression in RE2's syntax, or too large.
        """
        if len(text) > MAX_LENGTH:
            raise UsageError(f"a regular expression has {len(text)} characters; {MAX_LENGTH} are allowed")
        self.text = text
        self._steps: list[_Step] = [(None, ())]  # the last one: it has matched
        self._added_count = 0
        self._first = self._add(parse_pattern(text), 0)

    def _add(self, node: Node, after: int) -> int:
        """Add what matches a node and then goes on; returns where it begins."""
        self._added_count += 1  # repetitions of nothing take no step, but time
        if self._added_count > 10 * MAX_STEPS:
            self._refuse()
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                after = self._add(part, after)
            return after
        if isinstance(node, Choice):
            return self._step(None, *[self._add(option, after) for option in node.options])
        if isinstance(node, Repeat):
            return self._add_repeat(node, after)
        return self._step(node, after)

    def _add_repeat(self, repeat: Repeat, after: int) -> int:
        if repeat.most is None:
            loop = self._step(None)
            self._steps[loop] = (None, (self._add(repeat.node, loop), after))
            after = loop
        else:
            end = after
            for _ in range(repeat.most - repeat.least):
                after = self._step(None, self._add(repeat.node, after), end)
        for _ in range(repeat.least):
            after = self._add(repeat.node, after)
        return after

    def _step(self, meets: Chars | Assertion | None, *after: int) -> int:
        if len(self._steps) >= MAX_STEPS:
            self._refuse()
        self._steps.append((meets, after))
        return len(self._steps) - 1

    def _refuse(self) -> NoReturn:
        raise UsageError(
            f"the regular expression {self.text[:100]!r} is too large: it takes more than {MAX_STEPS} steps; "
            "ask for fewer repetitions"
        )

    def matches(self, name: str) -> bool:
        """Whether it matches the whole name. Cost: steps times characters."""
        places = self._reached([self._first], name, 0)
        for at, char in enumerate(name):
            onward: list[int] = []
            for place in places:
                meets, after = self._steps[place]
                if isinstance(meets, Chars) and char in meets.chars:
                    onward += after
            if not onward:
                return False
            places = self._reached(onward, name, at + 1)
        return 0 in places

    def _reached(self, places: list[int], name: str, at: int) -> set[int]:
        """All steps that are reached without a character."""
        reached: set[int] = set()
        left = list(places)
        while left:
            place = left.pop()
            if place in reached:
                continue
            reached.add(place)
            meets, after = self._steps[place]
            if meets is None or (isinstance(meets, Assertion) and _holds(meets.place, name, at)):
                left += after
        return reached


def _holds(place: str, name: str, at: int) -> bool:
    if place == "^":
        return at == 0
    if place == "$":
        return at == len(name)
    is_edge = _is_word(name, at - 1) != _is_word(name, at)
    return is_edge == (place == "b")


def _is_word(name: str, at: int) -> bool:
    return 0 <= at < len(name) and name[at].isascii() and (name[at].isalnum() or name[at] == "_")


@lru_cache(maxsize=256)
def compiled(text: str) -> Pattern:
    """The expression, compiled once. Raises as :class:`Pattern`."""
    return Pattern(text)
