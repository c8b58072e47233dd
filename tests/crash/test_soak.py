"""The long explorations. ``LOGSTORE_STATES`` says how many states in all; by default two million."""

from __future__ import annotations

import os

import pytest

from tests.crash.compacted import CompactedScenario
from tests.crash.exploring import explore_many
from tests.crash.partition import PartitionScenario
from tests.crash.store import StoreScenario

STATES = int(os.environ.get("LOGSTORE_STATES", "2000000"))
PARTS = 20


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_partition(part):
    length = 6 + part % 4 * 4
    scenario = PartitionScenario(length=length)
    explore_many("crash states of a partition", scenario, 10**6 * (part + 1), STATES * 3 // 4 // PARTS)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_store(part):
    scenario = StoreScenario(length=6 + part % 4 * 4)
    explore_many("crash states of a store", scenario, 10**8 + 10**6 * part, STATES * 3 // 20 // PARTS)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_compacted(part):
    scenario = CompactedScenario(length=6 + part % 4 * 4)
    first_seed = 2 * 10**8 + 10**6 * part
    explore_many("crash states of a compacted partition", scenario, first_seed, STATES // 10 // PARTS)
