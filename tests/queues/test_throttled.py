"""Workers that a quota holds for."""

from __future__ import annotations

import asyncio
import time

import pytest

import logstore
from logstore import aio
from logstore.clients.quotas import DEFAULT
from logstore.config import StoreConfig
from logstore.errors import RetriableError
from logstore.testing import ManualClock, MemoryFiles

SHORT = StoreConfig(quota_window_num=2)
"""A second's worth may come at once."""
VALUE = b"x" * 1_000
BATCH_BYTES = 1_070
"""Of one such record."""


def fill(log, count):
    for _ in range(count):
        log.append(VALUE)
        log.flush()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(clock):
    with logstore.open("/store", files=MemoryFiles(), clock=clock, config=SHORT) as store:
        fill(store.create_topic("jobs")[0], 20)
        yield store


def test_a_worker_takes_no_more_than_its_quota(store, clock):
    store.quotas.set(client_id=DEFAULT, consumer_byte_rate=2 * BATCH_BYTES)
    times = []
    with store.queue("jobs", group="g", client_id="slow") as queue:
        while len(times) < 20 and clock.monotonic_ms() < 60_000:
            for job in queue.poll(0):
                job.accept()
                times.append(clock.monotonic_ms())
            clock.advance(10)
    assert len(times) == 20
    assert 8_000 <= times[-1] - times[0] <= 11_000
    assert store.metrics().histogram("logstore_throttle_seconds", api="share_fetch").sum > 8


def test_accepting_is_not_held_back_and_what_is_taken_is_given(store, clock):
    store.quotas.set(client_id="slow", consumer_byte_rate=1)
    with store.queue("jobs", group="g", client_id="slow") as queue:
        (job,) = queue.poll(0)
        queue.give_back([job])
        assert queue.poll(0) == [job]
        job.accept()
        queue.flush()
        assert queue.poll(0) == []
        assert queue.was_throttled
        assert store.queues()[0].partitions[0].start_offset == 1


def test_a_drain_does_not_take_a_delay_for_the_end(store):
    store.quotas.set(client_id="slow", consumer_byte_rate=1)
    queue = store.queue("jobs", group="g", client_id="slow")
    with queue, pytest.raises(RetriableError, match="let the clock go on"):
        list(queue.drain())


def test_drains_and_work_wait_for_a_delay_and_end(tmp_path):
    """On the clock of the system; costs 1 s."""

    async def tasks():
        opening = aio.open(tmp_path, config=SHORT)
        async with opening as store, store.queue("jobs", group="tasks", client_id="slow") as queue:
            return [job.offset async for job in queue.drain()]

    with logstore.open(tmp_path, config=SHORT) as store:
        fill(store.create_topic("jobs")[0], 4)
        store.quotas.set(client_id=DEFAULT, consumer_byte_rate=8 * BATCH_BYTES, request_percentage=50)
        began = time.monotonic()
        for name in "abc":
            with store.queue("jobs", group=name, client_id="slow") as queue:
                assert queue.work(lambda job: None, until_empty=True).accepted_count == 4
        assert time.monotonic() - began > 0.3
    assert asyncio.run(tasks()) == [0, 1, 2, 3]
