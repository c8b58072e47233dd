"""Kafka's tool moves partitions between nodes. Cost: 12 s, for two JVMs."""

from __future__ import annotations

import json
import os

import pytest

from logstore.model import TopicPartition
from tests.interop import kafka
from tests.interop.test_admin_tools import run
from tests.replica.node.cluster import Cluster, eventually
from tests.replica.node.test_moving import create, holders, is_at
from tests.replica.node.test_node import read, send

pytestmark = pytest.mark.interop

T = TopicPartition("t", 0)
TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture
def cluster(tmp_path):
    kafka.require_kafka()
    cluster = Cluster(tmp_path, 4)
    yield cluster
    cluster.close()


def test_a_partition_moves(cluster, tmp_path):
    create(cluster, 2)
    send(cluster, [b"1", b"2"])
    before = cluster.state_of(T).replicas
    goal = tuple(each for each in range(1, 5) if each not in before)
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
    moves = [{"topic": "t", "partition": 0, "replicas": goal, "log_dirs": ["any", "any"]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    file = ("--reassignment-json-file", os.fspath(plan))
    bootstrap = ",".join(cluster.addresses)
    generated, listed, executed = run(
        bootstrap,
        (TOOL, "--generate", "--topics-to-move-json-file", os.fspath(topics), "--broker-list", "1,2,3,4"),
        (TOOL, "--list"),
        (TOOL, "--execute", *file),
        classes=kafka.tool_jars(),
    )
    assert f'"replicas":[{before[0]},{before[1]}]' in generated.said
    assert "No partition reassignments found." in listed.said
    assert "Successfully started partition reassignment for t-0" in executed.said
    eventually(lambda: is_at(cluster, goal))
    back = tmp_path / "back.json"
    moves[0]["replicas"] = before
    back.write_text(json.dumps({"version": 1, "partitions": moves}))
    returning = ("--reassignment-json-file", os.fspath(back))
    verified, described, throttled = run(
        bootstrap,
        (TOOL, "--verify", *file),
        ("org.apache.kafka.tools.TopicCommand", "--describe", "--topic", "t"),
        (TOOL, "--execute", "--throttle", "1000000", *returning),
        classes=kafka.tool_jars(),
    )
    assert "Reassignment of partition t-0 is completed." in verified.said
    assert f"Replicas: {goal[0]},{goal[1]}" in described.said
    assert "The inter-broker throttle limit was set to 1000000 B/s" in throttled.said
    limits = [node._limit for node in cluster.nodes.values()]
    assert [each.settings().get("follower.replication.throttled.rate") for each in limits] == ["1000000"] * 4
    eventually(lambda: is_at(cluster, before))
    (ended,) = run(bootstrap, (TOOL, "--verify", *returning), classes=kafka.tool_jars())
    assert "Clearing broker-level throttles" in ended.said
    assert [each.settings() for each in limits] == [{}] * 4
    every = (generated, listed, executed, verified, described, throttled, ended)
    assert [each.status for each in every] == ["0"] * len(every), every
    eventually(lambda: holders(cluster) == set(before))
    assert read(cluster) == [b"1", b"2"]


def test_a_move_that_cannot_end_is_called_off(cluster, tmp_path):
    create(cluster, 2)
    send(cluster, [b"1"])
    before = cluster.state_of(T).replicas
    new = next(each for each in range(1, 5) if each not in before)
    cluster.let_follow_nobody(new)
    plan = tmp_path / "plan.json"
    moves = [{"topic": "t", "partition": 0, "replicas": (new, before[1]), "log_dirs": ["any", "any"]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    file = ("--reassignment-json-file", os.fspath(plan))
    bootstrap = ",".join(cluster.addresses)
    executed, listed, cancelled, after = run(
        bootstrap,
        (TOOL, "--execute", *file),
        (TOOL, "--list"),
        (TOOL, "--cancel", *file),
        (TOOL, "--list"),
        classes=kafka.tool_jars(),
    )
    assert "Successfully started" in executed.said
    assert (
        f"t-0: replicas: {new},{before[1]},{before[0]}. adding: {new}. removing: {before[0]}." in listed.said
    )
    assert "Successfully cancelled" in cancelled.said
    assert "No partition reassignments found." in after.said
    assert [each.status for each in (executed, listed, cancelled, after)] == ["0"] * 4, cancelled
    assert set(cluster.state_of(T).replicas) == set(before)
    assert read(cluster) == [b"1"]
