"""What was set for a topic in its broker is seen where the broker's directory is opened."""

from __future__ import annotations

import pytest

import logstore
from logstore.errors import CorruptionError
from logstore.files import OsFiles
from logstore.logdir.cluster import read_cluster_topics
from tests.exchange.brokers import BROKER, make_broker


def test_a_read_only_store_has_the_brokers_settings():
    told = read_cluster_topics(OsFiles(), f"{BROKER}/__cluster_metadata-0")
    with logstore.open(BROKER, read_only=True) as store:
        assert set(told) <= set(store)
        assert any(topic.settings for topic in told.values())
        for name, topic in told.items():
            config = store[name].config
            for setting in topic.settings.keys() & logstore.TopicConfig.setting_names():
                value = str(getattr(config, setting.replace(".", "_")))
                assert value.lower() == topic.settings[setting].lower()
        assert store["compacted"].config.compacts


def test_a_writer_deletes_nothing_because_of_them(tmp_path):
    broker = make_broker(tmp_path / "broker")
    with logstore.open(broker) as store:
        for topic in store.values():
            assert (topic.config.retention_ms, topic.config.retention_bytes) == (-1, -1)
            assert not topic.config.compacts


def test_settings_are_read_again_when_the_metadata_changes(tmp_path):
    broker = make_broker(tmp_path / "broker")
    metadata = broker / "__cluster_metadata-0"
    with logstore.open(broker, read_only=True) as store:
        before = store["compacted"].config
        assert store["compacted"].config is not None
        away = metadata.rename(tmp_path / "away")
        assert not store["compacted"].config.compacts
        away.rename(metadata)
        assert store["compacted"].config == before
        newest = max(metadata.glob("*.log"))
        newest.write_bytes(newest.read_bytes()[:200] + bytes(64) + newest.read_bytes()[264:])
        with pytest.raises(CorruptionError, match="__cluster_metadata-0"):
            _ = store["compacted"].config
        assert list(store["compacted"].read()) == []  # reading needs no settings
