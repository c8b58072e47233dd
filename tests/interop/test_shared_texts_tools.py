"""Kafka's tools change the users, ACLs and quotas of a cluster through one node, and another goes by them.
Cost: 12 s, for two JVMs."""

from __future__ import annotations

import os

import pytest

import logstore
from logstore.errors import LogstoreError
from logstore.wire.remote.connections.settings import Sasl
from tests.interop import kafka
from tests.interop.test_admin_tools import run
from tests.replica.node.cluster import Cluster, eventually
from tests.replica.node.test_shared_texts import SECURE

pytestmark = pytest.mark.interop

CONFIGS, ACLS = "kafka.admin.ConfigCommand", "kafka.admin.AclCommand"
"""Those of 3.9: the first of 4.x is not in the packages of its jars."""
USER = ("--entity-type", "users", "--entity-name", "alice")
RULE = ("--allow-principal", "User:alice", "--operation", "All", "--topic", "t")


@pytest.fixture
def cluster(tmp_path):
    kafka.require_kafka()
    with logstore.open(tmp_path / "node-1") as store:
        for name in ("node", "admin"):
            store.users.set_password(name, "between nodes")
    cluster = Cluster(tmp_path, 2, replication_factor=1, **SECURE)
    yield cluster
    cluster.close()


def test_a_user_and_a_rule_through_one_node_hold_at_the_other(cluster, tmp_path):
    login = tmp_path / "admin.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="admin" password="between nodes";\n'
    )
    as_admin = ("--command-config", os.fspath(login))
    one, two = (node.address for node in cluster.nodes.values())
    admin, alice = Sasl(username="admin", password="between nodes"), Sasl(username="alice", password="tea")
    with logstore.connect(one, sasl=admin) as remote:
        remote.create_topic("t")
    done = run(
        one,
        (
            CONFIGS,
            "--alter",
            *USER,
            "--add-config",
            "SCRAM-SHA-256=[iterations=4096,password=tea]",
            *as_admin,
        ),
        (CONFIGS, "--alter", *USER, "--add-config", "producer_byte_rate=1000000", *as_admin),
        (ACLS, "--add", *RULE, *as_admin),
        classes=kafka.jars(kafka.OLD),
    )
    assert [each.status for each in done] == ["0"] * 3, done
    there = cluster.stores[2]
    eventually(lambda: (there.users.names(), len(there.acls)) == (["admin", "alice", "node"], 1))
    eventually(lambda: [str(each) for each in there.quotas.list()] == ["users/alice"])
    with logstore.connect(two, sasl=alice) as remote:
        assert set(remote.topics()) == {"t"}
        with remote.producer() as producer:
            producer.send("t", b"v").result()
    described, listed, *removed = run(
        two,
        (CONFIGS, "--describe", *USER, *as_admin),
        (ACLS, "--list", "--topic", "t", *as_admin),
        (ACLS, "--remove", "--force", *RULE, *as_admin),
        (CONFIGS, "--alter", *USER, "--delete-config", "SCRAM-SHA-256", *as_admin),
        classes=kafka.jars(kafka.OLD),
    )
    assert [each.status for each in (described, listed, *removed)] == ["0"] * 4
    assert (
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=4096"
        in described.said
    )
    assert "producer_byte_rate=1000000" in described.said
    assert "principal=User:alice, host=*, operation=ALL, permissionType=ALLOW" in listed.said
    here = cluster.stores[1]
    eventually(lambda: (here.users.names(), len(here.acls)) == (["admin", "node"], 0))
    with (
        pytest.raises(LogstoreError, match="invalid credentials"),
        logstore.connect(one, sasl=alice) as remote,
    ):
        remote.topics()
