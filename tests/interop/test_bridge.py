"""A bridge from a stock broker into a store, on from there, and back.

Costs 12 s to start the broker, and 20 s for all tests.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

import logstore
from logstore import bridge
from logstore.config import StoreConfig
from logstore.model import Isolation
from tests.bridge.histories import History
from tests.interop import clients
from tests.interop.kafka import KafkaBroker, require_kafka
from tests.rotation import seed_of_turn

pytestmark = pytest.mark.interop

COMMITTED = Isolation.COMMITTED
CALM = StoreConfig(log_cleaner_enable=False)
CODECS = (None, "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    require_kafka()
    with KafkaBroker(
        tmp_path_factory.mktemp("kafka"), config={"log.cleaner.backoff.ms": 200, "log.cleaner.threads": 1}
    ) as started:
        yield started


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store", config=CALM) as opened:
        yield opened


def records(chance, count):
    return [
        clients.NewRecord(
            b"k%d" % chance.randrange(5),
            None if chance.random() < 0.1 else b"%d " % number * chance.randrange(1, 50),
            (("h", b"%d" % number),) if chance.random() < 0.3 else (),
            1_700_000_000_000 + number,
        )
        for number in range(count)
    ]


def write_some(kafka, topic, chance):
    for partition in range(2):
        for _ in range(2):
            codec = chance.choice(CODECS)
            rows = records(chance, 20)
            clients.produce(kafka.bootstrap, topic, [rows[:10], rows[10:]], partition=partition, codec=codec)
        steps = [(records(chance, 5), chance.random() < 0.5) for _ in range(3)]
        clients.produce_transactions(
            kafka.bootstrap, topic, steps, transactional_id=f"p{partition}", partition=partition
        )


def bytes_of(directory):
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def seen(bootstrap, topic, partition):
    found = clients.consume(bootstrap, topic, partition=partition, isolation="read_committed")
    return [(each.offset, each.timestamp_ms, each.key, each.value, each.headers) for each in found]


def held(log):
    return [
        (each.offset, each.timestamp_ms, each.key, each.value, tuple(each.headers))
        for each in log.read(isolation=COMMITTED)
    ]


def connect(kafka):
    return logstore.connect(kafka.bootstrap, retry_backoff_ms=20)


def test_pulled_files_are_the_brokers(kafka, store):
    """Of transactions, codecs, a deleted beginning, and leaders that a crash has changed."""
    chance = random.Random(seed_of_turn())
    kafka.create_topic("down", partitions=2, config={"segment.bytes": 1 << 20})
    with connect(kafka) as cluster:
        write_some(kafka, "down", chance)
        bridge.pull(cluster, store, "down").run(until_end=True)
    kafka.kill()
    kafka.start(same_ports=True)
    with connect(kafka) as cluster:
        write_some(kafka, "down", chance)
        bridge.pull(cluster, store, "down").run(until_end=True)
        for log in store["down"]:
            number = log.partition.partition
            theirs = bytes_of(kafka.partition_dir("down", number))
            assert bytes_of(Path(store.path) / str(log.partition)) == theirs
            assert held(log) == seen(kafka.bootstrap, "down", number)
            assert log.verify()
        assert len({entry.epoch for log in store["down"] for entry in log.epoch_entries}) > 1
        clients.delete_records(kafka.bootstrap, "down", 0, 7)
        bridge.pull(cluster, store, "down").run(until_end=True)
        assert store["down"][0].log_start_offset == 7
        assert held(store["down"][0]) == seen(kafka.bootstrap, "down", 0)
        check_on(store, kafka)


def check_on(store, kafka):
    """From the copy into another cluster: a listener of ours."""
    with logstore.open(f"{store.path}-next") as other, other.listen("127.0.0.1:0") as listener:
        with logstore.connect(listener.address) as target:
            bridge.push(store, target, "down", name="on").run(until_end=True)
        for log in other["down"]:
            there = seen(kafka.bootstrap, "down", log.partition.partition)
            assert [each[1:] for each in held(log)] == [each[1:] for each in there]


def test_a_compacted_topic(kafka, store):
    """Whose cleaner has run: the offsets have gaps."""
    settings = {"cleanup.policy": "compact", "segment.bytes": 1 << 20, "min.cleanable.dirty.ratio": 0.01}
    kafka.create_topic("compacted", config=settings)
    rows = [clients.NewRecord(b"k%d" % (number % 7), b"%d" % number * 20_000) for number in range(60)]
    clients.produce(kafka.bootstrap, "compacted", [[row] for row in rows])
    deadline = time.monotonic() + 20
    while len(seen(kafka.bootstrap, "compacted", 0)) == len(rows) and time.monotonic() < deadline:
        time.sleep(0.2)
    with connect(kafka) as cluster:
        progress = bridge.pull(cluster, store, "compacted").run(until_end=True)
    assert progress.lag == 0
    there = seen(kafka.bootstrap, "compacted", 0)
    here = held(store["compacted"][0])
    assert here[-7:] == there[-7:]
    assert set(there) <= set(here)
    assert len(here) < len(rows)
    assert store["compacted"].config.compacts
    assert store.verify()


def test_pushed_exactly_once_while_the_broker_dies(kafka, store):
    chance = random.Random(seed_of_turn())
    source = store.create_topic("up", partitions=2)
    history = History(source, chance, compacts=False)
    history.shorten = history.plain
    history.go_on(20)
    with logstore.connect(kafka.bootstrap, request_timeout_ms=3_000) as cluster:
        push = bridge.push(store, cluster, "up", name="edge", linger_ms=0)
        thread = threading.Thread(target=push.run)
        thread.start()
        try:
            for step in range(40):
                history.go_on(3)
                time.sleep(0.02)
                if step == 20:
                    kafka.kill()
                    kafka.start(same_ports=True)
            history.end_all()
            deadline = time.monotonic() + 60
            while push.progress.lag or push.progress.trouble or not push.progress.partitions:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            push.stop()
            thread.join()
        bridge.push(store, cluster, "up", name="edge").run(until_end=True)
        offsets = cluster.offsets("logstore-bridge-edge")

        def behind():
            return {offsets[log.partition].offset - log.log_end_offset for log in source}

        deadline = time.monotonic() + 30
        while behind() != {0} and time.monotonic() < deadline:
            time.sleep(0.05)  # Kafka answers a commit first, and writes its markers then
        assert behind() == {0}
    for log in source:
        there = seen(kafka.bootstrap, "up", log.partition.partition)
        assert [each[1:] for each in there] == [each[1:] for each in held(log)]
