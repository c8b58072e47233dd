"""A process was killed with jobs at their last delivery, in the copy of a leader's topic. The next
one did not know yet how far the copy is replicated, so it read nothing there: the jobs counted
as buried, and the dead-letter topic did not have them. The same befell jobs of an open
transaction, when the group began to see committed records only.
"""

from __future__ import annotations

import pytest

import logstore
from logstore import Isolation
from logstore.partition.log import Role
from logstore.testing import ManualClock, MemoryFiles

GROUP = {"group": "g", "dead_letter_topic": "dead", "delivery_count_limit": 1}


@pytest.fixture
def clock():
    return ManualClock()


def open_store(files, clock):
    return logstore.open("/store", files=files, clock=clock)


def buried(store):
    return [record.value for record in store["dead"].read()]


def test_they_wait_until_they_are_known_to_be_replicated(clock, caplog):
    """0.02 s."""
    files = MemoryFiles()
    store = open_store(files, clock)
    store.create_topic("dead")
    log = store.create_topic("jobs")[0]
    log.set_role(Role.LEADER)
    log.extend([b"1", b"2", b"3"])
    log.update_high_watermark(3)
    assert len(store.queue("jobs", **GROUP).poll(timeout=0)) == 3
    store.directory.abandon()

    with open_store(files, clock) as store:
        log = store["jobs"][0]
        log.update_high_watermark(2)
        with store.queue("jobs", **GROUP) as queue:
            assert queue.poll(timeout=0) == []
            assert buried(store) == [b"1", b"2"]
            assert "it cannot be read yet; it is kept, and tried again" in caplog.text
            (status,) = store.queues()
            assert status.partitions[0].available_count == 1
            log.update_high_watermark(3)
            clock.advance(1_000)
            assert queue.poll(timeout=0) == []
            assert buried(store) == [b"1", b"2", b"3"]


def test_they_wait_for_the_end_of_their_transaction(clock):
    """0.02 s."""
    with open_store(MemoryFiles(), clock) as store:
        store.create_topic("dead")
        store.create_topic("jobs")
        producer = store.producer(transactional_id="t")
        with producer.transaction():
            producer.send("jobs", b"1")
            producer.flush()
            with store.queue("jobs", **{**GROUP, "delivery_count_limit": 2}) as queue:
                assert len(queue.poll(timeout=0)) == 1
            with store.queue("jobs", **GROUP, isolation=Isolation.COMMITTED) as queue:
                assert queue.poll(timeout=0) == []
                assert buried(store) == []
        clock.advance(1_000)
        with store.queue("jobs", **GROUP, isolation=Isolation.COMMITTED) as queue:
            assert queue.poll(timeout=0) == []
            assert buried(store) == [b"1"]
