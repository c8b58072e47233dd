"""Clients that stay while a store loses what it had not flushed, and goes on with other records."""

from __future__ import annotations

import contextlib
import time

import pytest

import logstore
from logstore.errors import OffsetOutOfRangeError
from tests.rotation import rotating
from tests.wire.lost_end import lose, serving

confluent_kafka = pytest.importorskip("confluent_kafka")


class Ours:
    def __init__(self, address, reset):
        self.connected = logstore.connect(address)
        self.consumer = self.connected.consumer(partitions=[("t", 0)], auto_offset_reset=reset)
        self.consumer.seek(("t", 0), 0)

    def poll(self):
        try:
            return [(record.offset, record.value) for record in self.consumer.poll(timeout=0.2)]
        except OffsetOutOfRangeError:
            return ["is told"]

    def close(self):
        self.consumer.close()
        self.connected.close()


class Confluent:
    def __init__(self, address, reset):
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "g",
                "auto.offset.reset": "error" if reset == "none" else reset,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self.consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])

    def poll(self):
        message = self.consumer.poll(0.2)
        if message is None:
            return []
        if message.error() is None:
            return [(message.offset(), message.value())]
        is_reset = message.error().code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET
        return ["is told"] if is_reset else []

    def close(self):
        self.consumer.close()


def polled(client, count):
    found, deadline = [], time.monotonic() + 30
    while len(found) < count and "is told" not in found and time.monotonic() < deadline:
        found += client.poll()
    return found


@pytest.mark.parametrize("kind", rotating([Ours, Confluent], 2), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("reset", ["latest", "none"])
def test_a_client_that_has_read_what_is_lost_is_told(tmp_path, kind, reset):
    """1.5 s each, of one client with each commit. The log is longer than before when it answers again."""
    old, new = [b"old %d" % number for number in range(6)], [b"new %d" % number for number in range(9)]
    path = tmp_path / "store"
    with contextlib.ExitStack() as stack:
        with serving(path, "127.0.0.1:0", old) as address:
            client = kind(address, reset)
            stack.callback(client.close)
            assert polled(client, 6) == list(enumerate(old))
        lose(path, 4 / 6)
        with serving(path, address, new):
            expected = ["is told"] if reset == "none" else list(enumerate(new, 4))
            assert polled(client, 9) == expected
