"""A consumer was closed, and its connection after it, while the coordinator of its group moved: it stayed a
member for 45 seconds. That it leaves was refused, and the connection was closed before it was said again.
"""

import pytest

import logstore
from logstore.testing import HangUp, Refuse, kafka


@pytest.mark.parametrize("action", [Refuse("NOT_COORDINATOR"), Refuse("COORDINATOR_NOT_AVAILABLE"), HangUp()])
def test_a_member_leaves(action):
    with kafka(topics={"orders": 1}) as servers:
        servers.store["orders"].append(b"paid")
        with logstore.connect(servers) as store, store.consumer("orders", group="g") as consumer:
            assert len(consumer.poll(timeout=5)) == 1
            servers.intercept("LeaveGroup", action)
        assert servers.store.groups()["g"].members == ()
