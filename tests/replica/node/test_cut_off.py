"""Nodes in network namespaces: links are cut, in one direction, too, and slow; disks fill; the coordinator is
killed and stands still; partitions move. The load is our clients, librdkafka and Kafka's own producer. Cost:
40 s for four faults; ``make soak`` has 300 for each coordinator."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.kernel.programs import memory_directory, run_program
from tests.replica.coordination import server
from tests.rotation import rotating, seed_of_turn

_WITHIN = ("unshare", "-n", "-m")


def why_not():
    """What is missing here for namespaces of our own."""
    if missing := [each for each in ("unshare", "ip", "tc", "mount") if shutil.which(each) is None]:
        return f"there is no program {missing[0]}"
    tried = subprocess.run(
        [*_WITHIN, "sh", "-c", "ip link add hub type bridge && mkdir -p /run/netns"],
        check=False,
        capture_output=True,
        text=True,
    )
    return f"no namespaces of our own: {tried.stderr.strip()}" if tried.returncode else None


def run(coordinator, fault_count):
    reason = why_not()
    if reason is None and coordinator == "zookeeper":
        reason = server.unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    with memory_directory() as path:
        found = run_program(
            "node.cut_off", coordinator, fault_count, seed_of_turn(), path, within=_WITHIN, folder="replica"
        )
    assert found["acknowledged"] > 20 * fault_count


@pytest.mark.slow
@pytest.mark.parametrize("coordinator", rotating(["files", "zookeeper"], 4))
def test_some_cuts(coordinator):
    run(coordinator, 4)


@pytest.mark.soak
@pytest.mark.parametrize("coordinator", ["files", "zookeeper"])
def test_many_cuts(coordinator):
    run(coordinator, 300)
