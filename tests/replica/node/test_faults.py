"""Nodes as processes under load, killed, stopped and halted, while partitions move from some to others;
nothing acknowledged is lost, and transactions are in all partitions or in none.

The load comes from our own client and, if it is there, from librdkafka. 30 s for six faults; ``make soak``
has 300.
"""

from __future__ import annotations

import random
import signal
import time

import pytest

from logstore.testing import History
from tests.figures import report
from tests.replica.coordination import server
from tests.replica.node.moves import draw_goal, move
from tests.replica.node.processes import Processes
from tests.replica.node.trial import PLACES, try_out
from tests.rotation import rotating, seed_of_turn


def inject(cluster, rng, counts):
    """One fault, and its end. Before it a partition may be sent elsewhere."""
    node = rng.choice(list(cluster.nodes.values()))
    if rng.random() < 0.5:
        place = rng.choice(PLACES)
        counts["moves"] = counts.get("moves", 0) + move(cluster, *place, draw_goal(rng, cluster.nodes))
        time.sleep(rng.uniform(0, 0.5))
    kind = rng.choice(["kill", "kill", "stop", "halt", "halt for long"])
    counts[kind] = counts.get(kind, 0) + 1
    if kind == "kill":
        node.kill()
        time.sleep(rng.uniform(0, 1.5))
        node.start()
    elif kind == "stop":
        node.stop()
        time.sleep(rng.uniform(0, 1))
        node.start()
    else:
        node.signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.1, 1) if kind == "halt" else rng.uniform(2.5, 4))
        node.signal(signal.SIGCONT)
    time.sleep(rng.uniform(0.2, 1.5))


def run(path, seed, fault_count, coordinator="cluster"):
    rng = random.Random(seed)
    history = History()
    counts: dict[str, int] = {}
    cluster = Processes(path, coordinator)

    def harm():
        for _ in range(fault_count):
            inject(cluster, rng, counts)

    counts |= try_out(cluster, history, seed, harm, least=20 * fault_count)
    return history, counts


@pytest.fixture
def place(request, tmp_path):
    """What the nodes have in common: files, or a ZooKeeper server."""
    if request.param == "files":
        yield "cluster"
        return
    reason = server.unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    zookeeper = server.ZooKeeperServer(tmp_path / "zookeeper")
    zookeeper.start()
    yield f"zookeeper://{zookeeper.address}/logstore"
    zookeeper.kill()


def run_and_report(path, place, fault_count, figure):
    started = time.monotonic()
    history, counts = run(path, seed_of_turn(), fault_count, place)
    report(
        figure,
        count=fault_count,
        failures=0,
        seconds=time.monotonic() - started,
        detail=f"{history.acknowledged_count} records acknowledged; of faults and the rest {counts}",
    )


@pytest.mark.slow
@pytest.mark.parametrize("place", rotating(["files", "zookeeper"], 4, first=2), indirect=True)
def test_some_faults(place, tmp_path):
    """30 s to 60 s."""
    run_and_report(tmp_path, place, 6, "faults of nodes")


@pytest.mark.soak
@pytest.mark.parametrize("place", ["files", "zookeeper"], indirect=True)
def test_many_faults(place, tmp_path):
    """Some 20 minutes each."""
    run_and_report(tmp_path, place, 300, "faults of nodes, at length")
