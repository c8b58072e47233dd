"""The compiled functions give back what they take: the same cases again and again leave no more behind.

Python keeps freed objects in lists of its own for a while, which fill at first. So a leak is what grows in
every single round; without one a round comes soon that leaves nothing.
"""

import gc
import sys
import tracemalloc
from array import array

import pytest

from logstore import build
from tests.fuzz.program import run_case
from tests.fuzz.targets import TARGETS
from tests.rotation import rotating

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(build.compiled is None, reason="no compiled module here"),
]

CASES = 40
MOST_ROUNDS = 30
SHARED = (None, (), b"", "", NotImplemented)
"""Objects that a missing or a surplus decrement shows in (from Python 3.12 on they are not counted)."""


def run_cases(name):
    for number in [*range(CASES)] * 2:
        run_case(name, number, "leaks")


def empty_caches():
    """The collector empties Python's lists of freed objects; names that were looked up are kept elsewhere."""
    gc.collect()
    getattr(sys, "_clear_internal_caches", sys._clear_type_cache)()


def blocks():
    """Pieces of memory that objects have."""
    empty_caches()
    return [sys.getallocatedblocks()]


def traced_bytes():
    empty_caches()
    return [tracemalloc.get_traced_memory()[0]]


def grows_always(measure, work):
    """Whether any of the numbers that ``measure`` gives grows in every round of ``work``."""
    for _ in range(3):
        work()
    before = array("q", measure())  # which takes no memory when it is written again
    after = array("q", before)
    grows = [True] * len(before)
    for _ in range(MOST_ROUNDS):
        before[:] = array("q", measure())
        work()
        after[:] = array("q", measure())
        grows = [was and now > then for was, then, now in zip(grows, before, after, strict=True)]
        if not any(grows):
            return False
    return True


def references():
    """To the module's types and to shared objects; and the same below zero, for what is given back twice."""
    empty_caches()
    types = [item for item in vars(build.compiled).values() if isinstance(item, type)]
    counts = [*map(sys.getrefcount, types), *map(sys.getrefcount, SHARED)]
    return counts + [-count for count in counts]


@pytest.mark.parametrize("name", rotating(TARGETS, 4))
def test_no_object_is_left(name):
    assert not grows_always(blocks, lambda: run_cases(name))


@pytest.mark.parametrize("name", rotating(TARGETS, 4))
def test_references_are_given_back_and_none_twice(name):
    assert not grows_always(references, lambda: run_cases(name))


@pytest.mark.parametrize("name", rotating(TARGETS, 4))
def test_memory_besides_objects_is_given_back(name):
    """What PyMem and PyMem_Raw give out, which tracemalloc sees."""
    run_cases(name)
    tracemalloc.start()
    try:
        assert not grows_always(traced_bytes, lambda: run_cases(name))
    finally:
        tracemalloc.stop()


def test_a_leak_is_seen():
    kept = []

    def leak():
        kept.extend([object() for _ in range(100)])  # more than another thread of the run may give back

    assert grows_always(blocks, leak)
    counted = next(item for item in vars(build.compiled).values() if isinstance(item, type))
    assert grows_always(references, lambda: kept.extend([counted] * 100))
    assert grows_always(references, lambda: kept.__delitem__(slice(-100, None)))
