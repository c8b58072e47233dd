"""A power cut after a topic was deleted brought back what groups had committed for it. Made again, the topic
had other records at these offsets, and the groups never read them.

Since then the offsets are removed durably, before ``delete_topic()`` returns. What a crash or a bad disk
keeps from being removed is set back by the next open.
"""

from __future__ import annotations

import pytest

import logstore
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.errors import StorageError
from logstore.testing import ManualClock, MemoryFiles


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t").extend([b"old"] * 5)
        store.offsets("g").commit({("t", 0): 3}, flush=True)
        yield store


def delete_here(store, tmp_path):
    store.delete_topic("t")


def delete_elsewhere(store, tmp_path):
    with store.listen(str(tmp_path / "socket")) as listener, logstore.connect(listener.address) as connected:
        connected.delete_topic("t")


@pytest.mark.parametrize("delete", [delete_here, delete_elsewhere])
def test_they_are_gone_durably(store, tmp_path, delete):
    offsets = store["__consumer_offsets"][0]
    before = offsets.log_end_offset
    delete(store, tmp_path)
    assert offsets.durable_offset == offsets.log_end_offset > before


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_is_left_of_them_does_not_count_for_the_next_topic(monkeypatch, is_killed):
    """The disk refuses, or the process is killed, when the topic is gone and they are not."""
    files = MemoryFiles()
    store = logstore.open("/store", files=files, clock=ManualClock())
    store.create_topic("t").extend([b"old"] * 5)
    store.offsets("g").commit({("t", 0): 3}, flush=True)

    def refuse(self, name):
        nonlocal left
        left = MemoryFiles(files.now())
        raise StorageError(5, "a bad disk", name)

    left = files
    monkeypatch.setattr(CommittedOffsets, "forget_topic", refuse)
    store.delete_topic("t")
    store.close()
    with logstore.open("/store", files=left if is_killed else files, clock=ManualClock()) as store:
        store.create_topic("t").extend([b"new"] * 5)
        with store.consumer("t", group="g") as consumer:
            assert len(list(consumer.drain())) == 5
