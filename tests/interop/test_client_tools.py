"""Kafka's programs that produce, consume and look after groups, transactions and ACLs, against a store
that listens. Cost: 12 s, for one JVM."""

from __future__ import annotations

import re

import pytest

from logstore.logdir.acls import Operation
from logstore.testing import kafka as listening
from tests.interop import kafka
from tests.interop.test_admin_tools import TOOLS, run
from tests.rotation import in_turn

pytestmark = pytest.mark.interop

COUNT = 100
PLACE = ("--group", "console", "--topic", "t")


@pytest.fixture
def servers():
    kafka.require_kafka()
    with listening(topics={"t": 1, "u": 1}, authorize=True, super_users="User:ANONYMOUS") as servers:
        yield servers


@in_turn(7, 8)
def test_programs_that_produce_consume_and_look_after(servers):
    groups = TOOLS + "consumer.group.ConsumerGroupCommand"
    acls, transactions = TOOLS + "AclCommand", TOOLS + "TransactionsCommand"
    everything = ("--topic", "t", "--from-beginning", "--max-messages", str(COUNT))
    sends = servers.store.producer(transactional_id="sends")
    with sends.transaction():
        sends.send("u", b"v")
    commands = {
        "produced": (TOOLS + "VerifiableProducer", "--topic", "t", "--max-messages", str(COUNT)),
        "performed": (
            TOOLS + "ProducerPerformance",
            *("--topic", "u", "--num-records", "50", "--record-size", "99", "--throughput", "-1"),
        ),
        "offsets": (TOOLS + "GetOffsetShell", "--topic-partitions", "t:0,u:0"),
        "consumed": (TOOLS + "consumer.ConsoleConsumer", *everything, "--group", "console"),
        "measured": (TOOLS + "ConsumerPerformance", "--topic", "t", "--num-records", str(COUNT)),
        "verified": (
            TOOLS + "VerifiableConsumer",
            *("--topic", "t", "--group-id", "verifiable", "--max-messages", str(COUNT)),
            *("--reset-policy", "earliest"),
        ),
        "listed": (groups, "--list"),
        "described": (groups, "--describe", "--group", "console"),
        "reset": (groups, "--reset-offsets", *PLACE, "--shift-by", "-7", "--execute"),
        "deleted": (groups, "--delete", "--group", "verifiable"),
        "kinds": (TOOLS + "GroupsCommand", "--list"),
        "transactions": (transactions, "list"),
        "transaction": (transactions, "describe", "--transactional-id", "sends"),
        "producers": (transactions, "describe-producers", "--topic", "u", "--partition", "0"),
        "allowed": (acls, "--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "t"),
        "rules": (acls, "--list", "--topic", "t"),
        "forbidden": (acls, "--remove", "--force", "--topic", "u"),
        "versions": (TOOLS + "BrokerApiVersionsCommand",),
    }
    found = run(servers, *commands.values(), classes=kafka.tool_jars())
    ran = dict(zip(commands, found, strict=True))
    failed = {name: each for name, each in ran.items() if each.status != "0"}
    assert not failed

    said = {name: each.said for name, each in ran.items()}
    acknowledged = re.findall('"producer_send_success"', "".join(said.values()))
    assert len(acknowledged) == COUNT  # the program prints them when the next one runs
    values = [record.value.decode() for record in servers.store["t"][0].read()]
    assert values == [str(number) for number in range(COUNT)]
    assert "50 records sent" in said["performed"]
    assert f"t:0:{COUNT}" in said["offsets"]
    assert [line for line in said["consumed"].splitlines() if line.isdecimal()] == values
    assert re.search(rf", {COUNT}, ", said["measured"])
    assert '"name":"records_consumed"' in said["verified"]
    assert {"console", "verifiable"} <= set(said["listed"].split())
    assert re.search(rf"console\s+t\s+0\s+{COUNT}\s+{COUNT}\s+0\b", said["described"])
    assert servers.store.offsets("console").get(("t", 0)).offset == COUNT - 7
    assert "verifiable" not in servers.store.groups()
    assert re.search(r"console\s+Classic\s+consumer", said["kinds"])
    assert re.search(r"sends\s.*CompleteCommit", said["transactions"])
    assert re.search(r"sends\s.*CompleteCommit", said["transaction"])
    assert re.search(r"^\d+\s+\d+\s+", said["producers"], re.MULTILINE)
    (rule,) = servers.store.acls.matching()
    assert (rule.principal, rule.operation) == ("User:bob", Operation.READ)
    assert "principal=User:bob" in said["rules"]
    unsupported = re.findall(r"(\w+)\(\d+\): UNSUPPORTED", said["versions"])
    assert not {"Produce", "Fetch", "ConsumerGroupHeartbeat", "EndTxn", "CreateAcls"} & set(unsupported)
    assert "ConsumerGroupHeartbeat(68): 0" in said["versions"]
