"""What administrators do with two clients, confluent-kafka (librdkafka) and kafka-python, against a listener.

Cost: 3 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from logstore.testing import kafka
from tests.interop import clients

TOPIC, BROKER = ConfigResource.Type.TOPIC, ConfigResource.Type.BROKER


@pytest.fixture
def servers() -> Iterator[Any]:
    with kafka(topics={"t": 2}) as servers:
        yield servers


class Librdkafka:
    """Asks, and waits for each answer: the result, or the name of the error."""

    def __init__(self, servers):
        self.client = AdminClient({"bootstrap.servers": str(servers)})

    def __getattr__(self, name):
        def ask(*args, **options):
            found = getattr(self.client, name)(*args, **options)
            return {str(key): self.outcome(future) for key, future in found.items()}

        return ask

    @staticmethod
    def outcome(future):
        try:
            return future.result(10)
        except KafkaException as error:
            return error.args[0].name()


class TestLibrdkafka:
    @pytest.fixture
    def admin(self, servers):
        return Librdkafka(servers)

    def test_topics(self, servers, admin):
        wanted = [
            NewTopic("new", 2, 1, config={"retention.ms": "5"}),
            NewTopic("placed", 2, replica_assignment=[[0], [0]]),
            NewTopic("bad", 1, 3),
            NewTopic("wrong", 1, 1, config={"no.such": "1"}),
            NewTopic("t", 1, 1),
        ]
        assert admin.create_topics(wanted[:1], validate_only=True) == {"new": None}
        assert admin.create_topics(wanted) == {
            "new": None,
            "placed": None,
            "bad": "INVALID_REPLICATION_FACTOR",
            "wrong": "INVALID_CONFIG",
            "t": "TOPIC_ALREADY_EXISTS",
        }
        assert servers.store["new"].config.retention_ms == 5
        assert len(servers.store["placed"]) == 2
        grown = [NewPartitions("new", 4), NewPartitions("t", 1), NewPartitions("placed", 3, [[1]])]
        assert admin.create_partitions(grown) == {
            "new": None,
            "t": "INVALID_PARTITIONS",
            "placed": "INVALID_REPLICA_ASSIGNMENT",
        }
        assert len(servers.store["new"]) == 4
        assert admin.delete_topics(["new", "nope"]) == {"new": None, "nope": "UNKNOWN_TOPIC_OR_PART"}
        assert set(servers.store) == {"placed", "t"}

    def test_settings(self, servers, admin):
        def change(kind, name, key, value, operation):
            entry = ConfigEntry(key, value, incremental_operation=operation)
            resource = ConfigResource(kind, name, incremental_configs=[entry])
            (outcome,) = admin.incremental_alter_configs([resource]).values()
            return outcome

        config = servers.store["t"].config
        assert change(TOPIC, "t", "flush.ms", "7", AlterConfigOpType.SET) is None
        assert change(TOPIC, "t", "cleanup.policy", "compact", AlterConfigOpType.APPEND) is None
        assert servers.store["t"].config == config.with_settings(flush_ms=7, cleanup_policy="delete,compact")
        assert change(TOPIC, "t", "flush.ms", None, AlterConfigOpType.DELETE) is None
        assert change(TOPIC, "t", "flush.ms", "x", AlterConfigOpType.SET) == "INVALID_CONFIG"
        assert change(BROKER, "0", "log.retention.ms", "7", AlterConfigOpType.SET) == "INVALID_REQUEST"
        with pytest.warns(DeprecationWarning, match="incremental"):  # it replaces all
            replaced = admin.alter_configs([ConfigResource(TOPIC, "t", {"flush.ms": "9"})])
        assert set(replaced.values()) == {None}
        assert servers.store["t"].config == config.with_settings(flush_ms=9)
        (topic,) = admin.describe_configs([ConfigResource(TOPIC, "t")]).values()
        assert (topic["flush.ms"].value, topic["flush.ms"].is_default) == ("9", False)
        assert (topic["segment.ms"].value, topic["segment.ms"].is_default) == ("604800000", True)
        (broker,) = admin.describe_configs([ConfigResource(BROKER, "0")]).values()
        assert broker["node.id"].value == "0"
        assert broker["num.partitions"].is_read_only

    def test_records_and_elections(self, servers, admin):
        servers.store["t"][0].extend([b"a", b"b"])
        (deleted,) = admin.delete_records([Partition("t", 0, 1)]).values()
        assert deleted.low_watermark == 1
        found = admin.client.elect_leaders(ElectionType.PREFERRED, [Partition("t", 0)]).result(10)
        assert [error.name() for error in found.values()] == ["ELECTION_NOT_NEEDED"]

    def test_the_cluster(self, servers, admin):
        found = admin.client.describe_cluster(include_authorized_operations=True).result(10)
        assert [f"{each.host}:{each.port}" for each in found.nodes] == [str(servers)]
        assert found.authorized_operations
        topics = admin.describe_topics(TopicCollection(["t", "nope"]))
        assert [each.id for each in topics["t"].partitions] == [0, 1]
        assert topics["nope"] == "UNKNOWN_TOPIC_OR_PART"


class TestKafkaPython:
    @pytest.fixture
    def admin(self, servers):
        client = clients.KafkaAdminClient(bootstrap_servers=str(servers))
        yield client
        client.close()

    def test_topics_and_settings(self, servers, admin):
        admin.create_topics([clients.NewTopic("new", num_partitions=2, replication_factor=1)])
        assert sorted(admin.list_topics()) == ["new", "t"]
        admin.create_partitions({"new": 3})
        assert len(servers.store["new"]) == 3
        config = servers.store["new"].config

        def resource(**settings):
            return clients.ConfigResource(clients.ConfigResourceType.TOPIC, "new", settings)

        admin.alter_configs([resource(**{"flush.ms": "7", "segment.ms": "8"})])
        admin.alter_configs([resource(**{"flush.ms": "9"})], incremental=False)  # it sends the others, too
        assert servers.store["new"].config == config.with_settings(flush_ms=9, segment_ms=8)
        found = admin.describe_configs([resource()])["topic"]["new"]
        assert found["flush.ms"]["value"] == "9"
        assert "flush.messages" not in found
        admin.reset_configs([resource(**{"flush.ms": None})])
        assert servers.store["new"].config == config.with_settings(segment_ms=8)
        admin.delete_topics(["new"])
        assert set(servers.store) == {"t"}

    def test_what_there_is(self, servers, admin):
        servers.store["t"][1].extend([b"a" * 500, b"b"])
        admin.delete_records({clients.TopicPartition("t", 1): 1})
        assert servers.store["t"][1].log_start_offset == 1
        (broker,) = admin.describe_log_dirs()
        (directory,) = broker["log_dirs"]
        assert directory["log_dir"] == servers.store.path
        sizes = [each["partition_size"] for each in directory["topics"][0]["partitions"]]
        assert sizes == [0, servers.store["t"][1].written_bytes]
        assert directory["total_bytes"] > directory["usable_bytes"] > 0
        page = admin.describe_topic_partitions(["t"], response_partition_limit=1)
        assert [each["partition_index"] for each in page["topics"][0]["partitions"]] == [0]
        assert page["next_cursor"]
        assert admin.describe_cluster()["controller_id"] == 0
        outcome = admin.elect_leaders(0, {"t": [0]}).replica_election_results[0].partition_result[0]
        assert outcome.error_code == 84
