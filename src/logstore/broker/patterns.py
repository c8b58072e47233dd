"""Regular expressions of clients: those of RE2/J, as far as they speak of names.

Python's own may take exponential time, and would keep all threads waiting. Here all ways through a pattern
are followed at once (Thompson 1968): matching takes time that is linear in the text, whatever the pattern.
What needs more than that, such as backreferences and looking ahead, is refused, as in RE2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from logstore.errors import UsageError

_LARGEST_COUNT: Final = 1000
"""RE2's limit of ``{n,m}``."""
_LARGEST_SIZE: Final = 2_000
"""How many steps a pattern may have: a nested ``{n,m}`` multiplies them."""
_DEEPEST: Final = 100
"""How deep groups may be nested."""

Accepts = Callable[[str], bool]


class _Step(NamedTuple):
    """One step of a pattern."""

    accepts: Accepts | None
    """Which character it takes; None: none, it leads on to others."""
    targets: tuple[int, ...] = ()
    """What may follow."""
    holds: Callable[[str, int], bool] | None = None
    """Whether it may be passed at this place of the text."""


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def _is_digit(char: str) -> bool:
    return char in "0123456789"


def _is_space(char: str) -> bool:
    return char in " \t\n\f\r"


def _is_boundary(text: str, at: int) -> bool:
    before = at > 0 and _is_word(text[at - 1])
    return before != (at < len(text) and _is_word(text[at]))


_CLASSES: Final[dict[str, Accepts]] = {"w": _is_word, "d": _is_digit, "s": _is_space}
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_PLACES: Final[dict[str, Callable[[str, int], bool]]] = {
    "^": lambda text, at: at == 0,
    "$": lambda text, at: at == len(text),
    "A": lambda text, at: at == 0,
    "z": lambda text, at: at == len(text),
    "b": _is_boundary,
    "B": lambda text, at: not _is_boundary(text, at),
}


def _none_of(accepts: Accepts) -> Accepts:
    return lambda char: not accepts(char)


def _any_of(parts: Iterable[Accepts]) -> Accepts:
    held = tuple(parts)
    return lambda char: any(each(char) for each in held)


def _between(first: str, last: str) -> Accepts:
    return lambda char: first <= char <= last


class Pattern:
    """A pattern that was read. Threads may use it together."""

    def __init__(self, text: str) -> None:
        """
        Raises:
            UsageError: it is no pattern, or one that is refused.
        """
        self.text = text
        self._steps = _Reader(text).read()

    def matches(self, name: str) -> bool:
        """Whether the whole name is of this pattern. Cost: the length of both, multiplied; 1 µs for a step of
        the pattern and a character."""
        states = self._reached({0}, name, 0)
        for at, char in enumerate(name):
            taken = set()
            for each in states:
                step = self._steps[each]
                if step.accepts is not None and step.accepts(char):
                    taken.add(step.targets[0])
            if not taken:
                return False
            states = self._reached(taken, name, at + 1)
        return len(self._steps) - 1 in states

    def _reached(self, states: set[int], name: str, at: int) -> set[int]:
        """These, and all that they lead to without a further character."""
        found = set(states)
        left = list(states)
        while left:
            step = self._steps[left.pop()]
            if step.accepts is not None or (step.holds is not None and not step.holds(name, at)):
                continue
            fresh = [each for each in step.targets if each not in found]
            found.update(fresh)
            left += fresh
        return found


_Piece = list[_Step]
"""Steps whose targets are counted from the first one; the end is behind the last one."""


class _Reader:
    """Reads a pattern into steps."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignores_case = False
        self._dot_takes_newline = False

    def read(self) -> tuple[_Step, ...]:
        piece = self._alternatives()
        if self._at < len(self._text):
            raise self._wrong("a ')' without its '('")
        return (*piece, _Step(None))

    def _wrong(self, what: str) -> UsageError:
        return UsageError(f"the regular expression {self._text!r} has {what} at position {self._at}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise self._wrong("its end too early,")
        self._at += 1
        return char

    def _skip(self, text: str) -> bool:
        is_there = self._text.startswith(text, self._at)
        self._at += len(text) if is_there else 0
        return is_there

    def _unquote(self) -> None:
        r"""Take a text in ``\Q`` and ``\E``, if there is one here, as if its signs were escaped."""
        while self._skip("\\Q"):
            begin = self._at - 2
            quoted, _, rest = self._text[self._at :].partition("\\E")
            escaped = "".join(char if char.isalnum() else f"\\{char}" for char in quoted)
            self._text, self._at = self._text[:begin] + escaped + rest, begin

    # Pieces

    def _checked(self, piece: _Piece) -> _Piece:
        if len(piece) > _LARGEST_SIZE:
            raise self._wrong(f"more than {_LARGEST_SIZE} steps")
        return piece

    def _alternatives(self) -> _Piece:
        piece = self._sequence()
        while self._skip("|"):
            piece = self._checked(_either(piece, self._sequence()))
        return piece

    def _sequence(self) -> _Piece:
        piece: _Piece = []
        self._unquote()
        while self._peek() not in ("", "|", ")"):
            piece = self._checked(_after(piece, self._repeated(self._one())))
            self._unquote()
        return piece

    def _one(self) -> _Piece:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return [_Step(self._set(), (1,))]
        if char == ".":
            takes_all = self._dot_takes_newline
            return [_Step(lambda each: takes_all or each != "\n", (1,))]
        if char in "^$":
            return [_Step(None, (1,), _PLACES[char])]
        if char in "*+?":
            raise self._wrong(f"a {char!r} with nothing to repeat")
        if char == "\\":
            return self._escaped()
        return [_Step(self._cased(char.__eq__), (1,))]

    def _cased(self, accepts: Accepts) -> Accepts:
        if not self._ignores_case:
            return accepts
        return lambda char: accepts(char) or accepts(char.lower()) or accepts(char.upper())

    def _group(self) -> _Piece:
        before = self._ignores_case, self._dot_takes_newline
        if self._skip("?"):
            self._flags_or_name()
            if self._text[self._at - 1] == ")":  # flags alone: for what follows
                return []
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(f"groups deeper than {_DEEPEST}")
        piece = self._alternatives()
        self._depth -= 1
        if not self._skip(")"):
            raise self._wrong("a '(' without its ')'")
        self._ignores_case, self._dot_takes_newline = before
        return piece

    def _flags_or_name(self) -> None:
        if self._skip("P<") or (self._peek() == "<" and self._text[self._at + 1 : self._at + 2] not in "=!"):
            self._skip("<")
            while self._take() != ">":
                pass
            return
        is_on = True
        while (char := self._take()) not in ":)":
            if char == "-":
                is_on = False
            elif char == "i":
                self._ignores_case = is_on
            elif char == "s":
                self._dot_takes_newline = is_on
            else:
                raise self._wrong(f"a group of the kind '?{char}', which there is not here,")

    def _escaped(self) -> _Piece:
        char = self._take()
        if char in _PLACES and char.isalpha():
            return [_Step(None, (1,), _PLACES[char])]
        return [_Step(self._cased(self._escape(char)), (1,))]

    def _escape(self, char: str) -> Accepts:
        """What stands behind a backslash, also in a set."""
        if char.lower() in _CLASSES:
            accepts = _CLASSES[char.lower()]
            return accepts if char.islower() else _none_of(accepts)
        return self._literal(char).__eq__

    def _literal(self, char: str) -> str:
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            digits = self._until("}") if self._skip("{") else self._take() + self._take()
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise self._wrong(f"no character {digits!r}") from None
        if char.isascii() and char.isalnum():
            raise self._wrong(f"a '\\{char}', which there is not here,")
        return char

    def _until(self, end: str) -> str:
        begin = self._at
        while self._take() != end:
            pass
        return self._text[begin : self._at - 1]

    def _set(self) -> Accepts:
        is_negated = self._skip("^")
        parts: list[Accepts] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            parts.append(self._member())
        self._at += 1
        accepts = self._cased(_any_of(parts))
        return _none_of(accepts) if is_negated else accepts

    def _member(self) -> Accepts:
        char = self._take()
        if char == "[" and self._peek() == ":":
            raise self._wrong("a '[:', which there is not here,")
        if char == "\\":
            char = self._take()
            if char.lower() in _CLASSES:
                return self._escape(char)
            char = self._literal(char)
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return char.__eq__
        self._at += 1
        last = self._take()
        if last == "\\":
            last = self._literal(self._take())
        if last < char:
            raise self._wrong(f"a range from {char!r} back to {last!r}")
        return _between(char, last)

    # Repetitions

    def _repeated(self, piece: _Piece) -> _Piece:
        """With what says how often; the shortest match matches as well as the longest."""
        is_repeated = False
        while True:
            counts = self._counts()
            if counts is None:
                return piece
            if is_repeated:
                raise self._wrong("a repetition of a repetition")
            is_repeated = True
            self._skip("?")
            low, high = counts
            if len(piece) * low + (len(piece) + 2) * ((high or low + 1) - low) > _LARGEST_SIZE:
                raise self._wrong(f"more than {_LARGEST_SIZE} steps")
            piece = _times(piece, low, high)

    def _counts(self) -> tuple[int, int | None] | None:
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(sign):
                return counts
        begin = self._at
        if not self._skip("{"):
            return None
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at : max(end, self._at)].partition(",")
        is_count = _is_number(low) and (not high or _is_number(high))
        if end < 0 or not is_count:
            self._at = begin  # a brace like any other character
            return None
        self._at = end + 1
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > _LARGEST_COUNT or (most is not None and most < least):
            raise self._wrong(f"a number of repetitions over {_LARGEST_COUNT}, or upside down,")
        return least, most


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST_COUNT))


def _moved(piece: _Piece, by: int) -> _Piece:
    return [each._replace(targets=tuple([target + by for target in each.targets])) for each in piece]


def _after(first: _Piece, second: _Piece) -> _Piece:
    return first + _moved(second, len(first))


def _either(first: _Piece, second: _Piece) -> _Piece:
    behind = len(first) + 2
    fork = _Step(None, (1, behind))
    leave = _Step(None, (behind + len(second),))
    return [fork, *_moved(first, 1), leave, *_moved(second, behind)]


def _times(piece: _Piece, low: int, high: int | None) -> _Piece:
    found: _Piece = []
    for _ in range(low):
        found = _after(found, piece)
    if high is None:
        back = _Step(None, (0,))
        return _after(found, [_Step(None, (1, len(piece) + 2)), *_moved(piece, 1), back])
    for _ in range(high - low):
        found = _after(found, [_Step(None, (1, len(piece) + 1)), *_moved(piece, 1)])
    return found
