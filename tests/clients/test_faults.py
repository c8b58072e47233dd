"""Producers and consumers while the disk fails."""

from __future__ import annotations

import itertools
import os
from collections import deque
from time import perf_counter

import pytest

import logstore
from logstore.clients import sender
from logstore.errors import RetriableError, StorageError
from logstore.format.names import TRANSACTIONS_TOPIC
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
from tests.clients.faulty import run
from tests.figures import report
from tests.rotation import seed_of_turn

pytestmark = pytest.mark.damaged  # a log may end with its disk failed
SOAK_FAULTS = int(os.environ.get("LOGSTORE_SOAK_CLIENT_FAULTS", "20000"))


def fail_many(first_seed, fault_count):
    started = perf_counter()
    faults = states = errors = 0
    for seed in itertools.count(first_seed):
        try:
            world = run(seed)
        except Exception as error:
            error.add_note(f"tests.clients.faulty.run({seed})")
            raise
        faults += len(world.files.failures)
        states += world.state_count
        errors += world.errors
        if faults >= fault_count:
            break
    report(
        "failing file operations under producers and consumers",
        count=faults,
        failures=0,
        seconds=perf_counter() - started,
        detail=f"{seed - first_seed + 1:,} histories, {states:,} crash states",
    )
    return errors


def test_some_faults():
    assert fail_many(0, 60) > 0


@pytest.mark.slow
@pytest.mark.every_turn
def test_faults():
    """Others in each turn."""
    assert fail_many(1_000 * seed_of_turn(), 500) > 0


@pytest.mark.soak
def test_very_many_faults():
    assert fail_many(10**6, SOAK_FAULTS) > 0


def test_batches_that_come_twice_are_noticed():
    with pytest.raises(AssertionError, match="TWICE"):
        deque((run(seed, enable_idempotence=False) for seed in range(200)), maxlen=0)


class FullDisk:
    """A store whose disk is full, and a producer of eight batches."""

    def __init__(self, **settings):
        self.files, self.clock = FaultyFiles(MemoryFiles()), ManualClock()
        self.store = logstore.open("/store", files=self.files, clock=self.clock)
        self.store.create_topic("orders")
        settings = {"linger_ms": 0, "batch_size": 1, "retry_backoff_ms": 100, **settings}
        self.producer = self.store.producer(**settings)
        self.files.fail(FAULTS["ENOSPC"], kinds=["write"], path=".log", times=None)
        self.sent = [self.producer.send("orders", b"%d" % number) for number in range(8)]

    def pass_time(self, ms):
        for _ in range(ms // 100):
            self.producer.run_due()
            self.store.run_background()
            self.clock.advance(100)
        self.producer.run_due()

    def values(self):
        return [record.value for record in self.store["orders"][0].read()]


@pytest.mark.parametrize("acks", [1, "all"])
def test_a_full_disk_is_waited_for(acks):
    """By default for ``delivery_timeout_ms``, two minutes."""
    disk = FullDisk(acks=acks)
    disk.pass_time(100_000)
    assert not any(each.is_done for each in disk.sent)
    disk.files.heal()
    disk.pass_time(1_000)
    assert [each.result(0).offset for each in disk.sent] == list(range(8))
    assert disk.values() == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"retries": 0}, StorageError, "orders-0: .*make room"),
        ({"delivery_timeout_ms": 500}, RetriableError, r"delivery_timeout_ms \(500\).*make room"),
    ],
)
def test_a_full_disk_is_not_waited_for(settings, error, message):
    disk = FullDisk(acks=1, **settings)
    disk.pass_time(1_000)
    for each in disk.sent:
        with pytest.raises(error, match=message):
            each.result(0)
    disk.files.heal()
    later = disk.producer.send("orders", b"later")
    disk.pass_time(1_000)
    assert later.result(0).offset == 0
    assert disk.values() == [b"later"]


def test_on_a_full_disk_send_waits_for_memory_and_then_says_so():
    disk = FullDisk(acks=1, buffer_memory=1_000, max_block_ms=0)
    more = (disk.producer.send("orders", b"x" * 50) for _ in range(100))
    with pytest.raises(RetriableError, match=r"no room for more within max_block_ms.*make room"):
        deque(more, maxlen=0)
    disk.files.heal()
    disk.pass_time(1_000)
    assert disk.values()[:8] == [b"%d" % number for number in range(8)]
    assert disk.producer.send("orders", b"y")


def test_a_transaction_on_a_full_disk_says_what_it_waits_for(caplog, monkeypatch):
    """Its coordinator does not take the partition in, so no batch was ever sent."""
    monkeypatch.setattr(sender, "_LONG_MS", 200)
    why = "transactional id 'x': adding partitions of 'orders': a log cannot be written"
    files, clock = FaultyFiles(MemoryFiles()), ManualClock()
    with logstore.open("/store", files=files, clock=clock) as store:
        store.create_topic("orders")
        settings = {"linger_ms": 0, "retry_backoff_ms": 100, "delivery_timeout_ms": 500}
        producer = store.producer(transactional_id="x", **settings)
        transaction = producer.transaction()
        transaction.__enter__()
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path=TRANSACTIONS_TOPIC, times=None)
        sent = producer.send("orders", b"v")
        for _ in range(10):
            producer.run_due()
            clock.advance(100)
        with pytest.raises(RetriableError, match=rf"delivery_timeout_ms \(500\), after 0 attempts; {why}"):
            sent.result(0)
        assert any(
            f"records for orders-0 could not be stored for 0 s: {why}" in each for each in caplog.messages
        )
        files.heal()
        transaction.abort()
        with producer.transaction():
            later = producer.send("orders", b"later")
        assert later.result(0).offset >= 0
