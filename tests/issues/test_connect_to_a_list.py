"""``connect("a:1,b:2")``, as Kafka's ``bootstrap.servers`` is written, was refused."""

from __future__ import annotations

import socket

import pytest

import logstore
from logstore.errors import UsageError


def test_one_of_them_may_be_down(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    with (
        logstore.open(tmp_path) as store,
        store.listen() as listener,
        logstore.connect(f"{nobody}, {listener.address}") as elsewhere,
    ):
        elsewhere.create_topic("t")
        assert "t" in store


def test_a_list_with_a_hole():
    with pytest.raises(UsageError, match="'' is no address"):
        logstore.connect("127.0.0.1:9092,")


def test_a_directory_may_have_a_comma_in_its_name(tmp_path):
    path = tmp_path / "a,b"
    with logstore.open(path) as store, store.share(), logstore.connect(path) as elsewhere:
        elsewhere.create_topic("t")
        assert "t" in store
