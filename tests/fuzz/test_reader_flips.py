"""Readers elsewhere and the writer agree on what a changed bit has damaged, record by record. See
``reader_flips.py``."""

from __future__ import annotations

import random
import time

import pytest

from tests.figures import report
from tests.fuzz.reader_flips import (
    SHAPES,
    Tally,
    check_flip,
    check_stream,
    check_under_reader,
    places,
    plain,
    stream,
    uncovered,
)
from tests.rotation import rotating, seed_of_turn

pytestmark = pytest.mark.damaged

SIZE_BYTES = 64 * 1024


def flip_each(name, changes, target, *, thorough=True):
    """Hold all readers against each other behind each change; reports how many there were."""
    tally, began = Tally(), time.monotonic()
    for change in changes:
        check_flip(target, *change, tally, thorough=thorough)
    detail = ", ".join(f"{tally[kind]} {kind}" for kind in ("looks", "errors", "cut", "whole"))
    report(name, count=tally["changes"], failures=0, seconds=time.monotonic() - began, detail=detail)
    return tally


@pytest.mark.parametrize("shape", SHAPES)
def test_some_bits_that_no_checksum_covers(shape):
    target = SHAPES[shape](24 * 1024)
    changes = list(uncovered(target))
    tally = flip_each(f"flips/readers/{shape}", random.Random(7).sample(changes, 3), target)
    assert tally["changes"] == 3
    assert tally["errors"] + tally["cut"] > 0
    check_under_reader(target, changes[:: len(changes) // 3], Tally())


@pytest.mark.slow
@pytest.mark.parametrize("shape", rotating(SHAPES, 3))
def test_other_bits_each_day(shape):
    target = SHAPES[shape](SIZE_BYTES)
    seed = seed_of_turn()
    uncovered_step = max(len(list(uncovered(target))) // 25, 1)
    everywhere_step = max(target.size_bytes * 8 // 15, 1)
    flip_each(f"flips/readers/{shape}", uncovered(target, step=uncovered_step, offset=seed), target)
    flip_each(
        f"flips/readers/{shape}", places(target, step=everywhere_step, offset=seed % everywhere_step), target
    )
    check_under_reader(target, list(uncovered(target, step=uncovered_step, offset=seed + 1)), Tally())


@pytest.mark.soak
@pytest.mark.parametrize("shape", SHAPES)
def test_every_bit(shape):
    """About 4 hours for each shape: what no checksum covers thoroughly, all else by reading whole."""
    target = SHAPES[shape](SIZE_BYTES)
    tally = flip_each(f"flips/readers/{shape}/uncovered", uncovered(target), target)
    assert tally["changes"] == 8 * 12 * len(target.batches)
    tally = flip_each(f"flips/readers/{shape}/all", places(target, step=1), target, thorough=False)
    assert tally["changes"] == 8 * target.size_bytes
    check_under_reader(target, list(uncovered(target)), Tally())


def test_a_reader_that_is_wrong_or_ends_early_is_found_out():
    target = SHAPES["closed"](8 * 1024)
    batch = target.batches[1]
    expected = [(record.offset, record.value) for record in target.records]
    for found, said in ((expected[:-1], "ends silently"), ([*expected[:3], (3, b"wrong")], "wrong record")):
        with pytest.raises(AssertionError, match=said):
            check_stream(target, batch, 0, stream(lambda found=found: iter(found)), expected, "x", Tally())
    check_stream(target, batch, 0, stream(lambda: plain(target.records)), expected, "x", Tally())
