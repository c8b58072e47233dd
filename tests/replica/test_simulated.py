"""Many simulated partitions under faults. Cost: 40 seeds take 1 s on one core."""

from __future__ import annotations

import pytest

from logstore.testing import NetworkFaults
from logstore.testing.simulator.cluster import FAULTS, Plan, simulate
from logstore.testing.simulator.model_log import ModelLog
from logstore.testing.simulator.watcher import ViolationError, Watcher
from tests.replica.planted import PLANTED, planted
from tests.replica.stored_log import StoredLog
from tests.rotation import seed_of_turn

LONGEST_SEARCH = 200
RARE = {"counts_those_that_are_about_to_join", "moves_within_an_epoch"}
"""One seed in some hundred finds these."""
PLANS = {
    "moves_within_an_epoch": Plan(
        network=NetworkFaults(most_delay_ms=30, loss=0.02, duplication=0.1),
        faults=("kill", "isolate"),
        fault_ms=400,
        move_share=0.7,
    )
}
"""Of one that no seed of 28,000 finds where partitions move as seldom as in the others."""


def test_nothing_is_lost():
    """Others in each turn."""
    counts = sum(
        (simulate(seed_of_turn() * 40 + number).counts for number in range(40)), start=simulate(0).counts
    )
    assert all(counts[f"faults: {fault}"] for fault in FAULTS), counts
    assert min(counts["terms"], counts["truncations"], counts["elections: clean"], counts["proposals"]) > 10
    assert min(counts["moves that ended"], counts["deletions"]) > 5
    assert counts["acknowledged"] > 1_000


def test_a_leader_that_was_replaced_may_begin_its_term_once_more():
    """It stood still while another took over, and its lease was renewed before it heard of that. What it
    takes is acknowledged to nobody."""
    assert simulate(86_192).counts["acknowledged"]  # one seed in 100,000 has that
    watcher, log = Watcher(), ModelLog()
    log.begin_epoch(1)
    log.append(7)
    watcher.note_high_watermark(log, 1)
    with pytest.raises(ViolationError, match="node 1 leads in epoch 2 without all"):
        watcher.note_leader(1, 2, ModelLog(), was_handed_over=False)
    watcher.note_leader(1, 2, ModelLog(), was_handed_over=True)


def test_a_seed_repeats_its_run():
    assert simulate(11).counts == simulate(11).counts


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.soak] if name in RARE else []) for name in PLANTED],
)
def test_planted_faults_are_found(name):
    with planted(name), pytest.raises((ViolationError, ValueError)):
        search(name)


def search(name):
    for seed in range(4_000 if name in RARE else LONGEST_SEARCH):
        simulate(seed, PLANS.get(name))


def test_no_acknowledged_record_is_lost_when_all_machines_lose_their_power():
    """With durable replicas nothing is ever lost, whatever happens to all of them at once."""
    plan = Plan(is_durable=True, faults=("cut power",), fault_ms=60)
    for seed in range(10):
        counts = simulate(seed, plan).counts
        assert counts["losses that were announced"] == 0
        assert counts["acknowledged"]


@pytest.mark.slow
def test_nothing_is_lost_with_real_logs():
    """Others in each turn. Cost: 1 s for each seed."""
    for number in range(4):
        assert simulate(seed_of_turn() * 4 + number, make_log=StoredLog).counts["acknowledged"]


@pytest.mark.soak
def test_nothing_is_lost_with_real_logs_at_length():
    for seed in range(1_000):
        simulate(seed, make_log=StoredLog)


@pytest.mark.soak
def test_nothing_is_lost_at_length():
    """100,000 seeds: an hour of a core."""
    for seed in range(100_000):
        simulate(seed)
