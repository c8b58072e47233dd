"""Regular expressions in RE2's syntax, as a tree: what :mod:`.patterns` compiles.

Characters, ``.``, classes (``[a-z]``, ``[^0-9]``, ``[[:alpha:]]``, ``\\d \\w \\s`` and their negations),
groups (with a name, without number, with flags), ``|``, ``* + ?`` and ``{n,m}``,
lazy or not, ``^ $ \\A \\z \\b \\B``, and ``\\Q...\\E``. What RE2 does not have, because it cannot be matched
in linear time, is refused: references back and looks around. So are its classes by Unicode property
(``\\pL``): names of topics are ASCII.
"""

from __future__ import annotations

import string
from typing import Final, NamedTuple

from logstore.errors import UsageError

MAX_REPEATS: Final = 1000
"""The most that ``{n,m}`` may ask for, as in RE2."""
MAX_DEPTH: Final = 100
"""How deep groups may be nested."""

_ALL: Final = frozenset(map(chr, range(128)))
_DIGITS: Final = frozenset(string.digits)
_OCTAL: Final = frozenset(string.octdigits)
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_SPACE: Final = frozenset("\t\n\f\r ")
_CLASSES: Final = {
    "d": _DIGITS,
    "D": _ALL - _DIGITS,
    "w": _WORD,
    "W": _ALL - _WORD,
    "s": _SPACE,
    "S": _ALL - _SPACE,
}
_NAMED: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": _ALL,
    "blank": frozenset("\t "),
    "cntrl": frozenset([*map(chr, range(32)), "\x7f"]),
    "digit": _DIGITS,
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(string.punctuation),
    "space": _SPACE | {"\v"},
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ASSERTIONS: Final = {"A": "^", "z": "$", "b": "b", "B": "B"}
_FLAGS: Final = frozenset("imsU")


class Chars(NamedTuple):
    """One character of these."""

    chars: frozenset[str]


class Assertion(NamedTuple):
    """Nothing, at a place: ``^`` or ``$`` the text's begin or end, ``b`` or ``B`` at a word's edge or not."""

    place: str


class Sequence(NamedTuple):
    """One after the other."""

    parts: tuple[Node, ...]


class Choice(NamedTuple):
    """One of them."""

    options: tuple[Node, ...]


class Repeat(NamedTuple):
    """Many times; ``most`` None is without end."""

    node: Node
    least: int
    most: int | None


Node = Chars | Assertion | Sequence | Choice | Repeat


def parse_pattern(text: str) -> Node:
    """The tree of a regular expression.

    Raises:
        UsageError: it is none, or has what is not supported; says where.
    """
    parser = _Parser(text)
    node = parser.choice(frozenset(), 0)
    if parser.peek():
        parser.refuse("an unmatched )")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def refuse(self, what: str) -> None:
        """
        Raises:
            UsageError: always.
        """
        raise UsageError(f"{self._text!r} is no regular expression of RE2: {what} at character {self._at}")

    def peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def take(self) -> str:
        taken = self.peek()
        if not taken:
            self.refuse("it ends early,")
        self._at += 1
        return taken

    def skip(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        if found:
            self._at += len(text)
        return found

    def choice(self, flags: frozenset[str], depth: int) -> Node:
        if depth > MAX_DEPTH:
            self.refuse(f"more than {MAX_DEPTH} groups in each other")
        options: list[Node] = []
        parts: list[Node] = []
        while self.peek() and self.peek() != ")":
            if self.skip("|"):
                options.append(Sequence(tuple(parts)))
                parts = []
            elif self.peek(2) == "(?" and (found := self._flags_alone(flags)) is not None:
                flags = found
                if parts:  # what stands before it may be repeated
                    parts[-1] = self._with_repeats(parts[-1])
            elif self.skip(r"\Q"):
                parts += self._quoted(flags)
                if parts:  # the last of these, or what stands before an empty quotation, may be repeated
                    parts[-1] = self._with_repeats(parts[-1])
            else:
                parts.append(self._repeated(flags, depth))
        options.append(Sequence(tuple(parts)))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _quoted(self, flags: frozenset[str]) -> list[Node]:
        end = self._text.find(r"\E", self._at)
        quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at = len(self._text) if end < 0 else end + 2
        return [_chars({char}, flags) for char in quoted]

    def _repeated(self, flags: frozenset[str], depth: int) -> Node:
        if self._bounds() is not None:
            self.refuse("nothing to repeat")
        is_brace = self.peek() == "{"
        node = self._atom(flags, depth)
        if is_brace and self._bounds() is not None:  # RE2/J takes the brace for a repetition that failed
            self.refuse("repetitions of a repetition")
        return self._with_repeats(node)

    def _with_repeats(self, node: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        self.skip("?")  # as few as possible: the same texts match
        if self._bounds() is not None:
            self.refuse("repetitions of a repetition")
        least, most = bounds
        if max(least, most or 0) > MAX_REPEATS:
            self.refuse(f"more than {MAX_REPEATS} repetitions")
        if most is not None and least > most:
            self.refuse("a repetition of at least more than at most")
        return Repeat(node, least, most)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.skip(sign):
                return bounds
        if self.peek() != "{":
            return None
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, 0)].partition(",")
        if not _is_number(least) or not (most == "" or _is_number(most)):
            return None  # then it is a brace
        self._at = end + 1
        return int(least), int(most) if most else None if comma else int(least)

    def _atom(self, flags: frozenset[str], depth: int) -> Node:
        taken = self.take()
        if taken == "(":
            return self._group(flags, depth)
        if taken == "[":
            return _chars(self._class(flags), frozenset())
        if taken == ".":
            return Chars(_ALL if "s" in flags else _ALL - {"\n"})
        if taken in "^$":
            return Assertion(taken)
        if taken == "\\":
            return self._escaped(flags)
        return _chars({taken}, flags)

    def _group(self, flags: frozenset[str], depth: int) -> Node:
        if self.skip("?"):
            if self.skip("P<") or (
                self.peek() == "<" and self.peek(2) not in ("<=", "<!") and self.skip("<")
            ):
                self._name()
            else:
                flags = self._given_flags(flags)
                if not self.skip(":"):
                    self.refuse("a group that RE2 does not have")
        node = self.choice(flags, depth + 1)
        if not self.skip(")"):
            self.refuse("a group that does not end,")
        return node

    def _name(self) -> None:
        start = self._at
        while self.peek() and self.peek() in _WORD:
            self._at += 1
        if self._at == start or not self.skip(">"):
            self.refuse("a name of a group that is none")

    def _given_flags(self, flags: frozenset[str]) -> frozenset[str]:
        given = set(flags)
        change = given.add
        while self.peek() and self.peek() not in ":)":
            flag = self.take()
            if flag == "-" and change == given.add:
                change = given.discard
            elif flag in _FLAGS:
                change(flag)
            else:
                self._at -= 1
                self.refuse("a group that RE2 does not have")
        return frozenset(given)

    def _flags_alone(self, flags: frozenset[str]) -> frozenset[str] | None:
        """``(?i)``: the flags from here on; None if it is a group."""
        end = self._text.find(")", self._at)
        inside = self._text[self._at + 2 : max(end, 0)]
        if end < 0 or not set(inside) <= _FLAGS | {"-"} or inside.endswith("-"):
            return None
        self._at += 2
        found = self._given_flags(flags)
        self.skip(")")
        return found

    def _escaped(self, flags: frozenset[str]) -> Node:
        if self.peek() in _CLASSES and self.peek():
            return Chars(_CLASSES[self.take()])
        if self.peek() in _ASSERTIONS and self.peek():
            return Assertion(_ASSERTIONS[self.take()])
        return _chars({self._escaped_char()}, flags)

    def _escaped_char(self) -> str:
        taken = self.take()
        if taken == "x":
            return self._hex()
        if taken in _CONTROLS:
            return _CONTROLS[taken]
        if taken == "0" or (taken in _OCTAL and self.peek() and self.peek() in _OCTAL):
            return self._octal(taken)
        if taken in _WORD:
            self._at -= 1
            self.refuse(rf"\{taken}, which is not supported,")
        return taken

    def _octal(self, digits: str) -> str:
        while len(digits) < 3 and self.peek() and self.peek() in _OCTAL:
            digits += self.take()
        return chr(int(digits, 8))

    def _hex(self) -> str:
        if self.skip("{"):
            end = self._text.find("}", self._at)
            digits, self._at = self._text[self._at : max(end, 0)], max(end, 0) + 1
        else:
            digits = self.take() + self.take()
        is_hex = digits and set(digits) <= set(string.hexdigits)
        if not is_hex or int(digits, 16) > 0x10FFFF:
            self.refuse("a character by a number that is none,")
        return chr(int(digits, 16))

    def _class(self, flags: frozenset[str]) -> frozenset[str]:
        is_negated = self.skip("^")
        found: set[str] = set()
        is_first = True
        while is_first or not self.skip("]"):
            is_first = False
            found |= self._part_of_class()
        folded = _folded(found, flags)
        return _ALL - folded if is_negated else folded

    def _part_of_class(self) -> frozenset[str]:
        if self.skip("[:"):
            end = self._text.find(":]", self._at)
            name = self._text[self._at : max(end, 0)]
            is_negated, name = name.startswith("^"), name.removeprefix("^")
            if name not in _NAMED:
                self.refuse("a class that RE2 does not have")
            self._at = end + 2
            return _ALL - _NAMED[name] if is_negated else _NAMED[name]
        if self.peek() == "\\" and self.peek(2)[1:] in _CLASSES:
            self._at += 1
            return _CLASSES[self.take()]
        first = self._char_of_class()
        if self.peek() != "-" or self.peek(2) == "-]":
            return frozenset(first)
        self.skip("-")
        last = self._char_of_class()
        if last < first:
            self.refuse(f"a range from {first!r} back to {last!r}")
        return frozenset(each for each in _ALL if first <= each <= last) | {first, last}

    def _char_of_class(self) -> str:
        return self._escaped_char() if self.skip("\\") else self.take()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MAX_REPEATS)) + 1


def _folded(chars: set[str] | frozenset[str], flags: frozenset[str]) -> frozenset[str]:
    if "i" not in flags:
        return frozenset(chars)
    return frozenset(cased for char in chars for cased in (char, char.lower(), char.upper()))


def _chars(chars: set[str] | frozenset[str], flags: frozenset[str]) -> Chars:
    return Chars(_folded(chars, flags))
