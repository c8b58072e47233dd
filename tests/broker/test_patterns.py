"""Patterns match what Python's regular expressions match, in time that is linear in the text."""

from __future__ import annotations

import random
import re
import signal
import time

import pytest

from logstore.broker.patterns import Pattern
from logstore.errors import UsageError
from tests.rotation import seed_of_turn

ATOMS = (
    *("a", "b", "B", "-", "7", ".", "{x", "{2x", "{,2x", "}", "{x}", ",", "^", "$"),
    *(r"\w", r"\d", r"\s", r"\W", r"\D", r"\S", r"\.", r"\x61", r"\-", r"\t", r"\b", r"\B"),
    *("[ab]", "[^ab]", "[a-c]", "[^a-c_]", r"[\w-]", r"[^\d.]", "[]a]", "[a-]", r"[\x61-\x63]"),
)
"""No brace stands alone: with what follows it would be a count where none may be, or one of Python's own."""
COUNTS = ("", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{2,3}", "{0}")
MOST_CHARACTERS = 50
"""In longer ones Python's way takes its time."""
MOST_SECONDS = 0.2
"""In some others it takes for ever."""
TEXT = "abBc_-7. {},x"


class TooLongError(Exception):
    """Python has not found out in time."""


def as_python(pattern, name):
    """Whether it matches; None if Python does not find out."""

    def stop(*_):
        raise TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    try:
        return pattern.fullmatch(name) is not None
    except TooLongError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Draws:
    def __init__(self, random):
        self.random = random

    def pattern(self, depth=2):
        alternatives = self.random.choice((1, 1, 2, 3))
        return "|".join(self.sequence(depth) for _ in range(alternatives))

    def sequence(self, depth):
        return "".join(self.repeated(depth) for _ in range(self.random.randint(0, 3)))

    def repeated(self, depth):
        if depth and self.random.random() < 0.4:
            kind = self.random.choice(("(", "(?:", "(?i:", f"(?P<n{self.random.getrandbits(60)}>"))
            return f"{kind}{self.pattern(depth - 1)}){self.random.choice(COUNTS)}"
        atom = self.random.choice(ATOMS)
        return atom if atom in ("^", "$", r"\b", r"\B") else atom + self.random.choice(COUNTS)

    def text(self):
        return "".join(self.random.choice(TEXT) for _ in range(self.random.randint(0, 6)))


def test_they_match_what_pythons_match():
    """2 s."""
    draws = Draws(random.Random(seed_of_turn()))
    outcomes = {True: 0, False: 0}
    for _ in range(4000):
        text = draws.pattern()
        if len(text) > MOST_CHARACTERS:
            continue
        theirs, ours = re.compile(text, re.ASCII), Pattern(text)
        for name in {draws.text() for _ in range(6)}:
            if not name and r"\B" in text:
                continue  # before 3.14 Python takes the two ends of an empty text for a boundary
            is_match = as_python(theirs, name)
            if is_match is None:
                continue
            assert ours.matches(name) is is_match, (text, name)
            outcomes[is_match] += 1
    assert min(outcomes.values()) > 500


@pytest.mark.parametrize(
    ("text", "taken", "refused"),
    [
        ("(?i)orders-.*", ("Orders-x", "ORDERS-"), ("order-x",)),
        ("(?i)[^a]", ("b",), ("a", "A")),
        ("a(?i)b", ("aB", "ab"), ("AB",)),
        ("a(?i:b)c", ("aBc",), ("aBC",)),
        ("(?i-s:a).(?s:.)", ("A-\n",), ("A\n-",)),
        (r"\Qa.b*\E+", ("a.b*", "a.b***"), ("axb", "a.b")),
        (r"\Q(\E|\Q\E\Q\E|\Qa)", ("(", "", "a)"), ("a",)),
        (r"\Aa\z", ("a",), ("a\n",)),
        (r"(?<name>a)\x{1F600}", ("a\U0001f600",), ("a",)),
        ("größe|日本", ("größe", "日本"), ("gr", "日")),
        ("", ("",), ("a",)),
        ("a{1000}", ("a" * 1000,), ("a" * 999,)),
        ("a{,2}", ("a{,2}",), ("a", "aa")),
    ],
)
def test_what_python_says_otherwise(text, taken, refused):
    pattern = Pattern(text)
    assert [each for each in taken + refused if pattern.matches(each)] == list(taken)


@pytest.mark.parametrize(
    "text",
    [
        *("(", ")", "a)", "(a", "[", "[a", "[b-a]", "*", "a**", "a+{2}", "a|*", "\\", r"[\q]", r"\y", r"\pL"),
        *("(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?P=n)", "(?P>n)", "(?x)", "(?", "(?<", "(?<n", r"(a)\1"),
        *(r"\xZZ", r"\x{110000}", r"\x{", r"\x6", "[[:alpha:]]"),
        *("a{1001}", "a{3,2}", "(a{50}){50}", "((a{9}){9}){9}{9}", "(" * 101 + ")" * 101),
    ],
)
def test_what_is_no_pattern(text):
    with pytest.raises(UsageError, match="regular expression"):
        Pattern(text)


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|a)*b", "(a|aa)+b", ".*.*.*.*.*.*b", "(a?){25}a{25}b", "((a*)*)*b"]
)
def test_none_takes_long(text):
    """Python's need minutes for most of these."""
    pattern, name = Pattern(text), "a" * 200
    started = time.perf_counter()
    assert not pattern.matches(name)
    assert pattern.matches(name + "b") is (text != "(a?){25}a{25}b")
    assert time.perf_counter() - started < 10
