"""Committed offsets between us and a stock Kafka.

Its classes encode the records as we do, its tools decode what we write, and its brokers go on with our groups
and hand them back.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.format.messages.group_records import (
    OFFSET_COMMIT_VALUE,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from logstore.format.messages.message import version_of
from logstore.model import OffsetAndMetadata, TopicPartition
from tests.interop import confluent
from tests.interop.dump import dump_log
from tests.interop.kafka import (
    NEWEST,
    OLD,
    KafkaBroker,
    require_kafka,
    run_java,
    run_program,
    tool_jars,
    wait_for,
)
from tests.rotation import rotating

pytestmark = pytest.mark.interop

GOLDEN = Path(__file__).parents[1] / "format" / "messages" / "group_records.txt"
OFFSETS_TOPIC = "__consumer_offsets"
ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
KEPT = {"orders": {"retention.ms": -1}}


def test_the_golden_records_are_what_kafka_prints() -> None:
    require_kafka()
    assert run_program("GroupRecords.java") == GOLDEN.read_text()
    of_consumer_groups = GOLDEN.with_name("consumer_group_records.txt")
    assert run_program("ConsumerGroupRecords.java") == of_consumer_groups.read_text()


def write_store(path: Path) -> None:
    with logstore.open(path) as store:
        orders = store.create_topic("orders", partitions=2)
        for log in orders:
            log.extend([(b"k", b"%d" % number) for number in range(10)])
        billing = store.offsets("billing")
        billing.commit({ORDERS: 1, OTHER: 9})
        billing.commit({ORDERS: OffsetAndMetadata(4, "invoice 7", 0)})
        store.offsets("mail").commit({OTHER: 2})
        store.offsets("gone").commit({ORDERS: 3})
        store.offsets("gone").delete()
        group = GroupMetadataValue(
            "consumer",
            3,
            "range",
            "m-1",
            1_700_000_000_000,
            (MemberMetadata("m-1", None, "c", "/127.0.0.1"),),
        )
        CommittedOffsets(store._directory).store_group("with a member", group)


def test_the_dump_tool_decodes_what_we_write(tmp_path: Path) -> None:
    require_kafka()
    write_store(tmp_path / "store")
    dumped = dump_log(tmp_path / "store" / f"{OFFSETS_TOPIC}-0", decoder="--offsets-decoder")
    printed = [record.text for file in dumped.values() for record in file.records]
    assert len(printed) == 7
    shown = "\n".join(printed)
    assert re.search(
        r'"group":"billing","topic":"orders","partition":0.*"offset":4.*"metadata":"invoice 7"', shown
    )
    assert re.search(r'"group":"gone","topic":"orders","partition":0', shown)
    assert re.search(r'"group":"with a member".*"protocolType":"consumer","generation":3', shown)


@pytest.mark.parametrize("version", rotating([NEWEST, OLD], 8, first=2))
def test_a_broker_goes_on_with_our_groups_and_we_with_its(version: str, tmp_path: Path) -> None:
    require_kafka(version)
    source = tmp_path / "store"
    write_store(source)
    with KafkaBroker(tmp_path / "kafka", version=version) as broker:
        broker.create_topics({"orders": 2}, KEPT)
        describe(broker, "any")
        wait_for(lambda: broker.partition_dir(OFFSETS_TOPIC).is_dir(), "the topic of offsets")
        assert broker.stop()
        logstore.handover(source, broker.log_dir, topics=["orders", OFFSETS_TOPIC])
        broker.start()
        assert describe(broker, "billing") == {ORDERS: 4, OTHER: 9}
        assert describe(broker, "mail") == {OTHER: 2}
        check_the_console_shows_them(broker)
        if confluent.is_there():
            seen = confluent.consume_group(broker.bootstrap, "orders", "billing", 7, "read_committed")
            assert sorted((record.value, record.offset) for record in seen) == [
                *((b"%d" % number, number) for number in range(4, 9)),
                (b"9", 9),
                (b"9", 9),
            ]
            commit_in_transactions(broker, "mail")
        assert broker.stop()
        logstore.handover(broker.log_dir, tmp_path / "back", topics=["orders", OFFSETS_TOPIC])
    check_what_came_back(tmp_path / "back", version)


def describe(broker: KafkaBroker, group: str) -> dict[TopicPartition, int]:
    """What ``kafka-consumer-groups --describe`` shows: topic, partition and current offset."""
    main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    done = run_java(
        main, "--bootstrap-server", broker.bootstrap, "--describe", "--group", group, classes=tool_jars()
    )
    found = re.findall(rf"^{group} +(\S+) +(\d+) +(\d+) ", done.stdout, re.MULTILINE)
    return {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in found}


def check_the_console_shows_them(broker: KafkaBroker) -> None:
    done = run_java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", OFFSETS_TOPIC, "--from-beginning"),
        *("--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"),
        *("--max-messages", "5", "--timeout-ms", "20000"),
        classes=tool_jars(),
    )
    # of seven records, of which the broker's cleaner may have left four, and a group that is not shown
    assert done.stdout.count('{"key":') in (4, 5), done.stdout + done.stderr
    assert re.search(r'"group":"billing","topic":"orders","partition":0.*"metadata":"invoice 7"', done.stdout)


def commit_in_transactions(broker: KafkaBroker, group: str) -> None:
    """One is committed, one aborted."""
    package: Any = importlib.import_module("confluent_kafka")
    consumer = package.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    producer = package.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    producer.init_transactions(20)
    for offset, is_committed in ((7, True), (1, False)):
        producer.begin_transaction()
        producer.produce("orders", b"x", partition=1)
        offsets = [package.TopicPartition("orders", 1, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(20)
    consumer.close()


def check_what_came_back(path: Path, version: str) -> None:
    is_used = confluent.is_there()
    with logstore.open(path) as store:
        billing = store.offsets("billing")
        expected = {ORDERS: 10, OTHER: 10} if is_used else {ORDERS: 4, OTHER: 9}
        assert {each: value.offset for each, value in billing.items()} == expected
        assert store.offsets("mail")[OTHER].offset == (7 if is_used else 2)
        assert dict(store.offsets("gone")) == {}
        committed = CommittedOffsets(store._directory)
        assert committed.unstable("mail") == frozenset()
        assert "with a member" in committed.load_groups()
        check_codecs(store, version)
        billing.commit({ORDERS: 2})
        assert billing[ORDERS].offset == 2
        assert store.verify()
    with logstore.open(path) as store:
        assert store.offsets("billing")[ORDERS].offset == 2
    if not is_used:
        pytest.skip("all but the groups was checked: confluent-kafka is not installed")


def check_codecs(store: logstore.Store, version: str) -> None:
    """What the broker has written is what we write of the same; 3.9 in the versions that we choose too."""
    kinds: set[type] = set()
    for record in store[OFFSETS_TOPIC][0].read():
        assert record.key is not None
        key, value = decode_key(record.key), record.value
        kinds.add(type(key))
        if isinstance(key, OffsetCommitKey):
            assert encode_offset_key(key.group, TopicPartition(key.topic, key.partition)) == record.key
        elif isinstance(key, GroupMetadataKey):
            assert encode_group_key(key.group) == record.key
        if value is None or key is None:
            continue
        number = version_of(value)
        if isinstance(key, OffsetCommitKey):
            offset = decode_offset_value(value)
            assert OFFSET_COMMIT_VALUE.encode(offset, number) == value[2:]
            assert encode_offset_value(offset) == value or (number == 4 and version == NEWEST)
        else:
            assert encode_group_value(decode_group_value(value)) == value
    assert {OffsetCommitKey, GroupMetadataKey} <= kinds
