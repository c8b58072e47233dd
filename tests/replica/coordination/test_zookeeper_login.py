"""Nodes that tell ZooKeeper who they are: what they keep there is nobody else's. 1 s, and a server."""

from __future__ import annotations

import pytest

from logstore.cli.nodes import open_coordinator, read_node_file
from logstore.errors import UsageError
from tests.replica.coordination.places import Disk, eventually, register

pytest.importorskip("kazoo")
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

LOGIN = ("logstore", "a se:cret")


@pytest.fixture
def name(zookeeper):
    return f"zookeeper://{zookeeper.address}/login"


@pytest.mark.interop
def test_only_nodes_with_the_login_read_and_change_what_is_kept(zookeeper, name):
    first = open_coordinator(name, 8_000, zookeeper_login=LOGIN)
    second = open_coordinator(name, 8_000, first.cluster_id, LOGIN)
    try:
        session = register(first, 1, Disk())
        session.replace_text("users", lambda before: "hashed")
        eventually(lambda: "users" in second.view.texts)
        for other in (None, ("logstore", "wrong"), ("another", LOGIN[1])):
            with pytest.raises(UsageError, match=r"refuses.*made with another login"):
                open_coordinator(name, 8_000, zookeeper_login=other)
        stranger = KazooClient(zookeeper.address)
        stranger.start()
        try:
            for ask in (stranger.get, lambda path: stranger.set(path, b""), stranger.delete):
                with pytest.raises(NoAuthError):
                    ask("/login/logstore/users")
        finally:
            stranger.stop()
            stranger.close()
    finally:
        first.close()
        second.close()


@pytest.mark.interop
def test_the_path_is_made_with_all_above_it(zookeeper):
    name = f"zookeeper://{zookeeper.address}/several/clusters"
    first, second = (open_coordinator(f"{name}/{each}", 8_000, zookeeper_login=LOGIN) for each in "ab")
    try:
        assert first.cluster_id != second.cluster_id
        register(first, 1, Disk())
        eventually(lambda: 1 in first.view.living)
        assert not second.view.living
    finally:
        first.close()
        second.close()


def test_the_file_of_a_node(tmp_path):
    file = tmp_path / "node.toml"
    lines = [
        'directory = "data"',
        "node_id = 1",
        'coordinator = "zookeeper://127.0.0.1:2181/x"',
        'listener = "127.0.0.1:0"',
        "[zookeeper]",
        'username = "logstore"',
        'password_file = "password"',
    ]
    (tmp_path / "password").write_text("secret\n")
    file.write_text("\n".join(lines))
    assert read_node_file(str(file)).zookeeper_login == ("logstore", "secret")
    for wrong, instead, why in (
        ("zookeeper://127.0.0.1:2181/x", "common", r"\[zookeeper\] needs a coordinator such as zookeeper://"),
        ('username = "logstore"', "", "zookeeper.username must be given"),
        ('"password"', '"nowhere"', "there is no file .*nowhere"),
    ):
        file.write_text("\n".join(lines).replace(wrong, instead))
        with pytest.raises(UsageError, match=why):
            read_node_file(str(file))
