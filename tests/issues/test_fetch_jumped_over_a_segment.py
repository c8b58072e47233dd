"""A fetch that had no room for the first batch of a segment went on with the next segment, whose batches are
smaller, and the consumer never saw the records between. That happens when one fetch asks for many partitions:
those in front use up ``fetch_max_bytes``, and only the first that has anything gets a batch that does not
fit. A fetch without room brings nothing, and is asked again.
"""

from __future__ import annotations

import random

import pytest
from tests.broker.rig import T0, T1, Rig

from logstore.clients.consumer import Consumer
from logstore.clients.settings import ConsumerConfig


def test_a_batch_that_does_not_fit_is_not_jumped_over() -> None:
    log = Rig().directory.log(T0)
    log.append(b"x" * 1_000)
    log.roll()
    log.append(b"small")
    fetched = log.fetch(0, max_bytes=500, min_one_batch=False)
    assert (fetched.data, fetched.next_offset) == (b"", 0)
    assert log.fetch(0, max_bytes=500).next_offset == 1


@pytest.mark.parametrize("seed", range(10))
def test_a_consumer_of_partitions_that_share_little_room_gets_every_record(seed: int) -> None:
    chance = random.Random(seed)
    rig = Rig()
    for partition in (T0, T1):
        log = rig.directory.log(partition)
        for _ in range(30):
            log.append(b"x" * chance.choice((1, 100, 2_000)))
            if chance.random() < 0.4:
                log.roll()
    config = ConsumerConfig(fetch_max_bytes=chance.choice((1, 300, 3_000)))
    consumer = Consumer(rig.broker, partitions=[T0, T1], config=config, clock=rig.clock)
    found = {T0: [], T1: []}
    while records := consumer.poll(0):
        found[T0._replace(partition=records[0].partition)] += [record.offset for record in records]
    assert found == {T0: list(range(30)), T1: list(range(30))}
