"""The benchmark of replication: its page is what its results say, a goal that is missed says so, and it finds
figures of nodes that run. Costs 8 s."""

from __future__ import annotations

import json

import pytest
from benchmarks.replicas import page, parts
from benchmarks.replicas.__main__ import RESULTS
from benchmarks.replicas.parts import FULL, QUICK, RATED, SEND, Bench, case_of

pytestmark = pytest.mark.filterwarnings("ignore:.*Use files:DeprecationWarning")


def test_the_page_is_what_was_measured():
    text = page.format_page(json.loads(RESULTS.read_text()))
    assert text in page.DOCUMENT.read_text()


def test_a_goal_that_is_missed_says_so():
    lines = [
        {
            "part": "rates",
            "case": case_of(SEND, shape, replicas),
            "server": server,
            "round": 1,
            "bytes": size,
            "seconds": 1.0,
            "server_cpu_seconds": 1.0,
            "resident_bytes": size,
            "private_bytes": size,
        }
        for shape in RATED
        for replicas in (1, 3)
        for server, size in (("logstore", 100), ("Kafka", 200))
    ]
    found = {goal.title: (goal, spread) for goal, spread in page.goals_of(page.Lines(lines))}
    goal, spread = found[f"{case_of(SEND, RATED[0], 3)}, vs Kafka"]
    assert (spread.median, goal.verdict(spread.median)) == (0.5, "**missed**")
    goal, spread = found[f"send, {RATED[0].name}: with three replicas, vs with one"]
    assert (spread.median, goal.verdict(spread.median)) == (1.0, "met")
    assert found["1,000 partitions, idle: of a core, each node"][1] is None
    assert "not measured" in page.format_page({"lines": lines, "machine": {}})


@pytest.mark.slow
def test_figures_of_nodes_that_run(tmp_path):
    pytest.importorskip("confluent_kafka")
    bench = Bench(QUICK._replace(partitions=6), tmp_path, lambda text: None, has_broker=False)
    found = {line["case"]: line for line in parts.measure_failover(bench)}
    assert found["idle"]["cpu_share"] < 1
    killed = found["a node is killed"]
    assert killed["led"] == 2
    assert 0 < killed["elected_seconds"] < killed["written_seconds"] < 20
    assert FULL.partitions == 1_000  # as the page says
