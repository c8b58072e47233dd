"""A consumer had records at hand that were cut off its log, gave them, and committed behind them. Then the
process was killed: the next open set the offset back to the end of the log, and forgot in which leader epoch
it was committed. So nothing told that other records were below it, and they were never read.
"""

from __future__ import annotations

import pytest

import logstore
from logstore.testing import ManualClock, MemoryFiles


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_took_the_place_of_lost_records_is_read(is_killed):
    """Also where the log is cut once more instead. 0.1 s."""
    disk, clock = MemoryFiles(), ManualClock()
    store = logstore.open("/store", files=disk, clock=clock)
    topic = store.create_topic("t")
    topic.extend([b"old"] * 10)
    consumer = store.consumer("t", group="g")
    assert len(consumer.poll(0)) == 10
    topic[0].truncate_to(0)
    topic.extend([b"new"] * 2, flush=True)
    consumer.commit()
    if is_killed:
        store.directory.abandon()
        store = logstore.open("/store", files=disk, clock=clock)
    else:
        topic.extend([b"cut off"])
        topic[0].truncate_to(2)
        consumer.close()
    with store:
        assert store.offsets("g")["t", 0].offset == 2
        with store.consumer("t", group="g") as consumer:
            assert [record.value for record in consumer.drain()] == [b"new"] * 2
