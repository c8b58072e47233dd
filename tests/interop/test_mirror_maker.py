"""MirrorMaker 2 of a stock Kafka copies a topic from a broker to a store that listens, and another back:
equal records, settings that follow, and a group that goes on at the copy where it was at the original."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

import logstore
from logstore.model import TopicPartition
from tests.interop import kafka
from tests.interop.kafka import TOOLS_VERSION, KafkaBroker, java_command, require_kafka
from tests.rotation import in_turn

pytestmark = pytest.mark.interop

POM = Path(__file__).with_name("pom-mirror.xml")
COUNT = 1_000
COMMITTED = 300
GIVE_UP_SECONDS = 240
SETTINGS = """
clusters = broker, store
broker.bootstrap.servers = {broker}
store.bootstrap.servers = {store}
broker->store.enabled = true
broker->store.topics = out
broker->store.sync.group.offsets.enabled = true
store->broker.enabled = true
store->broker.topics = home
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
offset.storage.partitions = 1
status.storage.partitions = 1
emit.checkpoints.interval.seconds = 1
sync.group.offsets.interval.seconds = 1
sync.topic.configs.interval.seconds = 1
offset.lag.max = 0
scheduled.rebalance.max.delay.ms = 0
"""


@contextlib.contextmanager
def mirror_maker(home, broker, store):
    """Runs it, and ends it. Its log is in the file that is given."""
    settings, log = home / "mm2.properties", home / "mm2.log"
    settings.write_text(SETTINGS.format(broker=broker, store=store))
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    libraries = kafka.fetch_jars(
        POM, kafka.CACHE / f"mirror-{TOOLS_VERSION}", f"-Dkafka.version={TOOLS_VERSION}"
    )
    with log.open("wb") as file:
        command = java_command(main, str(settings), level="WARN", classes=libraries)
        process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            yield process, log
        finally:
            process.kill()
            process.wait()


def fill(store, topic):
    """Keys, tombstones, headers, times and a codec, in two partitions."""
    with store.producer(compression="zstd") as producer:
        for number in range(COUNT):
            producer.send(
                topic,
                None if number % 50 == 7 else b"value %d" % number,
                key=b"key %d" % (number % 20),
                headers=[("number", b"%d" % number), ("none", None)] if number % 3 == 0 else [],
                timestamp_ms=1_700_000_000_000 + number,
            )


def records_of(store, topic):
    """By partition; none if there is no such topic."""
    found = []
    for number in range(store.topics().get(topic, 0)):
        with store.consumer(partitions=[(topic, number)]) as consumer:
            found.append([(each.timestamp_ms, *each[2:]) for each in consumer.drain()])
    return found


def set_option(servers, topic, name, value):
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def wait_until(condition, process, log):
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while not condition():
        said = log.read_text(errors="replace")[-3000:]
        assert process.poll() is None, said
        assert time.monotonic() < deadline, said
        time.sleep(0.5)


@in_turn(0, 8)
def test_a_topic_goes_to_a_store_and_another_back(tmp_path):
    """25 s, most of it the start of two JVMs."""
    require_kafka()
    with (
        KafkaBroker(tmp_path / "kafka") as running,
        logstore.open(tmp_path / "store") as opened,
        opened.listen() as listener,
        logstore.connect(running.bootstrap) as broker,
        logstore.connect(listener.address) as store,
    ):
        for place, topic in ((broker, "out"), (store, "home")):
            place.create_topic(topic, partitions=2)
            fill(place, topic)
        with broker.consumer(partitions=[("out", 0)], group="g") as consumer:
            consumer.commit({("out", 0): COMMITTED})
        with mirror_maker(tmp_path, running.bootstrap, listener.address) as (process, log):

            def is_copied():
                there = records_of(store, "broker.out"), records_of(broker, "store.home")
                return all(sum(map(len, each)) >= COUNT for each in there)

            wait_until(is_copied, process, log)
            place = TopicPartition("broker.out", 0)
            wait_until(lambda: store.offsets("g").get(place) is not None, process, log)
            assert store.offsets("g")[place].offset <= COMMITTED
            set_option(running.bootstrap, "out", "max.message.bytes", "70000")
            wait_until(lambda: opened["broker.out"].config.max_message_bytes == 70_000, process, log)
        assert records_of(store, "broker.out") == records_of(broker, "out")
        assert records_of(broker, "store.home") == records_of(store, "home")
        assert sum(map(len, records_of(store, "broker.out"))) == COUNT
