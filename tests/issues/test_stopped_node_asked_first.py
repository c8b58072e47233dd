"""One node of three was stopped, and a program happened to ask it first: it waited for 10 s where it
connected, and for ``request_timeout_ms`` where it looked for its topics or for its group's coordinator.
Costs 5 s.
"""

from __future__ import annotations

import socket
import time
from contextlib import closing
from queue import SimpleQueue

import pytest
from tests.replica.node.cluster import Cluster

import logstore
from logstore.testing import Drop, kafka
from logstore.wire.remote.connections.nodes import Node
from logstore.wire.remote.routing.coordinators import Kind

PROMPT_SECONDS = 8
"""Less than any of the times above, and as much as a slow machine may need."""


@pytest.fixture
def stopped():
    """The address of a machine that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield "{}:{}".format(*server.getsockname())


def test_it_connects_by_another(stopped):
    with kafka(topics={"t": 1}) as servers:
        for addresses in ((stopped, servers), (servers, stopped)):
            began = time.monotonic()
            with logstore.connect(*addresses) as store:
                assert store.topics() == {"t": 1}
            assert time.monotonic() - began < PROMPT_SECONDS


def test_another_is_asked(tmp_path):
    silent = []

    def intercept(request):
        return Drop() if silent and request.client_id == "program" else None

    with closing(Cluster(tmp_path, count=2)) as cluster:
        cluster.start(3, intercept=intercept)
        with logstore.connect(*cluster.addresses, client_id="program") as store:
            store.create_topics(dict.fromkeys("abcd", 1))
            silent.append(True)
            for name in "abcd":  # nodes are asked in turns
                began = time.monotonic()
                assert len(store.topics()) == 4
                assert store.leaders(name)
                assert isinstance(coordinator_of(store, name), Node)
                assert time.monotonic() - began < PROMPT_SECONDS


def coordinator_of(store, group):
    found = SimpleQueue()
    store.broker._coordinators.find(Kind.GROUP, [group], found.put)
    return found.get(timeout=60)[group]
