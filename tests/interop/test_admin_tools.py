"""Kafka's command-line tools administer a store that listens. Cost: 14 s, for four JVMs."""

from __future__ import annotations

import json
import os
import re
from typing import NamedTuple

import pytest

from logstore.testing import kafka as listening
from tests.interop import kafka

pytestmark = pytest.mark.interop

TOOLS = "org.apache.kafka.tools."


class Ran(NamedTuple):
    """What a tool said, and its exit status."""

    said: str
    status: str


def run(bootstrap, *commands, classes):
    """Run tools one after the other in one JVM: each is a class with its arguments."""
    lines = ["\t".join([name, "--bootstrap-server", str(bootstrap), *options]) for name, *options in commands]
    done = kafka.run_java(
        os.fspath(kafka.HERE / "Tools.java"), stdin="\n".join(lines) + "\n", classes=classes
    )
    parts = re.split(r"\n=== (.*)\n", done.stdout)
    found = [Ran(*each) for each in zip(parts[::2], parts[1::2], strict=False)]
    assert len(found) == len(commands), done.stdout + done.stderr
    return found


@pytest.fixture
def servers():
    kafka.require_kafka()
    with listening(topics={"t": 2}) as servers:
        yield servers


def test_topics_records_and_the_cluster(servers, tmp_path):
    servers.store["t"][0].extend([b"a", b"b"])
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "offset": 1}]}))
    topics, elections = TOOLS + "TopicCommand", TOOLS + "LeaderElectionCommand"
    created, refused, grown, described, dirs, deleted, elected, *others = run(
        servers,
        (topics, "--create", "--topic", "new", "--config", "retention.ms=5"),
        (topics, "--create", "--topic", "bad", "--replication-factor", "3"),
        (topics, "--alter", "--topic", "new", "--partitions", "3"),
        (topics, "--describe", "--topic", "new"),
        (TOOLS + "LogDirsCommand", "--describe", "--topic-list", "t"),
        (TOOLS + "DeleteRecordsCommand", "--offset-json-file", os.fspath(offsets)),
        (elections, "--election-type", "preferred", "--topic", "t", "--partition", "0"),
        (elections, "--election-type", "unclean", "--all-topic-partitions"),
        (topics, "--delete", "--topic", "new"),
        classes=kafka.tool_jars(),
    )
    assert "Created topic new." in created.said
    assert (refused.status, grown.status) == ("1", "0")
    assert "there is one broker" in refused.said
    assert "PartitionCount: 3" in described.said
    assert "ReplicationFactor: 1" in described.said
    assert "retention.ms=5" in described.said
    sizes = re.search(r'"partition":"t-0","size":(\d+)', dirs.said)
    assert int(sizes[1]) == servers.store["t"][0].written_bytes
    assert "partition: t-0\tlow_watermark: 1" in deleted.said
    assert servers.store["t"][0].log_start_offset == 1
    assert "t-0" in elected.said
    assert [each.status for each in (created, described, dirs, deleted, elected, *others)] == ["0"] * 7
    assert set(servers.store) == {"t"}


def test_what_moves_what_has_settings_and_which_features_are_on(servers):
    """Tools that ask for what there is nothing of, or for what a single broker cannot do."""
    moving, metrics, features, quorum = run(
        servers,
        ("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--list"),
        ("org.apache.kafka.tools.ClientMetricsCommand", "--list"),
        ("org.apache.kafka.tools.FeatureCommand", "describe"),
        ("org.apache.kafka.tools.MetadataQuorumCommand", "describe", "--status"),
        classes=kafka.tool_jars(),
    )
    assert "No partition reassignments found." in moving.said
    assert (moving.status, metrics.status, features.status) == ("0", "0", "0")
    assert re.search(r"transaction.version\s.*FinalizedVersionLevel: 2", features.said)
    assert quorum.status != "0"
    assert "does not support DESCRIBE_QUORUM" in quorum.said


def test_how_far_queues_are(servers):
    servers.store["t"][0].extend([b"a", b"b", b"c"])
    with servers.store.queue("t", group="g") as queue:
        for job in queue.poll(0)[:2]:
            job.accept()
    name, of_group = TOOLS + "consumer.group.ShareGroupCommand", ("--group", "g")
    described, reset, after, forgotten, gone = run(
        servers,
        (name, "--describe", *of_group, "--verbose"),
        (name, "--reset-offsets", *of_group, "--topic", "t", "--to-earliest", "--execute"),
        (name, "--describe", *of_group),
        (name, "--delete-offsets", *of_group, "--topic", "t"),
        (name, "--describe", *of_group),
        classes=kafka.tool_jars(),
    )
    assert re.search(r"\bg\s+t\s+0\s+0\s+2\s+1\b", described.said)  # leader epoch, start offset, lag
    assert re.search(r"\bg\s+t\s+0\s+0\b", reset.said)
    assert re.search(r"\bg\s+t\s+0\s+0\s+3\b", after.said)
    assert re.search(r"\bt\s+Successful", forgotten.said)
    assert "there is no share group 'g'" in gone.said


def test_settings_quotas_and_users(servers):
    """The tool of 3.9: that of 4.x is not in the packages of its jars."""
    name = "kafka.admin.ConfigCommand"
    topic = ("--entity-type", "topics", "--entity-name", "t")
    user = ("--entity-type", "users", "--entity-name", "alice")
    *changed, described, every, broker, quotas = run(
        servers,
        (
            name,
            "--alter",
            *topic,
            "--add-config",
            "flush.ms=7,retention.ms=5,cleanup.policy=[compact,delete]",
        ),
        (name, "--alter", *topic, "--delete-config", "retention.ms"),
        (name, "--alter", *user, "--add-config", "producer_byte_rate=1024"),
        (name, "--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=5000,password=secret]"),
        (name, "--describe", *topic),
        (name, "--describe", "--all", *topic),
        (name, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "0"),
        (name, "--describe", "--entity-type", "clients", "--entity-default"),
        classes=kafka.jars(kafka.OLD),
    )
    assert all("Completed updating config" in each.said for each in changed)
    config = servers.store["t"].config
    assert (config.flush_ms, config.retention_ms, config.cleanup_policy) == (7, -1, "compact,delete")
    assert "flush.ms=7 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:flush.ms=7" in described.said
    assert "retention.ms" not in described.said
    assert "retention.ms=-1 sensitive=false synonyms={DEFAULT_CONFIG:log.retention.ms=-1}" in every.said
    assert "node.id=0" in broker.said
    assert quotas.status == "0"
    assert servers.store.users.is_password("alice", b"secret")
