"""``python -m benchmarks.clients``: producers and consumers beside others that do the same in one process.

Records of 100 bytes without keys, one partition, one thread that sends one at a time, then one that receives.
Each contender's records are counted when they have arrived. confluent-kafka talks to its own mock broker, in
threads of the same process, which keeps some megabytes of records in memory: it sends and receives a part at
a time. sqlite3 inserts rows and commits every 1,000, in WAL mode without a sync. None of them waits for the
disk; nor do we with ``acks=1``. Medians of some rounds in turns. Then the delay between ``send()`` in one
thread and the record in another, beside consumers that wait. Prints tables.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import logstore
from benchmarks.measure import scratch_directory
from benchmarks.process import describe_machine
from benchmarks.text import format_table

_VALUE = b"x" * 100
_ROUNDS = 5
_RECORDS = 500_000
_QUICK_RECORDS = 20_000
_PART = 20_000
_MOCK_PARTITIONS = 4
_DELAYS = 2_000

Rates = tuple[float, float]
"""Records per second: sent, received."""


def run_logstore(directory: str, count: int, acks: str | int, batch: bool) -> Rates:
    """``batch``: receive by ``poll()``, and not record by record."""
    with logstore.open(f"{directory}/logstore-{time.monotonic_ns()}") as store:
        store.create_topic("t")
        started = time.perf_counter()
        with store.producer(acks=acks) as producer:
            send = producer.send
            for _ in range(count):
                send("t", _VALUE)
        sent = time.perf_counter() - started
        with store.consumer("t") as consumer:
            started, found = time.perf_counter(), 0
            if batch:
                while found < count:
                    found += len(consumer.poll())
            else:
                found = sum(1 for _ in consumer.drain())
            received = time.perf_counter() - started
        assert found == count
    return count / sent, count / received


def run_confluent(directory: str, count: int) -> Rates:
    """confluent-kafka with ``consume()``; ``acks=1``, and a queue that takes everything."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    mock = {"test.mock.num.brokers": 1}
    producer = Producer({**mock, "acks": 1, "linger.ms": 5, "queue.buffering.max.messages": count + 1})
    address = _mock_address(producer)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", number, 0) for number in range(_MOCK_PARTITIONS)])
    sent = received = 0.0
    for _ in range(0, count, _PART):
        started = time.perf_counter()
        for number in range(_PART):
            producer.produce("t", _VALUE)
            if number % 1_000 == 0:
                producer.poll(0)
        producer.flush()
        between = time.perf_counter()
        found = 0
        while found < _PART:
            found += sum(1 for each in consumer.consume(1_000, 0.1) if each.error() is None)
        sent, received = sent + between - started, received + time.perf_counter() - between
    consumer.close()
    return count / sent, count / received


def _mock_address(producer: Any) -> str:
    """Where the producer's own mock broker listens."""
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    return f"{broker.host}:{broker.port}"


def run_sqlite(directory: str, count: int) -> Rates:
    """One table, read by row id."""
    base = sqlite3.connect(f"{directory}/sqlite-{time.monotonic_ns()}.db", isolation_level=None)
    base.execute("pragma journal_mode=wal")
    base.execute("pragma synchronous=off")
    base.execute("create table t (id integer primary key, value blob)")
    started = time.perf_counter()
    for number in range(count):
        if number % 1_000 == 0:
            base.execute("begin")
        base.execute("insert into t (value) values (?)", (_VALUE,))
        if number % 1_000 == 999:
            base.execute("commit")
    if base.in_transaction:
        base.execute("commit")
    sent = time.perf_counter() - started
    started = time.perf_counter()
    found = sum(1 for _ in base.execute("select id, value from t where id > 0 order by id"))
    received = time.perf_counter() - started
    base.close()
    assert found == count
    return count / sent, count / received


CONTENDERS: dict[str, Callable[[str, int], Rates]] = {
    "logstore, acks=1, poll()": lambda directory, count: run_logstore(directory, count, 1, True),
    "logstore, acks=1, record by record": lambda directory, count: run_logstore(directory, count, 1, False),
    "logstore, acks=all, poll()": lambda directory, count: run_logstore(directory, count, "all", True),
    "confluent-kafka, its mock broker": run_confluent,
    "sqlite3, WAL, no sync": run_sqlite,
}


def compare(directory: str, count: int, rounds: int) -> list[list[str]]:
    """The rows of the table, slower contenders as ratios to the first."""
    rates: dict[str, list[Rates]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name, run in CONTENDERS.items():
            rates[name].append(run(directory, count))
    rows = []
    first: Rates | None = None
    for name, found in rates.items():
        sent, received = (statistics.median(side) for side in zip(*found, strict=True))
        first = first or (sent, received)
        rows.append(
            [
                name,
                f"{sent / 1e6:.2f} M/s",
                f"{first[0] / sent:.2f} x",
                f"{received / 1e6:.2f} M/s",
                f"{first[1] / received:.2f} x",
            ]
        )
    return rows


def delays(directory: str, count: int, idle: int) -> list[str]:
    """A row: how long a record takes from one thread to another, with so many consumers waiting beside."""
    with logstore.open(f"{directory}/delays-{idle}") as store:
        for name in ("t", "quiet"):
            store.create_topic(name)
        waiting = [_wait_in_background(store) for _ in range(idle)]
        taken: list[float] = []

        def receive() -> None:
            with store.consumer("t") as consumer:
                for record in consumer:
                    taken.append(time.perf_counter() - float(record.value or b"0"))
                    if len(taken) == count:
                        return

        thread = threading.Thread(target=receive)
        thread.start()
        with store.producer(acks=1, linger_ms=0) as producer:
            for _ in range(count):
                producer.send("t", b"%.9f" % time.perf_counter())
                time.sleep(0.001)
        thread.join()
        for pending in waiting:
            pending.cancel()
    taken.sort()
    return [
        f"{idle}",
        f"{taken[count // 2] * 1e6:.0f} µs",
        f"{taken[count * 99 // 100] * 1e6:.0f} µs",
    ]


def _wait_in_background(store: logstore.Store) -> Any:
    """A long poll that nothing answers."""
    from logstore.broker.local import LocalBroker
    from logstore.broker.requests import FetchPartition, FetchRequest
    from logstore.model import TopicPartition

    broker: LocalBroker = store._open_broker(store._writable())
    return broker.fetch(FetchRequest((FetchPartition(TopicPartition("quiet", 0), 0),), max_wait_ms=600_000))


def main(command: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few records; says little")
    parser.add_argument("--directory", help="where to measure; on the disk that you want to know about")
    arguments = parser.parse_args(command)
    quick = arguments.quick
    with scratch_directory(arguments.directory) as directory:
        machine = describe_machine(directory)
        rows = compare(directory, _QUICK_RECORDS if quick else _RECORDS, 1 if quick else _ROUNDS)
        waits = [delays(directory, 50 if quick else _DELAYS, idle) for idle in (0, 1_000)]
    print(format_table(["", "sent", "slower by", "received", "slower by"], rows, text_columns=1))
    print(format_table(["consumers that wait", "median delay", "99 %"], waits, text_columns=0))
    facts = ", ".join(machine[name] for name in ("cpu", "python", "crc32c") if name in machine)
    print(f"Measured by `python -m benchmarks.clients` on {facts}; records of 100 bytes.")


if __name__ == "__main__":
    main()
