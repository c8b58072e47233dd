"""``python -m benchmarks.connected``: our clients over the protocol beside librdkafka's, with a stock broker.

Starts a broker (Java is needed), and measures in turns: records that are produced and delivered, and those
that are consumed, per second; and how long one record takes from ``send`` to its acknowledgement. Both have
the same batch size and linger. Prints the medians of some rounds, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.process import describe_machine
from benchmarks.text import format_table
from logstore.connected import connect

_ROUNDS, _QUICK_ROUNDS = 5, 1
_RECORDS, _QUICK_RECORDS = 500_000, 5_000
_TRIPS, _QUICK_TRIPS = 1_000, 50
_VALUE = bytes(100)
_BATCH_BYTES = 262_144
_LINGER_MS = 5
_AT_A_TIME = 5_000
_SECONDS = 60


class Sizes(NamedTuple):
    """How much is measured."""

    rounds: int
    records: int
    trips: int


class Contest(NamedTuple):
    """One measurement, by us and by them. Each takes the broker's address, a new topic, and a size."""

    name: str
    unit: str
    ours: Callable[[str, str, int], float]
    theirs: Callable[[str, str, int], float]


def _our_produce(acks: str) -> Callable[[str, str, int], float]:
    def produce(address: str, topic: str, count: int) -> float:
        with connect(address) as store:
            settings: dict[str, Any] = {"linger_ms": _LINGER_MS, "batch_size": _BATCH_BYTES}
            with store.producer(acks=acks, **settings) as producer:
                started = time.perf_counter()
                for _ in range(count):
                    producer.send(topic, _VALUE)
                producer.flush()
                return count / (time.perf_counter() - started)

    return produce


def _their_produce(acks: str) -> Callable[[str, str, int], float]:
    def produce(address: str, topic: str, count: int) -> float:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": acks,
                "enable.idempotence": acks == "all",
                "linger.ms": _LINGER_MS,
                "batch.size": _BATCH_BYTES,
                "queue.buffering.max.messages": 10_000_000,
                "queue.buffering.max.kbytes": 2_000_000,
            }
        )
        producer.list_topics(topic)
        started = time.perf_counter()
        for number in range(count):
            producer.produce(topic, _VALUE)
            if not number % 1_000:
                producer.poll(0)
        producer.flush()
        return count / (time.perf_counter() - started)

    return produce


def _our_consume(address: str, topic: str, count: int) -> float:
    _our_produce("1")(address, topic, count)
    with connect(address) as store, store.consumer(topic, max_poll_records=_AT_A_TIME) as consumer:
        started, found = time.perf_counter(), 0
        while found < count:
            found += len(consumer.poll(_SECONDS))
        return count / (time.perf_counter() - started)


def _their_consume(address: str, topic: str, count: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    _our_produce("1")(address, topic, count)
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    started, found = time.perf_counter(), 0
    while found < count:
        found += len(consumer.consume(_AT_A_TIME, _SECONDS))
    rate = count / (time.perf_counter() - started)
    consumer.close()
    return rate


def _our_trips(address: str, topic: str, count: int) -> float:
    with (
        connect(address) as store,
        store.producer(acks=1, linger_ms=0, enable_idempotence=False) as producer,
    ):
        return _median_us(lambda: producer.send(topic, _VALUE).result(_SECONDS), count)


def _their_trips(address: str, topic: str, count: int) -> float:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "acks": 1, "linger.ms": 0})

    def trip() -> None:
        producer.produce(topic, _VALUE)
        producer.flush()

    return _median_us(trip, count)


def _median_us(trip: Callable[[], object], count: int) -> float:
    trip()
    times = []
    for _ in range(count):
        started = time.perf_counter()
        trip()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


CONTESTS = (
    Contest("produce, acks 1", "records/s", _our_produce("1"), _their_produce("1")),
    Contest("produce, acks all", "records/s", _our_produce("all"), _their_produce("all")),
    Contest("consume", "records/s", _our_consume, _their_consume),
    Contest("one record, acks 1", "µs", _our_trips, _their_trips),
)


def measure(address: str, contest: Contest, sizes: Sizes) -> tuple[list[float], list[float]]:
    """What we and they reach, in turns."""
    ours: list[float] = []
    theirs: list[float] = []
    count = sizes.trips if contest.unit == "µs" else sizes.records
    for _ in range(sizes.rounds):
        for run, found in ((contest.ours, ours), (contest.theirs, theirs)):
            topic = f"t-{uuid.uuid4()}"
            with connect(address) as store:
                store.create_topic(topic)
            found.append(run(address, topic, count))
            with connect(address) as store:
                store.delete_topic(topic)
    return ours, theirs


def shown(found: list[float]) -> str:
    """The median, the lowest and the highest."""
    return f"{statistics.median(found):,.0f} ({min(found):,.0f} to {max(found):,.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="see whether it runs; the figures mean nothing")
    parser.add_argument("--address", help="of a broker that runs already; by default one is started")
    arguments = parser.parse_args()
    sizes = Sizes(_ROUNDS, _RECORDS, _TRIPS)
    if arguments.quick:
        sizes = Sizes(_QUICK_ROUNDS, _QUICK_RECORDS, _QUICK_TRIPS)
    if arguments.address:
        report(arguments.address, sizes)
        return
    from tests.interop.kafka import KafkaBroker

    with tempfile.TemporaryDirectory() as home, KafkaBroker(Path(home)) as broker:
        report(broker.bootstrap, sizes)


def report(address: str, sizes: Sizes) -> None:
    """Measure everything, and print it."""
    machine = describe_machine(tempfile.gettempdir())
    print("\n".join(f"{name}: {fact}" for name, fact in machine.items()) + "\n")
    rows = []
    for contest in CONTESTS:
        ours, theirs = measure(address, contest, sizes)
        rows.append((contest.name, contest.unit, shown(ours), shown(theirs)))
    print(format_table(("What", "Unit", "logstore.connect()", "confluent-kafka"), rows))


if __name__ == "__main__":
    main()
