"""A stock Kafka broker with ZooKeeper reads what we keep there. 10 s."""

from __future__ import annotations

import subprocess
import time

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.interop import kafka
from tests.replica.coordination import server
from tests.replica.coordination.places import chroot, create_topic, elected, eventually, register

pytestmark = pytest.mark.interop


@pytest.fixture
def start_broker(tmp_path):
    started = []

    def start(zookeeper_address):
        (port,) = kafka._free_ports(1)
        settings = tmp_path / "server.properties"
        settings.write_text(
            f"broker.id=100\nzookeeper.connect={zookeeper_address}\nlog.dirs={tmp_path}/data\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port}\nzookeeper.session.timeout.ms=4000\n"
            "num.network.threads=1\nnum.io.threads=2\nbackground.threads=2\n"
        )
        command = kafka.java_command(
            "kafka.Kafka", str(settings), level="WARN", classes=kafka.jars(server.VERSION)
        )
        with (tmp_path / "broker.log").open("wb") as log:
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        return f"127.0.0.1:{port}"

    yield start
    for each in started:
        each.kill()
        each.wait()


def test_a_broker_takes_our_nodes_topics_and_leaders(zookeeper, start_broker):
    """It becomes the controller when ours has resigned, and counts on from its epoch."""
    place = chroot(zookeeper)
    try:
        here, there = place.open(session_ms=4_000), place.open(session_ms=4_000)
        session, other = register(here, 1), register(there, 2)
        control = session.try_to_control()
        create_topic(control, "orders", replicas=[(1, 2), (2, 1)], config={"retention.ms": "12345"})
        for at, leader in enumerate((session, other)):
            state = here.read_state(("orders", at))
            state = elected(state, leader.registration.member)._replace(
                isr=(session.registration.member, other.registration.member)
            )
            assert control.change({("orders", at): state})["orders", at].is_stored
        control.resign()

        admin = AdminClient({"bootstrap.servers": start_broker(place.where)})
        found = eventually(lambda: _metadata(admin), lambda: "the broker tells of no leaders")
        assert {each: (b.host, b.port) for each, b in found.brokers.items() if each < 100} == {
            1: ("127.0.0.1", 9093),
            2: ("127.0.0.1", 9094),
        }
        partitions = found.topics["orders"].partitions
        assert [(p.leader, p.replicas, p.isrs) for _, p in sorted(partitions.items())] == [
            (1, [1, 2], [1, 2]),
            (2, [2, 1], [1, 2]),
        ]
        assert found.controller_id == 100
        assert found.cluster_id == here.cluster_id
        resource = ConfigResource(ResourceType.TOPIC, "orders")
        settings = admin.describe_configs([resource])[resource].result(timeout=20)
        assert settings["retention.ms"].value == "12345"
        assert here._tree.read("/controller_epoch").data == "2"
    finally:
        place.close()


def _metadata(admin):
    """None until the broker tells of our topic."""
    try:
        found = admin.list_topics(timeout=2)
    except Exception:
        time.sleep(0.2)
        return None
    topic = found.topics.get("orders")
    return found if topic is not None and all(p.leader > 0 for p in topic.partitions.values()) else None
