"""``logstore bridge``: into a store, and out of it."""

from __future__ import annotations

import signal
import socket
import time
from functools import partial

import pytest

import logstore
import logstore.connected
from logstore.security import Acl, Operation, PatternType, Permission, ResourceType, ServerTls
from tests.cli.helpers import answer, run, start
from tests.wire.security.certificates import OPENSSL, Authority


@pytest.fixture
def cluster(tmp_path):
    with logstore.open(tmp_path / "cluster") as store, store.listen("127.0.0.1:0") as listener:
        store.create_topic("orders")[0].extend([b"1", b"2", b"3"])
        yield store, listener.address


def test_there_and_back(cluster, tmp_path):
    there, address = cluster
    here = tmp_path / "here"
    done = answer("bridge", "pull", address, here, "orders")
    assert done.lines == [
        "topic   partition  position  end  lag",
        "orders          0         3    3    0",
    ]
    assert "1 batch, " in done.err
    with logstore.open(here) as store:
        store.create_topic("readings")[0].extend([b"a", b"b"])
    [report] = answer("bridge", "push", here, address, "readings", "--json", "--compression", "lz4").rows
    assert (report["records"], report["transactions"], report["partitions"][0]["lag"]) == (2, 1, 0)
    [report] = answer("bridge", "push", here, address, "readings", "--json").rows
    assert report["records"] == 0
    values = [record.value for record in there["readings"][0].read(isolation=logstore.Isolation.COMMITTED)]
    assert values == [b"a", b"b"]
    answer("bridge", "push", here, address, "readings", "--delete-pushed", "--name", "edge-7")
    assert len(list(there["readings"][0].read(isolation=logstore.Isolation.COMMITTED))) == 4


def test_it_goes_on_until_it_is_told(cluster, tmp_path):
    there, address = cluster
    process = start("bridge", "pull", address, tmp_path / "here", "orders", "--follow", "--json")
    deadline = time.monotonic() + 30
    try:
        while not (tmp_path / "here" / "followed.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        there["orders"][0].append(b"4", flush=True)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert b'"direction":"pull"' in out.replace(b" ", b"")
    with logstore.open(tmp_path / "here") as store:
        assert list(store["orders"][0]) == list(there["orders"][0])


@pytest.mark.parametrize("direction", ["pull", "push"])
def test_it_ends_when_it_is_told_though_no_broker_answers(tmp_path, direction):
    """Of what listens and is silent, and is told of after half a minute. 1 s."""
    with logstore.open(tmp_path / "here") as store:
        store.create_topic("orders")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ends = [f"127.0.0.1:{silent.getsockname()[1]}", tmp_path / "here"]
        if direction == "push":
            ends.reverse()
        process = start("bridge", direction, *ends, "orders", "--follow")
        try:
            silent.settimeout(30)
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=15)
        finally:
            process.kill()
    assert process.returncode == 0


def test_with_a_password(tmp_path, monkeypatch):
    with logstore.open(tmp_path / "cluster") as store:
        store.users.set_password("alice", "a long password", iterations=4096)
        store.create_topic("orders")[0].append(b"1")
        with store.listen("127.0.0.1:0", sasl_enabled_mechanisms="SCRAM-SHA-256") as listener:
            command = "bridge", "pull", listener.address, tmp_path / "here", "orders"
            hasty = partial(
                logstore.connected.prepare_connection, request_timeout_ms=500
            )  # it is asked again until then
            with monkeypatch.context() as patch:
                patch.setattr(logstore.connected, "prepare_connection", hasty)
                assert "has closed the connection" in run(*command).err
            assert run(*command, "--user", "alice").code == 2
            monkeypatch.setenv("LOGSTORE_PASSWORD", "another")
            assert run(*command, "--user", "alice").code == 3
            monkeypatch.setenv("LOGSTORE_PASSWORD", "a long password")
            answer(*command, "--user", "alice")
            assert run(*command, "--ca", tmp_path / "nothing").code == 2


def test_with_another_mechanism(tmp_path, monkeypatch):
    """Clusters that people rent often have no other."""
    monkeypatch.setenv("LOGSTORE_PASSWORD", "a long password")
    with logstore.open(tmp_path / "cluster") as store:
        store.users.set_password("alice", "a long password", iterations=4096)
        store.create_topic("orders")[0].append(b"1")
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            with store.listen("127.0.0.1:0", sasl_enabled_mechanisms=mechanism) as listener:
                command = (
                    "bridge",
                    "pull",
                    listener.address,
                    tmp_path / mechanism,
                    "orders",
                    "--user",
                    "alice",
                )
                assert f"; it takes {mechanism}" in run(*command).err
                answer(*command, "--mechanism", mechanism)
                done = run(*command, "--mechanism", "GSSAPI")
                assert (done.code, "GSSAPI" in done.err) == (2, True)


@pytest.mark.skipif(OPENSSL is None, reason="the program openssl, which makes certificates, is missing")
def test_with_a_certificate(tmp_path):
    authority = Authority(tmp_path / "ca")
    server = ServerTls(
        *authority.certify("here", "/CN=here", ["127.0.0.1"]),
        client_ca=authority.root,
        require_client_certificate=True,
    )
    own, key = authority.certify("edge", "/CN=edge")
    both = tmp_path / "both.pem"
    both.write_text(own.read_text() + key.read_text())
    topic = ResourceType.TOPIC, "orders", PatternType.LITERAL
    rights = (Operation.READ, Operation.DESCRIBE_CONFIGS)
    with logstore.open(tmp_path / "cluster") as store:
        store.create_topic("orders")[0].append(b"1")
        store.acls.add([Acl(*topic, "User:CN=edge", "*", each, Permission.ALLOW) for each in rights])
        with store.listen("127.0.0.1:0", tls=server, authorize=True) as listener:
            command = "bridge", "pull", listener.address, tmp_path / "copy", "orders", "--ca", authority.root
            answer(*command, "--certificate", own, "--key", key)
            answer(*command, "--certificate", both)
            assert run(*command, "--certificate", tmp_path / "nothing").code == 2
            done = run(*command, "--key", key)
            assert (done.code, "a key needs the certificate" in done.err) == (2, True)


def test_what_is_wrong(cluster, tmp_path):
    _, address = cluster
    done = run("bridge", "pull", address, tmp_path / "here", "nowhere")
    assert (done.code, "has no topic 'nowhere'" in done.err) == (3, True)
    assert run("bridge", "push", tmp_path / "none", address, "orders").code == 3
    done = run("bridge", "pull", address, tmp_path / "here", "orders", "--name", "x")
    assert (done.code, "are for push" in done.err) == (2, True)
    assert run("bridge", "sideways", address, tmp_path / "here", "orders").code == 2
