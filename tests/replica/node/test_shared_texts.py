"""Users, ACLs and quotas of a cluster: changed through one node, they hold on all. Costs about 5 s, and 7 s
more for a ZooKeeper that goes and comes back."""

from __future__ import annotations

import json
import shutil
import stat
import threading
from contextlib import suppress

import pytest

import logstore
from logstore.clients.quotas import DEFAULT
from logstore.errors import CorruptionError, LogstoreError, RetriableError, StorageError, UsageError
from logstore.logdir.small_json import JsonFile
from logstore.model import TopicPartition
from logstore.replica.coordination import session
from logstore.security import Acl, Operation, PatternType, Permission, ResourceType
from logstore.wire.messages.security.alter_user_scram_credentials import Deletion
from logstore.wire.remote.connections.settings import Sasl
from tests.replica.coordination import server
from tests.replica.node.cluster import SESSION_MS, Cluster, eventually

PEER = Sasl(username="node", password="between nodes")
SECURE = {
    "sasl_enabled_mechanisms": "SCRAM-SHA-256",
    "peer_sasl": PEER,
    "authorize": True,
    "super_users": "User:node;User:admin",
}
NAMES = ("users.json", "acls.json", "quotas.json")


def may(principal, operation, topic="t"):
    return Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, principal, "*", operation, Permission.ALLOW)


READS, WRITES = may("User:alice", Operation.READ), may("User:alice", Operation.WRITE)


@pytest.fixture
def started(tmp_path):
    """Starts clusters whose nodes do not know each other by a password, which is faster; closes them."""
    found = []

    def start(count=2, **options):
        found.append(Cluster(tmp_path, count, **options))
        return found[-1]

    yield start
    for each in found:
        each.close()


def all_have(cluster, look, wanted):
    """Each node says so, a moment later at most."""
    for node_id in cluster.stores:
        eventually(lambda node_id=node_id: look(cluster.stores[node_id]) == wanted)


def names(store):
    return store.users.names()


def stored(tmp_path, node_id, name):
    return json.loads((tmp_path / f"node-{node_id}" / name).read_text())


# Changes


def test_users_of_the_first_node_are_those_of_a_cluster_that_logs_in(tmp_path, started):
    """With a login between nodes, from a first node that has the users alone. A user that is added through
    one node writes through another, also when the first is gone."""
    with logstore.open(tmp_path / "node-1") as store:
        store.users.set_password("node", "between nodes")
        store.users.set_password("admin", "a secret")
    cluster = started(3, **SECURE)
    with logstore.connect(*cluster.addresses, sasl=Sasl(username="admin", password="a secret")) as remote:
        remote.create_topic("t", config=logstore.TopicConfig(min_insync_replicas=2))
    cluster.wait_for_isr(TopicPartition("t", 0), 3)
    cluster.stores[1].users.set_password("alice", "wonderland")
    cluster.stores[1].acls.add([WRITES, may("User:alice", Operation.DESCRIBE_CONFIGS)])
    all_have(cluster, names, ["admin", "alice", "node"])
    all_have(cluster, lambda store: len(store.acls), 2)
    cluster.stop(1)
    alice = Sasl(username="alice", password="wonderland")
    with logstore.connect(cluster.nodes[2].address, sasl=alice) as remote:
        with remote.producer(acks="all") as producer:
            producer.send("t", b"tea").result()
        with pytest.raises(LogstoreError, match=r"TOPIC_AUTHORIZATION_FAILED|may not"):
            remote.delete_topic("t")
    cluster.stores[3].users.set_password("alice", "out of wonderland")
    eventually(lambda: cluster.stores[2].users.is_password("alice", b"out of wonderland"))
    with (
        pytest.raises(LogstoreError, match="invalid credentials"),
        logstore.connect(cluster.nodes[2].address, sasl=alice) as remote,
    ):
        remote.topics()
    cluster.start(1)
    assert cluster.stores[1].users.is_password("alice", b"out of wonderland")


def test_what_one_node_changes_all_nodes_have(tmp_path, started):
    cluster = started(3)
    one, two, three = cluster.stores.values()
    one.users.set_password("alice", "a")
    two.acls.add([READS, WRITES])
    three.quotas.set(user="alice", producer_byte_rate=1_000)
    for each in cluster.stores.values():
        eventually(lambda each=each: each.users.is_password("alice", b"a"))
    all_have(cluster, lambda store: set(store.acls.matching()), {READS, WRITES})
    all_have(cluster, lambda store: len(store.quotas.list()), 1)
    for node in cluster.nodes.values():
        assert node._broker._quotas.limits.are_set
    two.users.set_password("alice", "b")
    three.acls.remove([logstore.security.AclFilter(operation=Operation.READ)])
    one.quotas.remove(user="alice")
    for each in cluster.stores.values():
        eventually(lambda each=each: each.users.is_password("alice", b"b"))
        assert not each.users.is_password("alice", b"a")
    all_have(cluster, lambda store: set(store.acls.matching()), {WRITES})
    all_have(cluster, lambda store: store.quotas.list(), {})
    three.users.remove("alice")
    all_have(cluster, names, [])
    for node_id in cluster.nodes:
        for name in NAMES:
            eventually(lambda node_id=node_id, name=name: "copy_of" in stored(tmp_path, node_id, name))
    with pytest.raises(UsageError, match="there is no user 'alice'"):
        one.users.remove("alice")


def test_changes_of_several_nodes_at_once_all_survive(started):
    cluster = started(3)
    mechanisms = {"users": lambda store, name: store.users.set_password(name, "x", iterations=4096)}
    mechanisms["acls"] = lambda store, name: store.acls.add([may("User:alice", Operation.READ, name)])
    mechanisms["quotas"] = lambda store, name: store.quotas.set(client_id=name, producer_byte_rate=1)
    failures = []

    def change(node_id, store):
        try:
            for number in range(4):
                for make in mechanisms.values():
                    make(store, f"{node_id}-{number}")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=change, args=each) for each in cluster.stores.items()]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
    all_have(cluster, lambda store: len(names(store)), 12)
    all_have(cluster, lambda store: len(store.acls), 12)
    all_have(cluster, lambda store: len(store.quotas.list()), 12)


def test_a_disk_that_refuses_the_copy_has_it_later(tmp_path, started, monkeypatch):
    cluster = started(2)
    cluster.stores[1].users.set_password("alice", "a")
    all_have(cluster, names, ["alice"])

    def refuse(*_):
        raise StorageError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(JsonFile, "write", refuse)
        cluster.stores[1].users.remove("alice")
        all_have(cluster, names, [])
    for node_id in cluster.nodes:
        eventually(lambda node_id=node_id: stored(tmp_path, node_id, "users.json")["users"] == [])


# Absence


def test_a_node_that_was_away_has_what_has_changed_before_it_listens(tmp_path, started, caplog, monkeypatch):
    cluster = started(2)
    cluster.stores[1].users.set_password("alice", "a")
    cluster.stores[1].users.set_password("bob", "b")
    all_have(cluster, names, ["alice", "bob"])
    cluster.stop(2)
    cluster.stores[1].users.remove("alice")
    cluster.stores[1].users.set_password("bob", "c")
    listen, seen = logstore.Store.listen, []

    def noting(store, *arguments, **options):
        seen.append((names(store), store.users.is_password("bob", b"c")))
        return listen(store, *arguments, **options)

    monkeypatch.setattr(logstore.Store, "listen", noting)
    cluster.start(2)
    assert seen == [(["bob"], True)], "nobody logs in meanwhile who is no user any more"
    assert names(cluster.stores[2]) == ["bob"]
    assert "is kept as" not in caplog.text
    assert not (tmp_path / "node-2" / "users.json.replaced").exists()


def test_without_the_coordinator_changes_are_refused_and_the_rest_goes_on(started, monkeypatch):
    cluster = started(1)
    store = cluster.stores[1]
    store.users.set_password("alice", "a")
    store.acls.add([WRITES])

    def away(*_):
        raise RetriableError("/a/secret/place does not answer")

    monkeypatch.setattr(session.TreeSession, "replace_text", away)
    (outcome,) = store.users.alter([Deletion("alice", 1)], [])
    assert outcome.code.name == "REQUEST_TIMED_OUT"
    assert outcome.message == "the coordinator does not answer; the users may have been changed: look again"
    for refused in (
        lambda: store.users.set_password("alice", "b"),
        lambda: store.users.remove("alice"),
        lambda: store.acls.add([READS]),
        lambda: store.quotas.set(user="alice", producer_byte_rate=1),
    ):
        with pytest.raises(RetriableError):
            refused()
    assert store.users.is_password("alice", b"a")
    assert set(store.acls.matching()) == {WRITES}
    assert store.quotas.list() == {}
    monkeypatch.undo()
    store.users.set_password("alice", "b")


class InZooKeeper(Cluster):
    def __init__(self, path, address, count):
        self._address = address
        super().__init__(path, count)

    def coordinate(self, cluster_id, *, create):
        from logstore.replica.coordination.zookeeper import ZooKeeperCoordinator

        return ZooKeeperCoordinator(
            self._address, session_ms=SESSION_MS, cluster_id=cluster_id, create=create
        )


@pytest.mark.interop
def test_a_zookeeper_that_goes_away_and_comes_back(tmp_path):
    reason = server.unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    zookeeper = server.ZooKeeperServer(tmp_path / "zookeeper")
    zookeeper.start()
    cluster = InZooKeeper(tmp_path, zookeeper.address, 2)
    try:
        one, two = cluster.stores.values()
        one.users.set_password("alice", "a")
        two.acls.add([WRITES])
        all_have(cluster, names, ["alice"])
        all_have(cluster, lambda store: len(store.acls), 1)
        zookeeper.kill()
        for refused in (lambda: one.users.remove("alice"), lambda: two.acls.add([READS])):
            with pytest.raises(RetriableError):
                refused()
        assert all(each.users.is_password("alice", b"a") for each in (one, two))
        zookeeper.start()

        def add():
            with suppress(RetriableError):
                two.users.set_password("bob", "b")
                return True

        eventually(add)
        all_have(cluster, names, ["alice", "bob"])
    finally:
        cluster.close()
        zookeeper.kill()


def test_who_is_no_node_any_more_changes_nothing(tmp_path, started):
    cluster = started(1)
    store = cluster.stores[1]
    store.users.set_password("alice", "a")
    store.quotas.set(user="alice", producer_byte_rate=1)
    cluster.nodes[1].close()
    for refused in (lambda: store.users.remove("alice"), lambda: store.quotas.remove(user="alice")):
        with pytest.raises(RetriableError):
            refused()
    assert names(store) == ["alice"]
    (outcome,) = store.users.alter([Deletion("alice", 1)], [])
    assert outcome[1:] == (7, "this node is not one of the cluster now: the users were not changed")
    cluster.stop(1)
    with logstore.open(tmp_path / "node-1") as alone:
        assert alone.users.is_password("alice", b"a")
        alone.users.set_password("bob", "b")
    cluster.start(1)
    assert names(cluster.stores[1]) == ["alice"], "the cluster's counts"
    assert [each["name"] for each in stored(tmp_path, 1, "users.json.replaced")["users"]] == ["alice", "bob"]


# Stores that have something of their own


def fill(path, user, *, secret="x"):
    with logstore.open(path) as store:
        store.users.set_password(user, secret)
        store.acls.add([may(f"User:{user}", Operation.READ)])
        store.quotas.set(user=user, producer_byte_rate=1)


def test_a_store_that_becomes_a_cluster_takes_them_along(tmp_path, started):
    fill(tmp_path / "node-1", "alice")
    cluster = started(2)
    all_have(cluster, names, ["alice"])
    all_have(cluster, lambda store: [each.principal for each in store.acls.matching()], ["User:alice"])
    all_have(cluster, lambda store: [str(each) for each in store.quotas.list()], ["users/alice"])
    assert cluster.stores[2].users.is_password("alice", b"x")
    mode = (tmp_path / "node-2" / "users.json").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    for file in (tmp_path / "cluster").rglob("*"):
        is_log = file.is_file() and file.parent.name.startswith("log-")
        assert not is_log or stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_node_that_joins_with_others_keeps_its_file_beside(tmp_path, started, caplog):
    fill(tmp_path / "node-2", "bob")
    shutil.copytree(tmp_path / "node-2", tmp_path / "aside")
    cluster = started(1)
    cluster.stores[1].users.set_password("alice", "a")
    cluster.stores[1].acls.add([WRITES])
    cluster.start(2)
    two = cluster.stores[2]
    assert names(two) == ["alice"]
    assert set(two.acls.matching()) == {WRITES}
    all_have(cluster, lambda store: list(store.quotas.list()), [])
    for name, what in (("users.json", "alice, bob"), ("acls.json", "User:"), ("quotas.json", "users/bob")):
        path = tmp_path / "node-2" / f"{name}.replaced"
        assert path.read_text() == (tmp_path / "aside" / name).read_text()
        assert f"{tmp_path}/node-2/{name} differs from what the cluster has, in {what}" in caplog.text
    assert stat.S_IMODE((tmp_path / "node-2" / "users.json.replaced").stat().st_mode) == 0o600
    two.backup(tmp_path / "backup")
    two.backup(tmp_path / "backup")
    with logstore.open(tmp_path / "backup") as restored:
        assert names(restored) == ["alice"]


@pytest.mark.damaged
@pytest.mark.parametrize("name", ["users.json", "acls.json"])
def test_a_damaged_file_does_not_become_the_clusters(tmp_path, started, name):
    fill(tmp_path / "node-1", "alice")
    (tmp_path / "node-1" / name).write_text("{")
    with pytest.raises(CorruptionError, match="Restore the file, or move it away"):
        started(1)
    cluster = started(0)
    cluster.start(2)
    assert names(cluster.stores[2]) == []
    assert not cluster.stores[2].acls.matching()


def test_a_quota_of_all_clients_does_not_hold_followers_back(started):
    """Else a record that waits for them would wait for a minute."""
    cluster = started(2)
    quotas = cluster.stores[1].quotas
    quotas.set(client_id="mine", consumer_byte_rate=2**31, request_percentage=10_000)
    quotas.set(client_id=DEFAULT, consumer_byte_rate=10, request_percentage=0.001)
    eventually(lambda: all(len(store.quotas.list()) == 2 for store in cluster.stores.values()))
    config = logstore.TopicConfig(min_insync_replicas=2)
    with logstore.connect(*cluster.addresses, client_id="mine") as remote:
        remote.create_topic("t", replication_factor=2, config=config)
        cluster.wait_for_isr(TopicPartition("t", 0), 2)
        with remote.producer(acks="all") as producer:
            for _ in range(5):
                producer.send("t", bytes(100_000)).result(10)


@pytest.mark.damaged
def test_damaged_quotas_hold_nobody_and_are_not_given(tmp_path, started, caplog):
    fill(tmp_path / "node-1", "alice")
    (tmp_path / "node-1" / "quotas.json").write_text("{")
    cluster = started(1)
    eventually(lambda: set(cluster.nodes[1].view.texts) == {"users", "acls"})
    with pytest.raises(CorruptionError):
        cluster.stores[1].quotas.set(user="alice", producer_byte_rate=2)
    cluster.start(2)
    cluster.stores[2].quotas.set(user="alice", producer_byte_rate=3)
    eventually(lambda: cluster.nodes[1]._broker._quotas.limits.are_set)
    assert len(cluster.stores[1].quotas.list()) == 1
    eventually(lambda: (tmp_path / "node-1" / "quotas.json.replaced").exists())


def test_more_than_a_cluster_takes_is_refused_and_changes_nothing(started, monkeypatch):
    cluster = started(1)
    store = cluster.stores[1]
    store.users.set_password("alice", "a")
    monkeypatch.setattr(session, "MOST_TEXT_BYTES", 2_000)
    store.users.set_password("bob", "b")
    with pytest.raises(
        UsageError, match=r"the users of the cluster would have 2,\d\d\d bytes; 2,000 are allowed"
    ):
        store.users.set_password("carol", "c")
    assert names(store) == ["alice", "bob"]
    store.users.remove("bob")
    store.users.set_password("carol", "c")


def test_a_store_that_has_more_is_no_node(tmp_path, started, monkeypatch):
    fill(tmp_path / "node-1", "alice")
    monkeypatch.setattr(session, "MOST_TEXT_BYTES", 500)
    with pytest.raises(UsageError, match="the users of the cluster would have"):
        started(1)
    with logstore.open(tmp_path / "node-1") as store:
        assert names(store) == ["alice"]


def test_what_somebody_removes_from_the_coordinator_because_it_is_damaged_comes_back(started, caplog):
    """From a node's copy, with its next change. Versions begin anew then."""
    cluster = started(2)
    one, two = cluster.stores.values()
    for number in range(3):
        one.users.set_password(f"user{number}", "x")
    all_have(cluster, lambda store: len(names(store)), 3)
    tree = cluster.nodes[1]._coordinator._tree
    assert tree.commit([session.Write("/logstore/users", "{")]) is None
    eventually(lambda: "the users of the cluster cannot be read, and stay here as they were" in caplog.text)
    assert "/logstore/users of the coordinator is not JSON" in caplog.text
    with pytest.raises(CorruptionError, match="the users of the cluster are damaged, and were not changed"):
        two.users.remove("user0")
    assert all(len(names(each)) == 3 for each in (one, two))
    assert tree.commit([session.Delete("/logstore/users")]) is None
    eventually(lambda: all("users" not in each.view.texts for each in cluster.nodes.values()))
    two.users.remove("user0")
    all_have(cluster, names, ["user1", "user2"])
    one.users.remove("user1")
    all_have(cluster, names, ["user2"])
