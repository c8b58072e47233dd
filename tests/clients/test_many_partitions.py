"""Producers that send to many partitions: open batches take no more of ``buffer_memory`` than they need."""

from __future__ import annotations

import random

import pytest

from logstore.clients.producer import Producer
from logstore.clients.settings import ProducerConfig
from logstore.config import TopicConfig
from logstore.format.gathered import record_bytes
from logstore.format.loops import scan_batches
from logstore.model import TopicPartition
from tests.broker.rig import Rig
from tests.clients.test_producer import batches, values

_COUNT = 300


@pytest.fixture
def rig():
    rig = Rig()
    rig.directory.create_topic("many", _COUNT, TopicConfig())
    return rig


def test_batches_of_many_partitions_wait_for_more_within_the_memory_of_a_few(rig):
    config = ProducerConfig(acks=1, linger_ms=1_000, buffer_memory=4 * 262_144)
    producer = Producer(rig.broker, config=config, clock=rig.clock)
    for number in range(10 * _COUNT):
        producer.send("many", b"%d" % number, partition=number % _COUNT)
        producer.run_due()
    assert producer.counts.delivered_record_count == 0
    producer.flush()
    for number in range(0, _COUNT, 50):
        partition = TopicPartition("many", number)
        assert batches(rig, partition) == 1
        assert values(rig, partition) == [b"%d" % each for each in range(number, 10 * _COUNT, _COUNT)]


@pytest.mark.parametrize("seed", range(8))
def test_what_is_counted_as_used_covers_what_waits_and_is_given_back(rig, seed):
    chance = random.Random(seed)
    batch_size = chance.choice((1, 700, 5_000, 60_000))
    config = ProducerConfig(acks=1, linger_ms=50, batch_size=batch_size, max_block_ms=0)
    producer = Producer(rig.broker, config=config, clock=rig.clock)
    sent = []
    for number in range(400):
        value = b"x" * chance.choice((0, 10, 100, 3_000, 20_000))
        key = chance.choice((None, b"k"))
        sent.append(producer.send("many", value, key=key, partition=chance.choice((0, 1, number % _COUNT))))
        waiting = sum(
            record_bytes(row[0], row[1], row[3])
            for queue in producer._topics["many"].partitions
            if queue.open is not None
            for row in queue.open.rows.rows
        )
        assert waiting <= producer._accumulator.used_bytes()
        if not chance.randrange(20):
            rig.clock.advance(chance.randrange(100))
            producer.run_due()
    producer.flush()
    assert all(each.result(0).offset >= 0 for each in sent)
    assert producer._accumulator.used_bytes() == 0


def test_batches_of_one_partition_are_as_large_as_before(rig):
    size_bytes = record_bytes(None, b"x" * 100, ())
    config = ProducerConfig(acks=1, linger_ms=1_000, batch_size=61 + 150 * size_bytes)
    producer = Producer(rig.broker, config=config, clock=rig.clock)
    for _ in range(1_000):
        producer.send("many", b"x" * 100, partition=0)
    producer.flush()
    data = rig.directory.log(TopicPartition("many", 0)).fetch(0).data
    found, _, _ = scan_batches(data, 0, len(data), check=True)
    assert [header.record_count for _, header in found] == [150] * 6 + [100]
