"""Nodes that know each other by certificates, by passwords, or by both. Costs about 14 s."""

from __future__ import annotations

import re
import shutil
import ssl
import time
import tomllib

import pytest

import logstore
from logstore.cli.nodes import _OF_NODE, _password, read_node_file
from logstore.config import StoreConfig, TopicConfig, parse_settings
from logstore.errors import LogstoreError, UsageError
from logstore.model import TopicPartition
from logstore.replica.node import fetching
from logstore.security import ClientTls, ServerTls
from logstore.wire.handlers.settings import ListenerConfig
from logstore.wire.remote.connections.settings import RenewedSasl, Sasl
from tests.pages import ROOT
from tests.replica.node.cluster import Cluster, eventually
from tests.wire.security.certificates import OPENSSL, Authority

T = TopicPartition("t", 0)
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="the program openssl is not here")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca") / "ca")


def context_of(authority, name):
    """How a client checks others, and shows who it is."""
    context = ssl.create_default_context(cafile=authority.root)
    context.load_cert_chain(*authority.certify(f"{name}-client", f"/CN={name}"))
    return context


class Secure(Cluster):
    """Each node with a certificate, a user, or both; clients may do what ACLs allow, and nodes everything."""

    def __init__(self, path, authority, *, has_tls, has_sasl):
        self._authority = authority
        self._has_tls, self._has_sasl = has_tls, has_sasl
        super().__init__(path)

    def start(self, node_id, **options):
        if not (self._path / "cluster").exists():  # users of the first node are those of the cluster
            with logstore.open(self._path / f"node-{node_id}") as store:
                store.users.set_password("node", "between nodes")
                store.users.set_password("alice", "a secret")
        settings = {"authorize": True, "super_users": "User:node;User:CN=node;User:alice;User:CN=alice"}
        if self._has_tls:
            files = self._authority.certify(f"node-{node_id}", "/CN=node", ["127.0.0.1"])
            settings |= {
                "tls": ServerTls(*files, client_ca=self._authority.root, require_client_certificate=True),
                "peer_tls": ClientTls(
                    self._authority.root, *self._authority.certify("node-client", "/CN=node")
                ),
            }
        if self._has_sasl:
            settings |= {
                "sasl_enabled_mechanisms": "SCRAM-SHA-256",
                "peer_sasl": Sasl(username="node", password="between nodes"),
            }
        return super().start(node_id, **{**settings, **options})

    def connect(self):
        return logstore.connect(
            *self.addresses,
            tls=context_of(self._authority, "alice") if self._has_tls else None,
            sasl=Sasl(username="alice", password="a secret") if self._has_sasl else None,
        )


KINDS = {"SSL": (True, False), "SASL_PLAINTEXT": (False, True), "SASL_SSL": (True, True)}


@pytest.mark.parametrize("protocol", KINDS)
def test_records_transactions_and_groups(tmp_path, authority, protocol):
    has_tls, has_sasl = KINDS[protocol]
    cluster = Secure(tmp_path, authority, has_tls=has_tls, has_sasl=has_sasl)
    try:
        with cluster.connect() as remote:
            remote.create_topic("t", partitions=3)
            for number in range(3):
                cluster.wait_for_isr(TopicPartition("t", number), 3)
            living = cluster.view.living.values()
            assert {each.endpoints[0].protocol for each in living} == {protocol}
            with remote.producer(transactional_id="x") as producer, producer.transaction():
                for number in range(3):
                    producer.send("t", b"%d" % number, partition=number)
            cluster.stop(cluster.leader_of(T).node_id)
            with remote.consumer("t", group="g", auto_offset_reset="earliest") as consumer:
                found = []
                while len(found) < 3:
                    found += [each.value for each in consumer.poll(10)]
                consumer.commit()
        assert sorted(found) == [b"0", b"1", b"2"]
    finally:
        cluster.close()


def test_a_node_that_was_not_told_how_follows_nobody(tmp_path, authority, caplog):
    cluster = Secure(tmp_path, authority, has_tls=True, has_sasl=False)
    try:
        cluster.stop(3)
        cluster.start(3, peer_tls=None)
        with cluster.connect() as remote:
            eventually(lambda: all(len(node.view.living) == 3 for node in cluster.nodes.values()))
            remote.create_topic("t", partitions=3)  # of a single one it may be the leader
            eventually(lambda: "listens with SSL, and this one connects with PLAINTEXT" in caplog.text)
    finally:
        cluster.close()


@pytest.mark.parametrize(("by_whom", "why"), [("leader", "alert"), ("follower", "certificate verify failed")])
def test_a_certificate_that_is_not_accepted(tmp_path, authority, caplog, monkeypatch, by_whom, why):
    """By whom. It cannot be told from a network that breaks; but it lasts."""
    monkeypatch.setattr(fetching, "_LONG_SECONDS", 0.3)
    other = Authority(tmp_path / "other")
    strange = other.certify("node-client", "/CN=node")
    root = authority.root if by_whom == "leader" else other.root
    cluster = Secure(tmp_path, authority, has_tls=True, has_sasl=False)
    try:
        cluster.stop(3)
        cluster.start(3, peer_tls=ClientTls(root, *strange))
        with cluster.connect() as remote:
            remote.create_topic("t", partitions=3)
        warnings = r"node \d does not answer as a leader: .*" + why
        eventually(lambda: re.search(warnings, caplog.text))
        time.sleep(0.4)
        assert len(re.findall("does not answer as a leader", caplog.text)) <= 2, "once for each leader"
    finally:
        cluster.close()


def test_a_password_that_is_wrong(tmp_path, authority, caplog):
    cluster = Secure(tmp_path, authority, has_tls=False, has_sasl=True)
    try:
        cluster.stop(3)
        cluster.start(3, peer_sasl=Sasl(username="node", password="wrong"))
        with cluster.connect() as remote:
            for number in range(3):
                remote.create_topic(f"t{number}")
            eventually(lambda: "SASL_AUTHENTICATION_FAILED" in caplog.text)
            time.sleep(1.5)
        warnings = [each.getMessage() for each in caplog.records if "SASL_AUTH" in each.getMessage()]
        assert len(warnings) <= 2, "once for each leader, whatever it leads"
    finally:
        cluster.close()


def test_a_password_that_changes(tmp_path, authority, caplog):
    """A node that runs takes the new one with its next connection."""
    word = tmp_path / "word"
    word.write_text("wrong")
    sasl = RenewedSasl(lambda: Sasl(username="node", password=word.read_text()))
    cluster = Secure(tmp_path, authority, has_tls=False, has_sasl=True)
    try:
        cluster.stop(3)
        cluster.start(3, peer_sasl=sasl)
        with cluster.connect() as remote:
            remote.create_topic("t", partitions=3)
            eventually(lambda: "SASL_AUTHENTICATION_FAILED" in caplog.text)
            word.write_text("between nodes")
            for number in range(3):
                cluster.wait_for_isr(TopicPartition("t", number), 3)
    finally:
        cluster.close()


def test_a_password_that_cannot_be_read_stays_as_it_was(tmp_path, caplog):
    word = tmp_path / "word"
    word.write_text("first\n")
    sasl = RenewedSasl(lambda: Sasl(username="node", password=_password("node.toml", str(word))))
    for broken in ("", None, ""):
        word.unlink() if broken is None else word.write_text(broken)
        assert [sasl.current().password for _ in range(3)] == ["first"] * 3
    assert caplog.text.count("new connections get the earlier password") == 3
    word.write_text("second\n")
    assert sasl.current().password == "second"


def test_the_file_of_a_node(tmp_path, authority):
    certificate, key = authority.certify("file", "/CN=file", ["127.0.0.1"])
    (tmp_path / "password").write_text("between nodes\n")
    file = tmp_path / "node.toml"
    lines = [
        'directory = "data"',
        "node_id = 1",
        'coordinator = "common"',
        'listener = "127.0.0.1:0"',
        "[tls]",
        f'certificate = "{certificate}"',
        f'key = "{key}"',
        f'ca = "{authority.root}"',
        "require_client_certificate = true",
        "[peers]",
        'username = "node"',
        'password_file = "password"',
        'mechanism = "SCRAM-SHA-512"',
    ]
    file.write_text("\n".join(lines))
    options = read_node_file(str(file)).options
    assert options["tls"].requires_client_certificate
    assert isinstance(options["peer_tls"], ClientTls)
    assert options["peer_sasl"].current() == Sasl(
        username="node", password="between nodes", mechanism="SCRAM-SHA-512"
    )
    for wrong, why in (
        ("key =", "tls.key must be given"),
        ("ca =", "tls.ca must be given"),
        ("username =", "peers.username must be given"),
    ):
        file.write_text("\n".join(each for each in lines if not each.startswith(wrong)))
        with pytest.raises(UsageError, match=why):
            read_node_file(str(file))
    file.write_text("\n".join(each.replace('"password"', '"nowhere"') for each in lines))
    with pytest.raises(UsageError, match=r"there is no file .*nowhere"):
        read_node_file(str(file))
    file.write_text("\n".join(each.replace(str(key), str(authority.root)) for each in lines))
    with pytest.raises(LogstoreError):
        read_node_file(str(file))


def test_the_file_on_the_page(tmp_path, authority):
    """All of it is taken, as it stands there."""
    page = (ROOT / "docs" / "replication.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    certificate, key = authority.certify("node-1", "/CN=node", ["127.0.0.1"])
    for source, name in ((certificate, "node-1.pem"), (key, "node-1.key"), (authority.root, "ca.pem")):
        shutil.copy(source, tmp_path / name)
    (tmp_path / "node-1.toml").write_text(text)
    found = read_node_file(str(tmp_path / "node-1.toml"))
    assert set(tomllib.loads(text)) >= set(_OF_NODE) - {"advertised", "allow_anonymous"}
    assert found.options["follower_replication_throttled_rate"] == 50_000_000
    chosen = parse_settings((ListenerConfig, StoreConfig, TopicConfig), found.settings)
    assert chosen[ListenerConfig]["super_users"] == "User:CN=node"
