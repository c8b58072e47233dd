"""Both sides of a bridge are killed: what was pulled is the same batch by batch, and what was pushed is there
once."""

from __future__ import annotations

import os
import random

import pytest

from tests.figures import report
from tests.kernel.programs import memory_directory, run_program
from tests.rotation import seed_of_turn

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
SOAK_KILLS = int(os.environ.get("LOGSTORE_SOAK_BRIDGE_KILLS", "300"))


def kill(count, seed):
    with memory_directory() as path:
        tried = run_program("kill", "--kills", count, "--seed", seed, f"{path}/kills", folder="bridge")
    assert tried["kills"] == count
    assert tried["pulled"] > count
    assert tried["pushed"] > count
    report(
        "kill -9, bridges",
        count=tried["kills"],
        failures=0,
        seconds=tried["seconds"],
        detail=f"{tried['pulled']:,} records pulled, {tried['pushed']:,} pushed",
    )
    return tried


@pytest.mark.slow
@pytest.mark.every_turn
def test_some_kills():
    """Others in each turn. 12 s."""
    kill(12, seed_of_turn())


@pytest.mark.soak
def test_kills():
    tried = kill(SOAK_KILLS, random.randrange(2**32))
    assert min(tried["moments"].values()) > SOAK_KILLS // 6
    assert tried["aborted"] > 0
