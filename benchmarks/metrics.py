"""``python -m benchmarks.metrics``: what counting costs, in the calls that a program makes most.

Each call is measured with counting and without, in turns, in one process. Without, the methods that count are
replaced by empty ones, and requests go to the broker's methods behind the decorator that counts them. What
stays are some additions of a number to an attribute, 0.03 µs each, and calls of an empty function in place of
the clock. So the ratios are a little lower than they would be beside code that never counted.

Prints the ratio of the times with and without: the median of the pairs, and the middle half of them. Then the
cost of a snapshot of many partitions.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import logstore
from benchmarks.measure import scratch_directory
from benchmarks.process import describe_machine
from benchmarks.text import format_table
from logstore.broker.local import LocalBroker
from logstore.broker.requests import FetchPartition, FetchRequest, ProducePartition, ProduceRequest
from logstore.clients.counts import ProducerCounts
from logstore.counting import LogCounts
from logstore.format.batch import encode_batch
from logstore.model import TopicPartition
from logstore.partition.writing import durability, growth
from logstore.testing import ManualClock, MemoryFiles

_VALUE = b"x" * 100
_PARTITION = TopicPartition("t", 0)
_PAIRS, _QUICK_PAIRS = 60, 6
_PARTITIONS, _QUICK_PARTITIONS = 5_000, 100

Work = Callable[[logstore.Store, int], None]
"""Makes a call so many times."""


def _nothing(*_: Any) -> None:
    pass


def _no_time() -> float:
    return 0.0


@contextmanager
def without_counting() -> Iterator[None]:
    """Nothing is counted inside."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(LogCounts, "note_write", _nothing))
        stack.enter_context(patch.object(LogCounts, "note_flush", _nothing))
        stack.enter_context(patch.object(ProducerCounts, "note_delivered", _nothing))
        for module in (growth, durability):
            stack.enter_context(patch.object(module, "perf_counter", _no_time))
        for name, method in list(vars(LocalBroker).items()):
            behind = getattr(method, "__wrapped__", None)
            if behind is not None:
                stack.enter_context(patch.object(LocalBroker, name, behind))
        yield


def append(store: logstore.Store, count: int) -> None:
    """``log.append()``: records gather."""
    log = store["t"][0]
    for _ in range(count):
        log.append(_VALUE)


def extend_one(store: logstore.Store, count: int) -> None:
    """``log.extend()`` with one record: each is a batch and a write, the most that can be counted."""
    log = store["t"][0]
    for _ in range(count // 20):
        log.extend([_VALUE])


def extend_100(store: logstore.Store, count: int) -> None:
    """``log.extend()`` with 100 records."""
    log, values = store["t"][0], [_VALUE] * 100
    for _ in range(count // 100):
        log.extend(values)


def send(store: logstore.Store, count: int) -> None:
    """``producer.send()`` with ``acks=1``, and the delivery."""
    with store.producer(acks=1) as producer:
        for _ in range(count):
            producer.send("t", _VALUE)


def poll(store: logstore.Store, count: int) -> None:
    """``consumer.poll()`` of what is there."""
    with store.consumer("t") as consumer:
        found = 0
        while found < count:
            found += len(consumer.poll())


def produce(store: logstore.Store, count: int) -> None:
    """A produce request with a batch of ten records, without a client."""
    broker = store._open_broker(store._writable())
    data = bytes(encode_batch([None] * 10, [_VALUE] * 10, [0] * 10))
    request = ProduceRequest(1, 1_000, (ProducePartition(_PARTITION, data),))
    for _ in range(count // 50):
        broker.produce(request)


def fetch(store: logstore.Store, count: int) -> None:
    """A fetch request that finds a batch, without a client."""
    broker = store._open_broker(store._writable())
    request = FetchRequest((FetchPartition(_PARTITION, 0, 1_000),), max_wait_ms=0)
    for _ in range(count // 50):
        broker.fetch(request)


WORK: tuple[Work, ...] = (append, extend_one, extend_100, send, poll, produce, fetch)


def ratios(work: Work, directory: str, count: int, pairs: int) -> list[float]:
    """Times with counting over times without, in turns; which comes first alternates."""
    found = []
    for number in range(pairs):
        times = {}
        for counts in (True, False) if number % 2 else (False, True):
            path = f"{directory}/{work.__name__}-{number}-{counts}"
            with ExitStack() as stack:
                if not counts:
                    stack.enter_context(without_counting())
                store = stack.enter_context(logstore.open(path))
                log = store.create_topic("t")[0]
                log.extend([_VALUE] * count)
                log.flush()
                started = time.perf_counter()
                work(store, count)
                times[counts] = time.perf_counter() - started
        found.append(times[True] / times[False])
    return found


def snapshot_seconds(partition_count: int) -> float:
    """The time of ``store.metrics()`` with so many partitions, each with a committed offset."""
    with logstore.open("/store", files=MemoryFiles(), clock=ManualClock()) as store:
        topic = store.create_topic("t", partitions=partition_count)
        for log in topic:
            log.extend([_VALUE])
        store.offsets("g").commit({("t", number): 0 for number in range(partition_count)})
        times = []
        for _ in range(5):
            started = time.perf_counter()
            store.metrics()
            times.append(time.perf_counter() - started)
        return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="little work, to see that it runs")
    quick = parser.parse_args().quick
    count = 2_000 if quick else 20_000
    rows = []
    with scratch_directory(None) as directory:
        for work in WORK:
            found = ratios(work, directory, count, _QUICK_PAIRS if quick else _PAIRS)
            low, middle, high = statistics.quantiles(found, n=4)
            rows.append([(work.__doc__ or "").rstrip("."), f"{middle:.3f}", f"{low:.3f} to {high:.3f}"])
        machine = describe_machine(directory)
    print("\n".join(f"{name}: {fact}" for name, fact in machine.items()) + "\n")
    print(format_table(["Call", "With / without", "Middle half"], rows))
    partition_count = _QUICK_PARTITIONS if quick else _PARTITIONS
    seconds = snapshot_seconds(partition_count)
    print(f"\nA snapshot of {partition_count:,} partitions: {seconds * 1000:.0f} ms")


if __name__ == "__main__":
    main()
