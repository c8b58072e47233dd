"""Kafka's consumers change over from one protocol of groups to the other, one by one, while records come.

Cost: 25 s, mostly waiting for heartbeats.
"""

from __future__ import annotations

import re

import pytest

import logstore
from tests.interop import kafka
from tests.rotation import in_turn

pytestmark = pytest.mark.interop

PARTITIONS = 6
SETTINGS = logstore.StoreConfig(
    group_consumer_heartbeat_interval_ms=300, group_consumer_session_timeout_ms=20_000
)


@pytest.fixture
def servers(tmp_path):
    kafka.require_kafka()
    with logstore.open(tmp_path / "data", config=SETTINGS) as store, store.listen("127.0.0.1:0") as listener:
        store.create_topic("t", partitions=PARTITIONS)
        yield listener.address


def change(servers, *steps):
    """The type of the group after each step; and what has become of records and partitions."""
    printed = kafka.run_program("Changing.java", servers, "t", str(PARTITIONS), "g", *steps).splitlines()
    assert len(printed) == len(steps) + 1, printed
    counts = {name: int(count) for name, count in re.findall(r"(\w+) (\d+)", printed[-1])}
    assert printed[-1].endswith("failed []"), printed
    assert counts["produced"] == counts["seen"] > 0, printed
    return [line.split()[1] for line in printed[:-1]], counts


@in_turn(3, 8)
@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_one_by_one_and_back(servers, assignor):
    """No record is lost, and no partition, and none has two owners. (A cooperative consumer of Java does not
    commit what it reads between its two requests to join: some records are read twice, from Kafka, too.)"""
    classic = f"classic:{assignor}"
    steps = [classic, classic, "consumer", "-", "consumer", "-", classic, "-", classic, "-"]
    kinds, counts = change(servers, *steps)
    assert kinds == ["Classic"] * 2 + ["Consumer"] * 7 + ["Classic"]
    assert (counts["lost"], counts["shared"]) == (0, 0)
    assert assignor != "RangeAssignor" or counts["twice"] == 0


@in_turn(3, 8)
def test_static_members(servers):
    """Each takes what its former self had."""
    range_ = "classic:RangeAssignor"
    steps = [f"{range_}@a", f"{range_}@b", "-", "consumer@a", "-", "consumer@b", "-", f"{range_}@a"]
    kinds, counts = change(servers, *steps)
    assert kinds[-1] == "Consumer"
    assert (counts["lost"], counts["shared"], counts["twice"]) == (0, 0, 0)
