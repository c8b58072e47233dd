"""Topics are changed through any node, as through any broker of Kafka (KIP-590): most clients change settings
at whichever they are connected to, and may have heard of another controller."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered
from logstore.broker.requests import DeleteTopicsRequest, TopicOutcome, TopicsResult
from logstore.errors import StorageError
from logstore.model import TopicPartition
from logstore.replica.node.controller.changing import ClusterTopics
from logstore.replica.node.controller.passing_on import ThroughController
from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster import metadata
from logstore.wire.messages.topics import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    incremental_alter_configs,
)
from tests.replica.node.cluster import eventually
from tests.wire.raw_client import RawClient

_TOPIC = 2
_SET = 0


@pytest.fixture
def client(cluster):
    """Of a node that is not the controller."""
    eventually(lambda: all(each.view.controller is not None for each in cluster.nodes.values()))
    node = next(each for each in cluster.nodes.values() if not each.is_controller)
    with closing(RawClient(node.address)) as found:
        yield found


def create(client, name, **options):
    request = create_topics.CreateTopicsRequest((create_topics.Topic(name, **options),))
    (result,) = client.ask(ApiKey.CREATE_TOPICS, request).topics
    return result


def config_of(cluster, name):
    return dict(cluster.view.topics[name].config)


def count_of(cluster, name):
    return sum(topic == name for topic, _ in cluster.view.partitions)


def test_topics_are_made_grown_configured_and_deleted_through_any_node(cluster, client):
    made = create(client, "t", partition_count=2, replication_factor=-1)
    assert (made.error_code, made.partition_count, made.replication_factor) == (ErrorCode.NONE, 2, 3)
    eventually(lambda: "t" in cluster.view.topics)
    assert made.topic_id == cluster.view.topics["t"].topic_id
    assert "retention.ms" in {each.name for each in made.configs}

    one = incremental_alter_configs.Config("retention.ms", _SET, "7000")
    single = incremental_alter_configs.Resource(_TOPIC, "t", (one,))
    request = incremental_alter_configs.IncrementalAlterConfigsRequest((single,))
    (outcome,) = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).resources
    assert outcome.error_code == ErrorCode.NONE
    eventually(lambda: config_of(cluster, "t") == {"retention.ms": "7000"})

    whole = alter_configs.Resource(_TOPIC, "t", (alter_configs.Config("segment.bytes", "1048576"),))
    (outcome,) = client.ask(ApiKey.ALTER_CONFIGS, alter_configs.AlterConfigsRequest((whole,))).resources
    assert outcome.error_code == ErrorCode.NONE
    eventually(lambda: config_of(cluster, "t") == {"segment.bytes": "1048576"})

    more = create_partitions.CreatePartitionsRequest((create_partitions.Topic("t", 5, None),))
    (outcome,) = client.ask(ApiKey.CREATE_PARTITIONS, more).topics
    assert outcome.error_code == ErrorCode.NONE
    eventually(lambda: count_of(cluster, "t") == 5)

    gone = delete_topics.DeleteTopicsRequest(topic_names=("t",))
    (outcome,) = client.ask(ApiKey.DELETE_TOPICS, gone, version=5).topics
    assert outcome.error_code == ErrorCode.NONE
    eventually(lambda: not any("t" in each for each in cluster.stores.values()))


def test_a_topic_is_made_by_its_first_use_at_any_node(cluster, client):
    request = metadata.MetadataRequest((metadata.TopicWanted(name="used"),), allow_auto_topic_creation=True)
    client.ask(ApiKey.METADATA, request)
    eventually(lambda: "used" in cluster.view.topics)


def test_what_the_controller_refuses_is_told(client):
    assert create(client, "a.b", partition_count=1, replication_factor=1).error_code == ErrorCode.NONE
    again = create(client, "a.b", partition_count=1, replication_factor=1)
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    clash = create(client, "a_b", partition_count=1, replication_factor=1)
    assert clash.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_of_two_names_that_clash_one_is_made(cluster, client):
    """Also if the controller has not heard of the first one yet: no node can hold both."""
    topics = tuple(create_topics.Topic(name, 1, 1) for name in ("a.b", "a_b", "a.c"))
    made = client.ask(ApiKey.CREATE_TOPICS, create_topics.CreateTopicsRequest(topics)).topics
    codes = [each.error_code for each in made]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]

    gone = delete_topics.DeleteTopicsRequest(topic_names=("a.b",))
    client.ask(ApiKey.DELETE_TOPICS, gone, version=5)
    eventually(lambda: "a.b" not in cluster.view.topics)
    assert create(client, "a_b", partition_count=1, replication_factor=1).error_code == ErrorCode.NONE
    cluster.leader_of(TopicPartition("a_b", 0))


def test_the_coordinators_disk_is_not_the_nodes():
    """Clients are told that their broker's disk fails of each error of a disk."""

    def refuse(name):
        raise StorageError(None, "the directory is gone")

    control = SimpleNamespace(delete_topic=refuse)
    topics = ClusterTopics(None, lambda: SimpleNamespace(topics={}), lambda: control, None)
    (outcome,) = topics.delete_topics(DeleteTopicsRequest(("t",))).topics
    assert (outcome.error, outcome.message) == (
        ErrorCode.REQUEST_TIMED_OUT,
        "the coordinator takes no changes now",
    )


def through_controller(answer, *, has_lease=True, seat=2):
    """Of node 1. ``answer``: what the controller answers of topic ``t``."""

    def refuse(code):
        return TopicsResult((TopicOutcome("t", code),))

    topics = SimpleNamespace(delete_topics=lambda request: refuse(ErrorCode.NOT_CONTROLLER))
    view = SimpleNamespace(controller=SimpleNamespace(member=SimpleNamespace(node_id=seat)))
    peers = SimpleNamespace(ask=lambda node_id, translation, request: Answered(refuse(answer)))
    session = SimpleNamespace(has_lease=has_lease)
    through = ThroughController(1, topics, lambda: view, lambda: session, peers)
    return through.delete_topics(DeleteTopicsRequest(("t",))).poll().topics[0].error


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NOT_CONTROLLER),
        (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NOT_CONTROLLER),
    ],
)
def test_a_node_that_the_controller_does_not_let_do_it_names_the_controller(answer, told):
    """The client may do it, this node may not: the client asks the controller itself."""
    assert through_controller(answer) is told


@pytest.mark.parametrize("options", [{"has_lease": False}, {"seat": 1}])
def test_nothing_is_passed_to_and_fro(options):
    assert through_controller(ErrorCode.NONE, **options) is ErrorCode.NOT_CONTROLLER
