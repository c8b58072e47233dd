"""What somebody has given a topic stays, whatever nodes give topics by default: the defaults of a node may
differ from those of another, and from its own of yesterday."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace
from uuid import uuid4

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.requests import AlterConfigsRequest, ConfigChange, ConfigSource
from logstore.config import StoreConfig, TopicConfig
from logstore.model import TopicPartition
from logstore.replica.coordination.interface import Topic
from logstore.replica.node.assigning import Assignment, own_settings
from logstore.replica.node.controller.changing import ClusterTopics
from logstore.replica.rules.partition_state import Member, PartitionState
from logstore.wire.apis import ApiKey
from logstore.wire.messages.topics import (
    alter_configs,
    create_topics,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from tests.replica.node.cluster import Cluster, eventually
from tests.wire.raw_client import RawClient

_TOPIC, _BROKER = 2, 4
_SET = 0
_RATE = "follower.replication.throttled.rate"


def changed(before, change):
    """The settings of topic ``t`` at the coordinator, after a change by a controller that has two of them by
    default."""
    directory = SimpleNamespace(
        config=StoreConfig(topic=TopicConfig(min_insync_replicas=2, cleanup_policy="compact"))
    )
    view = SimpleNamespace(topics={"t": SimpleNamespace(config={"flush.ms": "9"})})  # of some time ago
    stored = {}
    control = SimpleNamespace(configure_topic=lambda name, change: stored.update(change(before)))
    topics = ClusterTopics(directory, lambda: view, lambda: control, None)
    (outcome,) = topics.alter_configs(AlterConfigsRequest((change,))).topics
    assert outcome.error.name == "NONE", outcome
    return stored


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ({}, {"settings": {"min.insync.replicas": "2"}}, {"min.insync.replicas": "2"}),
        (
            {"min.insync.replicas": "2"},
            {"settings": {"retention.ms": "7000"}},
            {"min.insync.replicas": "2", "retention.ms": "7000"},
        ),
        ({"min.insync.replicas": "2"}, {"settings": {"min.insync.replicas": None}}, {}),
        (
            {"min.insync.replicas": "1"},  # what every store has without settings of its own
            {"settings": {"retention.ms": "7000"}},
            {"min.insync.replicas": "1", "retention.ms": "7000"},
        ),
        ({"retention.ms": "1"}, {"settings": {"segment.ms": "5"}, "replaces": True}, {"segment.ms": "5"}),
        ({}, {"settings": {}, "appended": {"cleanup.policy": "compact"}}, {"cleanup.policy": "compact"}),
        (
            {"of.next.year": "true"},  # a newer node has set it, while nodes are updated one after the other
            {"settings": {"retention.ms": "7000"}},
            {"of.next.year": "true", "retention.ms": "7000"},
        ),
        ({"of.next.year": "true"}, {"settings": {"segment.ms": "5"}, "replaces": True}, {"segment.ms": "5"}),
        (
            {"of.next.year": "true", "segment.ms": "5"},
            {"settings": {"of.next.year": None}},
            {"segment.ms": "5"},
        ),
        ({"segment.ms": "5"}, {"settings": {"not.here": None}}, {"segment.ms": "5"}),
    ],
)
def test_what_was_given_is_kept(before, change, after):
    assert changed(before, ConfigChange("t", **change)) == after


def test_a_setting_of_a_newer_version_keeps_no_node_from_holding_a_topic(tmp_path, caplog):
    """While nodes are updated one after the other: its partitions would have no leader where one had been."""
    topic = Topic(uuid4(), {"flush.ms": "9", "of.next.year": "true"})
    partitions = {TopicPartition("t", 0): PartitionState((1,), Member(1, 1), 0, (Member(1, 1),))}
    view = SimpleNamespace(topics={"t": topic}, partitions=partitions)
    with logstore.open(tmp_path) as store:
        assignment = Assignment(store.directory, 1, None)
        for _ in range(2):
            assignment.apply(view, frozenset({"t"}))
        assert not assignment.undone
        assert store["t"].config.flush_ms == 9
    (told,) = [each.getMessage() for each in caplog.records if "of.next.year" in each.getMessage()]
    assert "does not know" in told


def test_a_store_that_becomes_a_cluster_takes_along_what_its_topics_have(tmp_path):
    ours = StoreConfig(topic=TopicConfig(min_insync_replicas=2, retention_bytes=10**9))
    with logstore.open(tmp_path / "store", config=ours) as store:
        same = store.create_topic("same").config
        other = store.create_topic(
            "other", config=TopicConfig(retention_ms=7_000, cleanup_policy="compact")
        ).config
        own = own_settings(store.directory, same)
        assert own == {"min.insync.replicas": "2", "retention.bytes": "1000000000"}
        own = own_settings(store.directory, other)
        assert own["min.insync.replicas"] == "1"
        for defaults in (TopicConfig(), ours.topic, TopicConfig(retention_ms=5, segment_ms=9)):
            taken = TopicConfig.from_properties({**defaults.to_properties(), **own})
            assert taken.retention_ms == 7_000
            assert taken.min_insync_replicas == 1


@pytest.fixture
def client(tmp_path):
    """Of the one node of a cluster, which has two settings for topics."""
    ours = StoreConfig(topic=TopicConfig(min_insync_replicas=2, cleanup_policy="compact"))
    cluster = Cluster(tmp_path, 1, config=ours, rack="a")
    eventually(lambda: cluster.nodes[1].is_controller)
    with closing(RawClient(cluster.nodes[1].address)) as client:
        yield client
    cluster.close()


def described(client, kind, name):
    """The settings that are not the default."""
    resource = describe_configs.Resource(kind, name, None)
    request = describe_configs.DescribeConfigsRequest((resource,), include_synonyms=True)
    (found,) = client.ask(ApiKey.DESCRIBE_CONFIGS, request).resources
    return {each.name: each for each in found.configs if each.config_source != ConfigSource.DEFAULT}


def sources(found):
    return {name: (each.value, each.config_source) for name, each in found.items()}


def test_clients_see_the_rack_of_a_node(client):
    """librdkafka's own test of reading from followers looks for it there."""
    assert described(client, _BROKER, "1")["broker.rack"].value == "a"


def alter_all(client, kind, name, **settings):
    """As Kafka's tools before 4.0: all settings are named, others lose theirs."""
    configs = tuple(alter_configs.Config(each.replace("_", "."), value) for each, value in settings.items())
    request = alter_configs.AlterConfigsRequest((alter_configs.Resource(kind, name, configs),))
    (outcome,) = client.ask(ApiKey.ALTER_CONFIGS, request).resources
    return outcome


def test_clients_see_which_settings_are_the_topics_own(client):
    """A tool takes away only what it sees, and copies to other topics what it sees as the topic's."""
    given = (create_topics.Config("min.insync.replicas", "1"), create_topics.Config("retention.ms", "7000"))
    topic = create_topics.Topic("t", 1, 1, configs=given)
    (made,) = client.ask(ApiKey.CREATE_TOPICS, create_topics.CreateTopicsRequest((topic,))).topics
    assert made.error_code == 0, made
    own = {"min.insync.replicas": ("1", ConfigSource.TOPIC), "retention.ms": ("7000", ConfigSource.TOPIC)}
    nodes = {"cleanup.policy": ("compact", ConfigSource.STATIC_BROKER)}
    shown = {each.name: each for each in made.configs if each.config_source != ConfigSource.DEFAULT}
    assert sources(shown) == own | nodes
    found = eventually(lambda: described(client, _TOPIC, "t"))
    assert sources(found) == own | nodes
    assert not any(each.read_only for each in found.values())
    assert [tuple(each) for each in found["cleanup.policy"].synonyms] == [
        ("log.cleanup.policy", "compact", ConfigSource.STATIC_BROKER),
        ("log.cleanup.policy", "delete", ConfigSource.DEFAULT),
    ]


def test_how_fast_a_node_catches_up_is_seen_and_changed_by_tools_of_all_versions(client):
    single = incremental_alter_configs.Resource(
        _BROKER, "1", (incremental_alter_configs.Config(_RATE, _SET, "1000"),)
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest((single,))
    client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
    found = described(client, _BROKER, "1")
    assert sources(found)[_RATE] == ("1000", ConfigSource.BROKER)
    assert not found[_RATE].read_only
    assert found["node.id"].read_only

    leaders = {"leader_replication_throttled_rate": "5"}
    assert alter_all(client, _BROKER, "1", **leaders).error_code == ErrorCode.NONE
    found = described(client, _BROKER, "1")
    assert _RATE not in found
    assert sources(found)["leader.replication.throttled.rate"] == ("5", ConfigSource.BROKER)
    assert alter_all(client, _BROKER, "1").error_code == ErrorCode.NONE
    assert "leader.replication.throttled.rate" not in described(client, _BROKER, "1")

    refused = alter_all(client, _BROKER, "", **leaders)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "name one broker" in refused.error_message


def test_all_nodes_are_listed_by_any(cluster):
    """Clients ask one, and take what it names for all that have settings."""
    for node in cluster.nodes.values():
        with RawClient(node.address) as asking:
            request = list_config_resources.ListConfigResourcesRequest((_BROKER,))
            found = asking.ask(ApiKey.LIST_CONFIG_RESOURCES, request, 1).config_resources
        assert [each.resource_name for each in found] == ["1", "2", "3"]
