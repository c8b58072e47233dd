"""``request_timeout_ms`` says how long to wait for an answer. With less than 10 s of it calls took 10 s all
the same when a broker let connections in and said nothing on them, as a process that is stopped does: they
waited for ``socket_connection_setup_timeout_ms``. A connection may take no longer than a request.
Cost: 0.5 s.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from functools import partial

import pytest
from tests.replica.node.cluster import eventually

import logstore
from logstore.errors import RetriableError


def connected(address):
    """None if that took longer."""
    with suppress(RetriableError):
        return logstore.connect(address, request_timeout_ms=200)


def test_a_connection_takes_no_longer_than_a_request_may(tmp_path):
    with logstore.open(tmp_path) as store:
        store.create_topic("t")
        listener = store.listen("127.0.0.1:0")
        with eventually(partial(connected, listener.address)) as shop:
            consumer = shop.consumer(partitions=[("t", 0)])
            listener.close()
            host, _, port = listener.address.rpartition(":")
            with socket.create_server((host, int(port))):  # lets everybody in, and says nothing
                began = time.monotonic()
                with pytest.raises(RetriableError, match=r"within request_timeout_ms \(200\)"):
                    consumer.lag()
                assert time.monotonic() - began < 5
