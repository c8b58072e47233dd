"""``connect()`` to something that takes connections and says nothing raised an error without an address: of
several brokers, or in a program with several connections, nobody could tell which. Others did not say what to
do. Cost: 0.5 s.
"""

from __future__ import annotations

import socket

import pytest

import logstore
from logstore.errors import RetriableError, UsageError


def test_a_port_that_takes_connections_and_says_nothing_is_named():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RetriableError, match=f"^{address}: .*request_timeout_ms .*200"):
            logstore.connect(address, request_timeout_ms=200)


def test_a_directory_whose_store_is_not_shared(tmp_path):
    """The error said that there is no such socket, of which the caller had named none."""
    with (
        logstore.open(tmp_path),
        pytest.raises(RetriableError, match=r"/\.socket: there is no such socket: .*store\.share\(\)"),
    ):
        logstore.connect(tmp_path, request_timeout_ms=100)


def test_a_path_that_can_be_none():
    with pytest.raises(UsageError, match="is no address"):
        logstore.connect("\0", request_timeout_ms=100)
