"""What the consumers of a group have counted is forgotten with the group."""

import pytest

import logstore
from logstore.config import StoreConfig
from logstore.testing import ManualClock, MemoryFiles

HOUR_MS = 3_600_000


@pytest.fixture
def store():
    config = StoreConfig(offsets_retention_minutes=60)
    with logstore.open("/s", files=MemoryFiles(), clock=ManualClock(), config=config) as store:
        store.create_topic("t")[0].extend([b"v"] * 3, flush=True)
        yield store


def groups(store):
    return {labels[0] for labels in store.metrics()["logstore_consumer_records"]}


def read(store, group, *, commit=True):
    with store.consumer("t", group=group, enable_auto_commit=False) as consumer:
        assert len(consumer.poll(0)) == 3
        if commit:
            consumer.commit()


def test_of_a_group_that_is_deleted(store):
    for group in ("a", "b"):
        read(store, group)
    store.groups().delete("a")
    assert groups(store) == {"b"}
    read(store, "a")
    assert store.metrics()["logstore_consumer_records"]["a",] == 3


def test_of_a_group_that_is_deleted_and_has_committed_nothing(store):
    for group in ("a", "b"):
        read(store, group, commit=False)
    assert groups(store) == {"a", "b"}
    store.groups().delete("a")
    assert groups(store) == {"b"}


def test_of_partitions_that_were_assigned_they_stay(store):
    with store.consumer(partitions=[("t", 0)], group="a") as consumer:
        consumer.poll(0)
    del consumer
    assert groups(store) == {"a"}


def test_of_a_group_that_expires(store):
    for group, commits in {"commits": True, "reads": False}.items():
        read(store, group, commit=commits)
    read(store, None, commit=False)
    assert groups(store) == {"", "commits", "reads"}
    store._directory.context.clock.advance(2 * HOUR_MS)
    store.run_background()
    assert list(store.groups()) == []
    assert groups(store) == {""}


def test_not_of_a_group_with_an_open_consumer(store):
    with store.consumer(partitions=[("t", 0)], group="a") as consumer:
        consumer.poll(0)
        consumer.commit()
        store.offsets("a").delete()
        assert groups(store) == {"a"}
    del consumer
    assert groups(store) == set()
