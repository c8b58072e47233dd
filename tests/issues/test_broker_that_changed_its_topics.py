"""A broker's directory that a store had opened once kept the list of topics of that day: partitions that the
broker added later were not there for readers, and topics that it deleted were reported as damaged.

In a broker's directory the partition directories say what there is; ``topics.json`` adds settings to it. Its
cluster's metadata log was taken for a topic, too, and recovered like one.
"""

from __future__ import annotations

import shutil

import pytest
from tests.exchange.brokers import make_broker

import logstore


@pytest.mark.parametrize("read_only", [True, False])
def test_what_the_broker_added_and_deleted_since(tmp_path, read_only):
    broker = make_broker(tmp_path / "broker")
    with logstore.open(broker) as store:
        store["kept"].append(b"v")
        kept_id = store["kept"].topic_id
    shutil.copytree(broker / "plain-2", broker / "plain-3")  # as a broker does
    shutil.rmtree(broker / "compacted-0")
    with logstore.open(broker, read_only=read_only) as store:
        assert len(store["plain"]) == 4
        assert list(store["plain"][3].read()) == []
        assert "compacted" not in store
        assert not store.damaged
        assert store["kept"].topic_id == kept_id
        assert [record.value for record in store["kept"][0].read()] == [b"v"]


def test_the_metadata_log_of_the_cluster_is_no_topic(tmp_path):
    broker = make_broker(tmp_path / "broker")
    log = broker / "__cluster_metadata-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + b"torn")
    before = {each: each.read_bytes() for each in (broker / "__cluster_metadata-0").iterdir()}
    for read_only in (True, False):
        with logstore.open(broker, read_only=read_only) as store:
            assert sorted(store) == ["compacted", "kept", "plain"]
            assert store.verify()
    assert {each: each.read_bytes() for each in (broker / "__cluster_metadata-0").iterdir()} == before


@pytest.mark.damaged
def test_in_a_store_of_our_own_a_missing_directory_is_damage(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("orders")
    shutil.rmtree(tmp_path / "store" / "orders-0")
    with logstore.open(tmp_path / "store") as store:
        assert len(store["orders"]) == 1
        assert store.damaged
