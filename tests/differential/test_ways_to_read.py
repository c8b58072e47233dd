"""Every way to read gives the same records at every isolation level, or the same error, as one model says."""

from __future__ import annotations

import os
import time

import pytest

from tests.differential.run import Tried, run_many, run_one
from tests.figures import report
from tests.rotation import seed_of_turn

pytestmark = pytest.mark.damaged

FOUND_BY = (5, 11)
"""Seeds that found a fault: a fetch that gave nothing in front of damage; columns of an empty range."""


HISTORIES = 10
"""Of a commit. Every fifth seed has a high watermark that is managed."""


def _report(tried: Tried, began: float, detail: str) -> None:
    report(
        "differential/ways to read",
        count=tried.reads,
        failures=0,
        seconds=time.monotonic() - began,
        detail=f"{tried.histories} histories of {tried.steps} steps; {detail}",
    )


@pytest.mark.parametrize("seed", FOUND_BY)
def test_some_histories(seed: int) -> None:
    assert run_one(seed, steps=12).reads > 100


@pytest.mark.slow
def test_histories_of_this_commit() -> None:
    began, seed = time.monotonic(), 1_000 + HISTORIES * seed_of_turn()
    _report(run_many(seed, HISTORIES), began, f"from seed {seed}")


@pytest.mark.soak
def test_histories_at_random() -> None:
    began, seed = time.monotonic(), int.from_bytes(os.urandom(4), "big")
    tried = run_many(seed, int(os.environ.get("LOGSTORE_HISTORIES", "1000")))
    _report(tried, began, f"from seed {seed}")
