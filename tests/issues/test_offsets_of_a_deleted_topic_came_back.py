"""A power cut after a topic was deleted brought back what groups had committed for it. Made again, the topic
had other records at these offsets, and the groups never read them.

Since then the offsets are removed durably, before ``delete_topic()`` returns.
"""

from __future__ import annotations

import pytest

import logstore


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
