"""What somebody has given a topic stays, whatever nodes give topics by default: the defaults of a node may
differ from those of another, and from its own of yesterday."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import logstore
from logstore.broker.requests import AlterConfigsRequest, ConfigChange
from logstore.config import StoreConfig, TopicConfig
from logstore.replica.node.assigning import own_settings
from logstore.replica.node.controller.changing import ClusterTopics


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
    ],
)
def test_what_was_given_is_kept(before, change, after):
    assert changed(before, ConfigChange("t", **change)) == after


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
