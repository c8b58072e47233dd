"""Of a new producer the second batch of a partition overtook the first: a leader that refused the first for a
moment, as right after a topic was made, took the second with whatever sequence it had."""

from __future__ import annotations

import pytest

import logstore
from logstore.testing import Refuse, kafka


@pytest.mark.parametrize("code", ["NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER"])
def test_the_order_is_that_of_the_calls(code):
    """0.2 s."""
    with kafka(topics={"orders": 1}) as servers, logstore.connect(str(servers)) as cluster:
        servers.intercept("Produce", Refuse(code))
        with cluster.producer(acks="all", batch_size=200, linger_ms=0) as producer:
            sent = [producer.send("orders", b"%d" % number) for number in range(500)]
        assert [each.result().offset for each in sent] == [*range(500)]
        values = [record.value for record in servers.store["orders"][0].read()]
    assert values == [b"%d" % number for number in range(500)]
