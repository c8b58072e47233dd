"""Writers that are killed at moments that they do not choose: what they were told is there, is there."""

from __future__ import annotations

import os
import random
import time

import pytest

from logstore.config import StoreConfig
from logstore.partition.log import Log
from tests.figures import report
from tests.kernel.kill import PartitionUnderFire
from tests.kernel.ledger import Stored
from tests.kernel.programs import memory_directory, run_program
from tests.kernel.victim import Victim
from tests.kernel.writers import KINDS, PartitionWriter
from tests.rotation import seed_of_turn

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
SOAK_KILLS = int(os.environ.get("LOGSTORE_SOAK_KILLS", "20000"))


def kill(count, seed):
    with memory_directory() as path:
        tried = run_program("kill", "--kills", count, "--seed", seed, f"{path}/kills")
    assert tried["kills"] == count
    detail = f"{tried['torn_ends']} torn ends repaired"
    report("kill -9", count=tried["kills"], failures=0, seconds=tried["seconds"], detail=detail)
    return tried


def test_some_kills_lose_nothing():
    kill(20, seed=1)


@pytest.mark.slow
@pytest.mark.every_turn
def test_kills_lose_nothing_that_was_acknowledged():
    tried = kill(500, seed_of_turn())
    assert set(tried["kinds"]) == {*KINDS, "store"}
    assert min(tried["kinds"].values()) >= 10
    assert min(tried["moments"].values()) >= 100
    assert tried["torn_ends"] > 0
    assert tried["records"] > 1_000


@pytest.mark.soak
def test_very_many_kills_lose_nothing_that_was_acknowledged():
    kill(SOAK_KILLS, seed=random.randrange(2**32))


def test_an_append_that_is_acknowledged_too_early_is_noticed(tmp_path):
    """The check of the check: a writer that takes what it has in memory for stored."""
    target = PartitionUnderFire(str(tmp_path / "t-0"), random.Random(3))
    config = StoreConfig(linger_ms=60_000)

    def life(say):
        log = Log.open(target.path, config=target.settings.topic, store_config=config)
        writer = PartitionWriter(log, 1, random.Random(4), say)
        for _ in range(10):
            writer.append()
            say(Stored(writer.end, 0))

    with pytest.raises(AssertionError, match="LOST: the log ends at 0, everything below 10"):
        target.check(Victim(life).stop_itself())


def test_what_lingers_is_with_the_kernel_after_the_linger_time(tmp_path):
    """Of `append` without a flush a kill takes what was appended in the last `linger_ms`, and no more."""
    target = PartitionUnderFire(str(tmp_path / "t-0"), random.Random(3))
    config = StoreConfig(linger_ms=5)

    def life(say):
        log = Log.open(target.path, config=target.settings.topic, store_config=config)
        writer = PartitionWriter(log, 1, random.Random(4), say)
        for _ in range(10):
            writer.append()
        time.sleep(0.5)
        say(Stored(writer.end, 0))

    target.check(Victim(life).stop_itself())
    assert target.record_count == 10
