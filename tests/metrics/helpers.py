"""A store that has done something of everything that is exported."""

from __future__ import annotations

from contextlib import contextmanager

import logstore
from logstore.testing import ManualClock, MemoryFiles


@contextmanager
def busy_store():
    """In memory, on a clock set by hand: nothing changes between two looks."""
    with logstore.open("/s", files=MemoryFiles(), clock=ManualClock()) as store:
        work_in(store)
        yield store


def work_in(store):
    topic = store.require_topic("orders", partitions=2)
    with store.producer(acks=1) as producer:
        for number in range(30):
            producer.send(topic.name, b"v" * 100, key=b"%d" % number)
    topic.flush()
    with store.consumer(topic.name, group='bill"ing') as consumer:
        consumer.poll(0, max_records=5)
        consumer.commit()
