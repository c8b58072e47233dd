"""The groups of a running Kafka, as its own admin client describes them and as we read its directory."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.errors import ReadOnlyError
from logstore.model import TopicPartition
from tests.interop import confluent
from tests.interop.clients import NewRecord, produce
from tests.interop.kafka import KafkaBroker, require_kafka, wait_for

pytestmark = pytest.mark.interop

ORDERS = [TopicPartition("orders", number) for number in range(2)]


def member(package: Any, broker: KafkaBroker, **settings: str) -> Any:
    """A consumer of the group ``g``."""
    shared = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
    }
    consumer = package.Consumer(shared | {name.replace("_", "."): value for name, value in settings.items()})
    consumer.subscribe(["orders"])
    return consumer


def settle(*consumers: Any) -> None:
    """Until they share the two partitions."""

    def have_shared() -> bool:
        for each in consumers:
            each.poll(0.1)
        return all(len(each.assignment()) == 2 // len(consumers) for each in consumers)

    wait_for(have_shared, "a share for each member")


def as_kafka_says(package: Any, broker: KafkaBroker) -> dict[str, Any]:
    """Name -> state, assignor, members, committed offsets."""
    admin = package.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    names = [each.group_id for each in admin.list_consumer_groups().result(20).valid]
    found = {}
    for name, future in admin.describe_consumer_groups(names).items():
        group = future.result(20)
        request = package.ConsumerGroupTopicPartitions(name)
        offsets = admin.list_consumer_group_offsets([request])[name].result(20).topic_partitions
        members = {
            (
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.host,
                tuple(sorted(TopicPartition(p.topic, p.partition) for p in each.assignment.topic_partitions)),
            )
            for each in group.members
        }
        found[name] = (
            group.state.name.title(),
            group.partition_assignor,
            members,
            {TopicPartition(each.topic, each.partition): each.offset for each in offsets},
        )
    return found


def as_we_say(path: Path) -> dict[str, Any]:
    with logstore.open(path, read_only=True) as store:
        return {
            name: (
                each.state,
                each.assignor,
                {tuple(member) for member in each.members},
                {partition: value.offset for partition, value in each.offsets.items()},
            )
            for name, each in store.groups().items()
        }


def test_beside_a_running_broker(tmp_path: Path) -> None:
    """25 s: a broker, with a group of two members, one of them static, and one that only commits."""
    require_kafka()
    if not confluent.is_there():
        pytest.skip("confluent-kafka is not installed")
    package: Any = importlib.import_module("confluent_kafka")
    importlib.import_module("confluent_kafka.admin")
    with KafkaBroker(tmp_path) as broker:
        broker.create_topics({"orders": 2}, {})
        for number in range(2):
            produce(broker.bootstrap, "orders", [[NewRecord(None, b"x")] * 5], partition=number)
        first = member(package, broker, client_id="first", group_instance_id="one")
        settle(first)
        first.commit(offsets=[package.TopicPartition("orders", 0, 3)], asynchronous=False)
        alone = package.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "alone"})
        alone.assign([package.TopicPartition("orders", 1, 0)])
        alone.commit(offsets=[package.TopicPartition("orders", 1, 4)], asynchronous=False)
        said = as_kafka_says(package, broker)
        assert (said["g"][0], len(said["g"][2])) == ("Stable", 1)
        assert as_we_say(broker.log_dir) == said
        with logstore.open(broker.log_dir, read_only=True) as store:
            groups = store.groups()
            assert groups["g"].lag == {ORDERS[0]: 2}
            assert groups.reset("alone", "latest", dry_run=True) == {ORDERS[1]: (4, 5)}
            with pytest.raises(logstore.RetriableError, match=r"has 1 member, .*static: 'one'"):
                groups.reset("g", "latest", dry_run=True)
            with pytest.raises(ReadOnlyError):
                groups.delete("alone")
            second = member(package, broker, client_id="second")
            settle(first, second)
            wait_for(lambda: as_we_say(broker.log_dir) == as_kafka_says(package, broker), "the same groups")
            assert len(groups["g"].members) == 2
            second.close()
            first.close()
            admin = package.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.delete_consumer_groups(["alone"])["alone"].result(20)
            wait_for(lambda: list(groups) == ["g"], "the deletion")
        alone.close()
