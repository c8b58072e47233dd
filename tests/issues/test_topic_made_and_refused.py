"""A topic was made, and ``create_topic()`` raised a ``RetriableError`` after ``request_timeout_ms``: the
client had asked a node that was stopped whether it had heard of the topic, and waited for it alone.
"""

import time

from tests.replica.node.cluster import Cluster

import logstore
from logstore.broker.pending import Promise
from logstore.testing import Drop, kafka


def test_a_broker_that_does_not_tell_of_a_topic_that_it_has_made():
    """Costs 2 s."""
    with kafka(topics={"old": 1}) as servers, logstore.connect(servers, request_timeout_ms=2_000) as store:
        servers.intercept(
            "Metadata", Drop(), times=None, when=lambda _: bool(servers.requests("CreateTopics"))
        )
        store.create_topic("new", partitions=2)
        assert len(servers.store["new"]) == 2


def test_nobody_waits_for_a_node_that_does_not_tell_who_leads(tmp_path, monkeypatch):
    """All that a connection was asked waited for it, for ``request_timeout_ms``. Costs 3 s."""
    cluster = Cluster(tmp_path)
    try:
        with logstore.connect(*cluster.addresses, request_timeout_ms=20_000) as store:
            store.create_topics(dict.fromkeys("abcdefghi", 1))
            led_by_others = [name for name in "abcdefghi" if store.leaders(name) != [2]]
            monkeypatch.setattr(cluster.nodes[2]._broker, "metadata", lambda request: Promise())
            for name in led_by_others:  # brokers are asked in turns
                began = time.monotonic()
                with store.consumer(partitions=[(name, 0)]) as consumer:
                    consumer.seek_to_end()
                    assert consumer.position((name, 0)) == 0
                assert time.monotonic() - began < 10
    finally:
        cluster.close()


def test_another_node_is_asked(tmp_path, monkeypatch):
    """Costs 1 s."""
    cluster = Cluster(tmp_path)
    try:
        with logstore.connect(*cluster.addresses, request_timeout_ms=20_000) as store:
            store.create_topic("old")
            silent = next(each for each in cluster.nodes.values() if not each.is_controller)
            monkeypatch.setattr(silent._broker, "metadata", lambda request: Promise())
            for number in range(3):  # brokers are asked in turns
                began = time.monotonic()
                store.create_topic(f"new-{number}")
                assert time.monotonic() - began < 10
    finally:
        cluster.close()
