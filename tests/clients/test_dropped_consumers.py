"""Consumers that their program drops without ``close()``: as a cell of a notebook that is run again does."""

from __future__ import annotations

import gc
import logging
import time

import pytest

import logstore
from logstore.errors import UsageError

BOTH = [("t", 0), ("t", 1)]


@pytest.fixture(params=["store", "connected"])
def place(tmp_path, request):
    """Whoever makes consumers, and the log of warnings."""
    with logstore.open(tmp_path / "store") as store:
        topic = store.create_topic("t", partitions=2)
        for number in range(10):
            topic[number % 2].append(b"%d" % number)
        if request.param == "store":
            yield store
            return
        with store.listen() as listener, logstore.connect(listener.address) as connected:
            yield connected


@pytest.fixture
def warnings(caplog):
    with caplog.at_level(logging.WARNING, logger="logstore"):
        yield lambda: [record.getMessage() for record in caplog.records]


def consumer_of(place, **settings):
    return place.consumer("t", group="g", **settings)


def read_all(consumer, seconds=10):
    """Until all ten have come, or it is late."""
    found, until = [], time.monotonic() + seconds
    while len(found) < 10 and time.monotonic() < until:
        found += [record.value for record in consumer.poll(timeout=0.2)]
    return sorted(found)


def test_the_next_consumer_has_its_partitions_at_once(place, warnings):
    consumer = consumer_of(place)
    assert consumer.poll(timeout=5)
    consumer = consumer_of(place)
    assert read_all(consumer) == [b"%d" % number for number in range(10)]
    assert [*consumer.assignment] == BOTH
    (warning,) = warnings()
    assert warning.startswith("group 'g': a consumer was dropped without close(); others get its partitions")
    consumer.close()


def test_a_consumer_that_polls_gets_its_partitions(place, warnings):
    """0.3 s."""
    stays, goes = [consumer_of(place, heartbeat_interval_ms=50) for _ in range(2)]
    until = time.monotonic() + 10
    while not (len(stays.assignment) == len(goes.assignment) == 1) and time.monotonic() < until:
        stays.poll(timeout=0.02)
        goes.poll(timeout=0.02)
    del goes
    while [*stays.assignment] != BOTH and time.monotonic() < until:
        stays.poll(timeout=0.02)
    assert [*stays.assignment] == BOTH
    assert len(warnings()) == 1
    stays.close()


def test_nothing_is_said_of_those_that_are_closed_or_have_joined_no_group(place, warnings):
    with consumer_of(place) as consumer:
        assert consumer.poll(timeout=5)
    consumer_of(place)  # never polled
    place.consumer("t").poll(timeout=5)
    place.consumer(partitions=BOTH, group="g").poll(timeout=5)
    consumer = None
    gc.collect()
    with consumer_of(place) as another:
        assert another.poll(timeout=5)
    assert warnings() == []


def test_a_static_member_stays_as_one_that_is_closed_does(place, warnings):
    """It comes back under its name."""
    consumer = consumer_of(place, group_instance_id="one")
    assert consumer.poll(timeout=5)
    consumer = consumer_of(place, group_instance_id="one")
    assert consumer.poll(timeout=5)
    assert warnings() == []
    consumer.close()


def test_jobs_of_a_worker_that_is_dropped_go_to_the_next(place, warnings):
    """Also in another process, where its lock would hold them for half a minute."""
    queue = place.queue("t", group="g", delivery_count_limit=3)
    assert queue.poll(timeout=5)
    del queue
    queue = place.queue("t", group="g", delivery_count_limit=4)
    found = []
    while len(found) < 10 and (jobs := queue.poll(timeout=5)):
        found += [job.value for job in jobs]
    assert sorted(found) == [b"%d" % number for number in range(10)]
    queue.close()
    assert [text.split(";")[0] for text in warnings()] == ["queue 'g': a worker was dropped without close()"]


@pytest.mark.parametrize("place", ["store"], indirect=True)
def test_a_worker_that_is_refused_is_none_that_was_dropped(place, warnings):
    with place.queue("t", group="g") as queue:
        with pytest.raises(UsageError):
            place.queue("t", group="g", delivery_count_limit=3)
        assert queue.poll(timeout=5)
    place.queues()
    assert warnings() == []
