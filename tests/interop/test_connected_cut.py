"""Our clients to a stock broker over connections that are cut at any byte: nothing is lost, and nothing comes
twice.

Costs 8 s to start the broker, and 10 s.
"""

from __future__ import annotations

import itertools
import time

import pytest

from logstore.connected import connect
from logstore.errors import RetriableError
from logstore.model import Isolation
from tests.interop.cutting import CuttingProxy
from tests.interop.kafka import KafkaBroker, require_kafka

pytestmark = pytest.mark.interop

SECONDS = 60
SETTINGS = {"reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20, "retry_backoff_ms": 10}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    require_kafka()
    proxy = CuttingProxy(1, longest_bytes=15_000)
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), config=settings) as started:
        proxy.target_port = started.port
        yield proxy
        proxy.close()


@pytest.fixture
def store(kafka):
    kafka.is_calm = True
    with connect(f"127.0.0.1:{kafka.port}", **SETTINGS) as opened:
        for name in opened.topics():
            opened.delete_topic(name)
        opened.create_topic("numbers", partitions=2)
        opened.create_topic("doubles")
        kafka.is_calm, kafka.cut_count = False, 0
        yield opened
        kafka.is_calm = True


def read_all(store, topic, count):
    """Partition -> values, over connections that hold."""
    found: dict[int, list[int]] = {}
    deadline = time.monotonic() + SECONDS
    with store.consumer(topic, isolation=Isolation.COMMITTED) as consumer:
        while sum(map(len, found.values())) < count:
            assert time.monotonic() < deadline, found
            for record in consumer.poll(1):
                found.setdefault(record.partition, []).append(int(record.value))
        for record in consumer.poll(0.3):
            found.setdefault(record.partition, []).append(int(record.value))
    return found


def test_each_record_is_stored_once_and_in_order(kafka, store):
    with store.producer(linger_ms=1, retry_backoff_ms=5) as producer:
        sent = []
        for number in range(4_000):
            sent.append(producer.send("numbers", b"%d" % number, partition=number % 2))
            if number % 40 == 0:
                time.sleep(0.002)
        places = [each.result(SECONDS) for each in sent]
    assert kafka.cut_count > 1
    assert [each.offset for each in places] == [number // 2 for number in range(4_000)]
    kafka.is_calm = True
    found = read_all(store, "numbers", 4_000)
    assert found == {0: list(range(0, 4_000, 2)), 1: list(range(1, 4_000, 2))}


def test_a_group_goes_on_from_what_it_has_committed(kafka, store):
    kafka.is_calm = True
    with store.producer(batch_size=1_000) as producer:  # batches that come through before the next cut
        for number in range(3_000):
            producer.send("numbers", b"%d" % number, partition=number % 2)
    kafka.is_calm = False
    seen: dict[int, list[int]] = {0: [], 1: []}
    deadline = time.monotonic() + SECONDS
    while not all(values and values[-1] >= 2_998 for values in seen.values()):
        assert time.monotonic() < deadline
        with store.consumer(
            "numbers", group="g", max_poll_records=300, max_partition_fetch_bytes=3_000
        ) as consumer:
            for _ in range(6):
                try:
                    for record in consumer.poll(1):
                        seen[record.partition].append(int(record.value))
                    consumer.commit()
                except RetriableError:  # the broker could not say: some come again
                    break
    assert kafka.cut_count > 1
    for partition, values in seen.items():
        assert sorted(set(values)) == list(range(partition, 3_000, 2))
        steps = [after - before for before, after in itertools.pairwise(values)]
        assert all(step == 2 or step <= 0 for step in steps)  # back to a commit, never ahead


def test_a_transform_gives_each_result_once(kafka, store):
    kafka.is_calm = True
    with store.producer() as producer:
        for number in range(1_000):
            producer.send("numbers", b"%d" % number, partition=number % 2)
    kafka.is_calm = False
    deadline = time.monotonic() + SECONDS
    while True:
        assert time.monotonic() < deadline
        transform = store.transform(
            "numbers",
            "doubles",
            lambda record: b"%d" % (2 * int(record.value)),
            group="doubling",
            max_poll_records=100,
        )
        try:
            transform.run(until_end=True)
            break
        except RetriableError:
            continue  # the next run aborts what was open, and goes on
    kafka.is_calm = True
    found = read_all(store, "doubles", 1_000)
    assert sorted(found[0]) == [2 * number for number in range(1_000)]
