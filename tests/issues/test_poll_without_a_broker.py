"""A consumer of a connected store asks each second for its topics' partitions. When the broker was gone, that
question held up the poll: ``poll(timeout=2)`` and ``poll(timeout=0)`` took ``request_timeout_ms``, which is
30 seconds by default. And a poll that waited for records asked only once: partitions that a topic got
meanwhile were found by the next poll, up to a minute later. Cost: 1 s.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import pytest

import logstore


def test_a_poll_ends_in_its_time_although_the_broker_is_gone(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t", partitions=2)
        with (
            store.listen("127.0.0.1:0") as listener,
            logstore.connect(listener.address, request_timeout_ms=20_000) as shop,
        ):
            consumer = shop.consumer("t", metadata_max_age_ms=0)
            store["t"][0].append(b"before")
            assert [each.value for each in consumer.poll(timeout=10)] == [b"before"]
            listener.close()
            for timeout in (0, 0.2):
                began = time.monotonic()
                assert consumer.poll(timeout=timeout) == []
                assert time.monotonic() - began < 10


@pytest.mark.parametrize("is_connected", [False, True])
def test_new_partitions_are_found_by_a_poll_that_waits(tmp_path, is_connected):
    with ExitStack() as stack:
        store = stack.enter_context(logstore.open(tmp_path / "store"))
        listener = stack.enter_context(store.listen("127.0.0.1:0"))
        store.create_topic("t")
        shop = stack.enter_context(logstore.connect(listener.address)) if is_connected else store
        consumer = shop.consumer("t", metadata_max_age_ms=100)
        assert consumer.poll(timeout=0.1) == []

        def grow() -> None:
            store["t"].add_partitions(3)
            store["t"][2].append(b"new")

        timer = threading.Timer(0.2, grow)
        timer.start()
        stack.callback(timer.join)
        assert [each.value for each in consumer.poll(timeout=10)] == [b"new"]
