"""Sending to and receiving from one, some and many partitions."""

from __future__ import annotations

from itertools import cycle, islice

import logstore
from benchmarks.clients.measuring import VALUE, Found, Sizes
from benchmarks.clients.rates import check_count, timed


def measure_partitions(directory: str, sizes: Sizes, *, number: int) -> Found:
    """Records to each partition in turn, and one consumer of all of them. ``number``: which of the sizes."""
    partition_count, count = sizes.partitions[number], sizes.records
    found: Found = {"records": count, "partitions": partition_count}
    with logstore.open(directory) as store:
        store.create_topic("t", partitions=partition_count)
        with timed(found, "sent_seconds"), store.producer(acks=1, linger_ms=1_000) as producer:
            send = producer.send
            for partition in islice(cycle(range(partition_count)), count):
                send("t", VALUE, partition=partition)
        with timed(found, "lingered_seconds"), store.producer(acks=1) as producer:
            send = producer.send
            for partition in islice(cycle(range(partition_count)), count // 10):
                send("t", VALUE, partition=partition)
        received = 0
        with store.consumer("t") as consumer, timed(found, "received_seconds"):
            while received < count + count // 10:
                received += len(consumer.poll())
    check_count(received, count + count // 10)
    return found
