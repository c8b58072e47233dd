"""A topic that was made in a broker's directory was renamed to ``-stray`` by the broker's next start, with
all its records; and the store then offered to begin an empty log, although they lay beside it.

A broker knows the topics of its metadata log and no others. So none is made in its directory any more, and
where a partition is missing, the error names what lies beside it under such a name.
"""

from __future__ import annotations

import pytest
from tests.exchange.brokers import make_broker

import logstore
from logstore.errors import CorruptionError, UsageError
from logstore.format.names import deleted_directory_name, stray_directory_name

UNIQUE = "0123456789abcdef0123456789abcdef"


def test_no_topic_is_made_in_a_brokers_directory(tmp_path):
    broker = make_broker(tmp_path / "broker")
    with logstore.open(broker) as store:
        before = sorted(each.name for each in broker.iterdir())
        for make in (store.create_topic, store.require_topic):
            with pytest.raises(UsageError, match=r"it is a broker's, .*-stray.* logstore\.handover\(\)"):
                make("mine")
        with pytest.raises(UsageError, match="a partition of 'kept' cannot be created"):
            store["kept"].add_partitions(2)
        assert sorted(each.name for each in broker.iterdir()) == before
        assert store.require_topic("kept").append(b"v") == (0, 0)  # the broker knows that one


def test_a_broker_is_known_by_its_meta_properties_where_its_metadata_log_is_elsewhere(tmp_path):
    broker = make_broker(tmp_path / "broker")
    (broker / "__cluster_metadata-0").rename(tmp_path / "elsewhere")
    with logstore.open(broker) as store, pytest.raises(UsageError, match="it is a broker's"):
        store.create_topic("mine")


@pytest.mark.damaged
@pytest.mark.parametrize("topic", ["orders", "o" * 249])
@pytest.mark.parametrize("read_only", [False, True])
def test_what_a_broker_has_set_aside_is_named(tmp_path, topic, read_only):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic(topic, partitions=2)[1].extend([b"kept"])
        store.create_topic(f"{topic[:-1]}x")[0].extend([b"another"])
    directory, aside = tmp_path / "store" / f"{topic}-1", stray_directory_name(topic, 1, UNIQUE)
    directory.rename(tmp_path / "store" / aside)
    with logstore.open(tmp_path / "store", read_only=read_only) as store:
        with pytest.raises(CorruptionError) as raised:
            list(store[topic][1].read())
        assert f"{aside} is beside it" in str(raised.value)
        assert "accept_loss" not in str(raised.value)
        assert list(store[topic][0].read()) == []
    (tmp_path / "store" / aside).rename(directory)  # as the error says
    with logstore.open(tmp_path / "store") as store:
        assert [record.value for record in store[topic][1].read()] == [b"kept"]


@pytest.mark.damaged
def test_a_partition_that_is_missing_altogether_may_begin_anew(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("orders", partitions=2)
    directory = tmp_path / "store" / "orders-1"
    directory.rename(tmp_path / "store" / stray_directory_name("orders", 11, UNIQUE))
    (tmp_path / "store" / deleted_directory_name("orders", 1, UNIQUE)).mkdir()
    with logstore.open(tmp_path / "store") as store, pytest.raises(CorruptionError, match="accept_loss=True"):
        store["orders"][1].append(b"v")


@pytest.mark.damaged
def test_a_handover_that_was_interrupted_is_named(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("orders")
    aside = tmp_path / "store" / stray_directory_name("orders", 0, UNIQUE)
    (tmp_path / "store" / "orders-0").rename(aside)
    (aside / "handover.json").write_text("{}")
    with logstore.open(tmp_path / "store") as store, pytest.raises(CorruptionError) as raised:
        store["orders"][0].append(b"v")
    assert "call logstore.handover() again" in str(raised.value)
