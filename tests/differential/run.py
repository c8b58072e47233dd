"""Histories one after another, each from its seed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.differential.checks import check, check_damage
from tests.differential.history import History

STEPS = 40
_MEMORY = Path("/dev/shm")


class Tried(NamedTuple):
    """What was tried."""

    histories: int = 0
    steps: int = 0
    reads: int = 0


def run_one(
    seed: int,
    *,
    manages_high_watermark: bool | None = None,
    damages_active: bool = False,
    steps: int = STEPS,
    says: Callable[[str], None] | None = None,
) -> Tried:
    """
    Raises:
        AssertionError: two ways to read do not agree; it names the seed and the step.
    """
    if manages_high_watermark is None:
        manages_high_watermark = seed % 5 == 4
    path = Path(tempfile.mkdtemp(prefix="logstore-ways-", dir=_MEMORY if _MEMORY.exists() else None))
    done, reads = [], 0
    try:
        history = History(seed, path / "store", manages_high_watermark=manages_high_watermark)
        for number in range(steps):
            done.append(history.step())
            if says is not None:
                says(f"{number}: {done[-1]}; {history.model.start} to {history.model.end}")
            if history.chance.random() < 0.1 or number == steps - 1:
                reads += check(history)
            if history.chance.random() < 0.08:
                reads += check_damage(history, in_active=damages_active)
        history.close()
    except Exception as error:
        raise AssertionError(
            f"seed {seed}, step {len(done)}, after {', '.join(done[-6:])}: {error}"
        ) from error
    finally:
        shutil.rmtree(path, ignore_errors=True)
    return Tried(1, steps, reads)


def run_many(first_seed: int, count: int) -> Tried:
    tried = Tried()
    for seed in range(first_seed, first_seed + count):
        tried = Tried(*map(sum, zip(tried, run_one(seed), strict=True)))
    return tried
