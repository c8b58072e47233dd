"""``connect()`` to something that takes connections and says nothing raised an error without an address: of
several brokers, or in a program with several connections, nobody could tell which. Cost: 0.3 s.
"""

from __future__ import annotations

import socket

import pytest

import logstore
from logstore.errors import RetriableError


def test_a_port_that_takes_connections_and_says_nothing_is_named():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(
            RetriableError, match=f"^{address}: there was no answer .request_timeout_ms is 200"
        ):
            logstore.connect(address, request_timeout_ms=200)
