"""Regular expressions match as Python's do where both know them, in linear time, and the rest is refused."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.broker.consumer_groups.patterns import MAX_LENGTH, Pattern
from logstore.errors import UsageError

_CHARS = "abZ_-.0"
_names = st.text(_CHARS, max_size=8)
_LEAVES = r"a b Z 0 _ . \. \d \w \W [ab] [^a] [a-z0-9] []a] [a-] ^ $ \b \B \A - \x61 (?i:z) [\w.] [^-.]"
_REFUSED = (
    r"( ) * a** a{2}{3} a|+ (?=a) (?<=a) (?<!a) (?>a) (?P=n) (?P<>a) \1 \pL \G [ [b-a] [[:foo:]] "
    r"a{3,2} a{1001} \ (?i (?x)a \xg \x{110000} \x{}"
)
_leaves = st.sampled_from(_LEAVES.split())
_patterns = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"(?P<n>{text})" if "(?P" not in text else text),
    ),
    max_leaves=8,
)


@given(_patterns, st.lists(_names, min_size=1, max_size=8))
def test_as_pythons_own(text, names):
    """Which is right, if it comes to an end."""
    try:
        known = re.compile(text, re.ASCII)
    except re.error:  # two groups of one name
        return
    pattern = Pattern(text)
    for name in [*names, ""]:
        if not name and "\\B" in text:
            continue  # before Python 3.14 an empty text has no place for it; it has in RE2
        assert pattern.matches(name) == bool(known.fullmatch(name)), (text, name)


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("[[:alpha:]_]+", ["ab_Z"], ["a1", ""]),
        ("[[:^digit:]]", ["a"], ["1"]),
        (r"\Qa.b\E+", ["a.b", "a.bb"], ["axb", "a.ba.b"]),
        (r"\Q\E", [""], ["a"]),
        (r"\Qa|", ["a|"], ["a"]),
        ("a(?i)b|C(?-i)d", ["ab", "aB", "cd"], ["Ab", "cD"]),
        ("(?i)a", ["a", "A"], ["b"]),
        ("(?<n>a)", ["a"], ["n"]),
        ("(?U)a+", ["aa"], [""]),
        (r"a\z", ["a"], ["aa"]),
        ("a{,3}", ["a{,3}"], ["aa"]),
        ("a{x", ["a{x"], ["a"]),
        (r"\x{61}\n?\t?\0?", ["a", "a\n"], ["b"]),
        (r"[\d-x]", ["1", "-", "x"], ["a"]),
        ("", [""], ["a"]),
        ("a||b", ["", "a", "b"], ["ab"]),
    ],
)
def test_what_only_re2_has(text, yes, no):
    pattern = Pattern(text)
    assert [pattern.matches(name) for name in yes] == [True] * len(yes)
    assert [pattern.matches(name) for name in no] == [False] * len(no)


@pytest.mark.parametrize(
    "text",
    [
        *_REFUSED.split(),
        "(" * 200 + ")" * 200,
        "a" * (MAX_LENGTH + 1),
    ],
)
def test_what_it_refuses(text):
    with pytest.raises(UsageError, match=r"regular expression"):
        Pattern(text)


@pytest.mark.parametrize(
    "text", ["(a{0,99}){0,99}", "((((){1000}){1000}){1000}){1000}", "((a{1000}){1000}){1000}"]
)
def test_what_would_take_too_many_steps_is_refused_at_once(text):
    started = time.perf_counter()
    with pytest.raises(UsageError, match="too large"):
        Pattern(text)
    assert time.perf_counter() - started < 10


@given(st.text("ab\\[](){}*+?|^$.-,:<>PQEixz019=!", max_size=40))
def test_no_text_raises_anything_but_our_error(text):
    try:
        Pattern(text).matches("ab-1")
    except UsageError:
        return


def test_one_that_python_does_not_come_to_an_end_with():
    pattern = Pattern("(a+)+" * 10)
    started = time.perf_counter()
    assert not pattern.matches("a" * 249 + "b")
    assert time.perf_counter() - started < 10
