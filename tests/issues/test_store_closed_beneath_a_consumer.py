"""A store was closed while consumers of a group waited in ``poll()``. One that had no partition was never
told: its thread went on waiting, and the program did not end. The others got ``RetriableError``, which says
to call again. Both get ``ClosedError`` at once, and so does one that another thread closes."""

from __future__ import annotations

import threading
import time

import pytest

import logstore
from logstore.errors import ClosedError, LogstoreError


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path) as store:
        store.create_topic("orders")
        yield store


class Waiting(threading.Thread):
    """Polls until something is raised."""

    def __init__(self, consumer):
        super().__init__(daemon=True)
        self.consumer = consumer
        self.error = None
        self.start()

    def run(self):
        try:
            while True:
                self.consumer.poll()
        except LogstoreError as error:
            self.error = error


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_all_that_wait_are_told(store):
    members = [store.consumer("orders", group="billing", heartbeat_interval_ms=5) for _ in range(2)]
    others = [store.consumer("orders"), store.consumer(partitions=[("orders", 0)], group="audit")]
    waiting = [Waiting(each) for each in (*members, *others)]
    wait_for(lambda: all(each.counts.poll_count for each in others))
    wait_for(lambda: sum(len(each.assignment) for each in members) == 1)
    store.close()
    for each in waiting:
        each.join(10)
        assert not each.is_alive()
        assert isinstance(each.error, ClosedError)
        assert "the consumer's store is closed" in str(each.error)
        with pytest.raises(ClosedError):
            each.consumer.commit()
        each.consumer.close()


def test_a_poll_ends_when_another_thread_closes_the_consumer(store):
    consumer = store.consumer("orders", group="billing")
    waiting = Waiting(consumer)
    wait_for(lambda: consumer.assignment)
    consumer.close()
    assert isinstance(waiting.error, ClosedError) or not waiting.join(10)
    assert isinstance(waiting.error, ClosedError)
    successor = store.consumer("orders", group="billing", heartbeat_interval_ms=5)
    Waiting(successor)
    wait_for(lambda: successor.assignment)
    successor.close()
