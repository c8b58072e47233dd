"""What clients may not append. Costs 0.2 s."""

from __future__ import annotations

import pytest

import logstore
from logstore.broker.records.looking_up import INTERNAL_TOPICS
from logstore.errors import InvalidTopicError


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_only_coordinators_write_internal_topics(tmp_path, topic):
    """A record of a client there would be taken for what a coordinator has decided."""
    with logstore.open(tmp_path / "store") as store, store.listen() as listener:
        store.create_topic("t")
        store.offsets("g").commit({("t", 0): 0})
        if topic not in store:
            store.create_topic(topic)
        before = [log.log_end_offset for log in store[topic]]
        with logstore.connect(listener.address) as connected, connected.producer() as producer:
            with pytest.raises(InvalidTopicError):
                producer.send(topic, b"v", key=b"k", partition=0).result()
            producer.send("t", b"v").result()
        assert [log.log_end_offset for log in store[topic]] == before
