"""Every way to read gives the same records at every isolation level, or the same error, as one model says."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.differential.run import Tried, run_many, run_one
from tests.figures import report

pytestmark = pytest.mark.damaged

FOUND_BY = (5, 11)
"""Seeds that found a fault: a fetch that gave nothing in front of damage; columns of an empty range."""


def _report(tried: Tried, began: float, detail: str) -> None:
    report(
        "differential/ways to read",
        count=tried.reads,
        failures=0,
        seconds=time.monotonic() - began,
        detail=f"{tried.histories} histories of {tried.steps} steps; {detail}",
    )


def _seed_of_commit() -> int:
    """Another one for each commit; the day's where there is no repository."""
    here = Path(__file__).parent
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    )
    return int(asked.stdout[:7] or "0", 16) or int(time.time() // 86_400)


@pytest.mark.parametrize("seed", FOUND_BY)
def test_some_histories(seed: int) -> None:
    assert run_one(seed, steps=12).reads > 100


@pytest.mark.slow
def test_histories_of_this_commit() -> None:
    began, seed, tried = time.monotonic(), _seed_of_commit(), Tried()
    while time.monotonic() - began < 20:
        tried = Tried(*map(sum, zip(tried, run_many(seed + tried.histories, 1), strict=True)))
    _report(tried, began, f"from seed {seed}")


@pytest.mark.soak
def test_histories_at_random() -> None:
    began, seed = time.monotonic(), int.from_bytes(os.urandom(4), "big")
    tried = run_many(seed, int(os.environ.get("LOGSTORE_HISTORIES", "1000")))
    _report(tried, began, f"from seed {seed}")
