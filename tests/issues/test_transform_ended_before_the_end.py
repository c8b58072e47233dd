"""``run(until_end=True)`` with several workers could return before the end. A worker that was done left the
group; another, which had no partitions yet, took that for the end of all, and what it was about to get was
not read. A last look by one worker alone takes what is left."""

from __future__ import annotations

import time

import pytest

import logstore
from logstore.clients.transform import Transform
from logstore.model import Isolation

RECORDS = 40


class Joining:
    """A consumer of the group that has no partitions yet."""

    assignment = ()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def poll(self, timeout):
        time.sleep(0.01)
        return []


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path) as store:
        store.create_topic("in", partitions=2)
        store.create_topic("out")
        yield store


def test_what_had_no_worker_is_read_all_the_same(store):
    for number in range(RECORDS):
        store["in"][number % 2].append(b"%d" % number)
    first = store.consumer(partitions=[("in", 0)], group="g", isolation=Isolation.COMMITTED)
    consumers = [first, Joining()]

    def make_consumer():
        if consumers:
            return consumers.pop()
        return store.consumer("in", group="g", isolation=Isolation.COMMITTED)

    transform = Transform(
        make_consumer,
        lambda number: store.producer(transactional_id=f"g-{number}"),
        "out",
        lambda record: record.value,
        dead_letter_topic=None,
        retries=0,
        retry_backoff_ms=10,
        workers=2,
    )
    assert transform.run(until_end=True).record_count == RECORDS
    found = store["out"][0].read(isolation=Isolation.COMMITTED)
    assert sorted(int(record.value) for record in found) == list(range(RECORDS))
