"""Groups of the newer protocol (KIP-848) go from a stock broker to us and back, with Kafka's own clients."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.requests import (
    AssignedPartition,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from logstore.broker.requests import OffsetCommitRequest
from logstore.broker.storing.consumer_groups import describe_stored_consumer_group
from logstore.model import OffsetAndMetadata, TopicPartition
from tests.interop import confluent
from tests.interop.clients import NewRecord, produce
from tests.interop.dump import dump_log
from tests.interop.kafka import KafkaBroker, require_kafka, run_java, tool_jars, wait_for
from tests.rotation import in_turn

pytestmark = pytest.mark.interop

ORDERS = [TopicPartition("orders", number) for number in range(4)]
OFFSETS_TOPIC = "__consumer_offsets"
TOPICS = ["orders", OFFSETS_TOPIC]
HERE = {"client_id": "c", "client_host": "/10.0.0.7"}


def consumer_of(package: Any, broker: KafkaBroker, topic: str = "orders", **settings: str) -> Any:
    """A consumer of the group ``g``."""
    shared = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
    }
    consumer = package.Consumer(shared | {name.replace("_", "."): value for name, value in settings.items()})
    consumer.subscribe([topic])
    return consumer


def settle(*consumers: Any) -> None:
    """Until each has its share of the partitions."""

    def have_shared() -> bool:
        for each in consumers:
            each.poll(0.1)
        return all(len(each.assignment()) == len(ORDERS) // len(consumers) for each in consumers)

    wait_for(have_shared, "a share for each member")


def describe(broker: KafkaBroker, group: str, *options: str) -> str:
    """What ``kafka-consumer-groups --describe`` prints."""
    main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    command = ("--bootstrap-server", broker.bootstrap, "--describe", "--group", group)
    done = run_java(main, *command, *options, classes=tool_jars())
    return done.stdout + done.stderr


def as_kafka_says(broker: KafkaBroker) -> set[tuple[str, ...]]:
    """Member id, instance id, host, epoch, partitions and target of each member of ``g``, as
    ``kafka-consumer-groups`` shows them."""
    printed = describe(broker, "g", "--members", "--verbose")
    found = re.findall(
        r"^g +(\S+) +(\S*) +(/\S+) +\S+ +\d+ +(-?\d+) +(\S+) +\d+ +(\S+)", printed, re.MULTILINE
    )
    assert found, printed
    return set(found)


def as_we_say(path: Path) -> set[tuple[str, ...]]:
    """The same of the directory, read beside its writer."""
    with logstore.open(path, read_only=True) as store:
        directory, committed = store._directory, store._committed_offsets()
        group = describe_stored_consumer_group(directory, committed, "g")
        assert group is not None
        status = store.groups()["g"]
        assert (status.group_type, {each.member_id for each in status.members}) == (
            "consumer",
            {each.member_id for each in group.members},
        )
    return {
        (
            each.member_id,
            each.instance_id or "",
            each.client_host,
            str(each.member_epoch),
            _shown(each.assignment),
            _shown(each.target),
        )
        for each in group.members
    }


def _shown(partitions: tuple[AssignedPartition, ...]) -> str:
    assert {each.topic for each in partitions} <= {"orders"}
    return "orders:" + ",".join(str(each.partition) for each in partitions) if partitions else "-"


def fill(broker: KafkaBroker) -> None:
    broker.create_topics({"orders": len(ORDERS)}, {"orders": {"retention.ms": -1}})
    for each in ORDERS:
        produce(broker.bootstrap, "orders", [[NewRecord(None, b"x")] * 5], partition=each.partition)


@in_turn(6, 8)
def test_a_group_goes_from_a_broker_to_us_and_back(tmp_path: Path) -> None:
    """A minute: two brokers."""
    require_kafka()
    if not confluent.is_there():
        pytest.skip("confluent-kafka is not installed")
    package: Any = importlib.import_module("confluent_kafka")
    with KafkaBroker(tmp_path / "kafka") as broker:
        fill(broker)
        first = consumer_of(package, broker, group_instance_id="one")
        second = consumer_of(package, broker, "^or.*")
        settle(first, second)
        wait_for(lambda: as_we_say(broker.log_dir) == as_kafka_says(broker), "the same members")
        mine = first.assignment()[0]
        mine.offset = 3
        first.commit(offsets=[mine], asynchronous=False)
        second.close()
        first.close()
        wait_for(lambda: as_we_say(broker.log_dir) == as_kafka_says(broker), "the same member")
        assert broker.stop()
        logstore.handover(broker.log_dir, tmp_path / "ours", topics=TOPICS)
    rest = go_on(tmp_path / "ours", TopicPartition(mine.topic, mine.partition))
    check_what_the_dump_tool_prints(tmp_path / "ours")
    with KafkaBroker(tmp_path / "second") as broker:
        broker.create_topics({"orders": len(ORDERS)}, {"orders": {"retention.ms": -1}})
        describe(broker, "any")
        wait_for(lambda: broker.partition_dir(OFFSETS_TOPIC).is_dir(), "the topic of offsets")
        assert broker.stop()
        logstore.handover(tmp_path / "ours", broker.log_dir, topics=TOPICS)
        broker.start()
        assert {each[:4] for each in as_kafka_says(broker)} == {("ours", "one", "/10.0.0.7", "-2")}
        again = consumer_of(package, broker, group_instance_id="one")
        found: list[Any] = []

        def has_read_the_rest() -> bool:
            found.extend(again.consume(100, 0.1))
            return len(found) >= rest

        wait_for(has_read_the_rest, "the records behind what was committed")
        assert len(found) == rest
        again.close()


def go_on(path: Path, committed: TopicPartition) -> int:
    """With the group that the broker has left: its static member is away. It comes back, commits, and goes
    away again. Returns how many records are behind what is committed."""
    with logstore.open(path) as store:
        broker = store._open_broker(store._writable())

        def beat(epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResult:
            request = ConsumerGroupHeartbeat("g", "ours", epoch, "one", **fields, **HERE)
            result = broker.consumer_group_heartbeat(request).poll()
            assert result is not None
            assert result.error is ErrorCode.NONE, result
            return result

        groups = store.groups()
        assert groups["g"].state in ("Assigning", "Reconciling")
        assert groups["g"].offsets[committed].offset == 3
        joined = beat(0, rebalance_timeout_ms=1000, topics=("orders",), owned=frozenset())
        assert joined.assignment is not None
        assert len(joined.assignment) == len(ORDERS)
        assert groups["g"].state == "Stable"
        other = next(each for each in ORDERS if each != committed)
        request = OffsetCommitRequest("g", {other: OffsetAndMetadata(4)}, joined.member_epoch, "ours", "one")
        assert broker.offset_commit(request).poll().error is ErrorCode.NONE  # type: ignore[union-attr]
        beat(-2)
        return 5 * len(ORDERS) - 3 - 4


def check_what_the_dump_tool_prints(path: Path) -> None:
    """Kafka's own decoder knows every record of the group, also of those that we have written."""
    dumped = dump_log(path / f"{OFFSETS_TOPIC}-0", decoder="--offsets-decoder")
    shown = "\n".join(record.text for file in dumped.values() for record in file.records)
    last = shown[shown.rindex('"memberId":"ours"') :]
    assert re.search(r'"memberEpoch":-2,.*"state":0,.*"assignmentEpochs":\[', last), last
    assert '"clientHost":"/10.0.0.7","subscribedTopicNames":["orders"],"subscribedTopicRegex":null' in shown
    assert re.search(r'"topics":\["orders"\]', shown)  # of the regular expression, as the broker wrote it
