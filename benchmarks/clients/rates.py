"""Sending and receiving: records per second in one thread, as each contender does it."""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, process_time
from typing import Any

import logstore
from benchmarks.clients.measuring import GROUP_RECORDS, VALUE, Found, Sizes
from benchmarks.records import WrongDataError

MOCK_PARTITIONS = 4
"""How many the mock broker gives a topic."""
_PATIENCE_SECONDS = 30.0
_POLLED_RECORDS = 500
"""How many a consumer takes at a time: the default of ours."""


@contextmanager
def timed(found: Found, name: str) -> Iterator[None]:
    """Note the seconds that the block takes; and under ``name`` with ``cpu`` in front those of the processor,
    in all threads of the process."""
    gc.collect()
    started, used = perf_counter(), process_time()
    yield
    found[name], found[f"cpu_{name}"] = perf_counter() - started, process_time() - used


def check_count(found: int, wanted: int) -> None:
    """
    Raises:
        WrongDataError: something else was received than was sent.
    """
    if found != wanted:
        raise WrongDataError(f"{found} records of {wanted} arrived")


def measure_logstore(directory: str, sizes: Sizes, *, flushes: bool = False) -> Found:
    """``acks=1``, and ``acks="all"`` where it flushes; then poll by poll, and record by record."""
    count = sizes.flushed_records if flushes else sizes.records
    found: Found = {"records": count}
    with logstore.open(directory) as store:
        store.create_topic("t")
        acks = "all" if flushes else 1
        with store.producer(acks=acks) as producer:
            producer.send("t", VALUE)
        with timed(found, "sent_seconds"), store.producer(acks=acks) as producer:
            send = producer.send
            for _ in range(1, count):
                send("t", VALUE)
        with store.consumer("t") as consumer:
            received = 0
            with timed(found, "received_seconds"):
                while received < count:
                    received += len(consumer.poll())
            consumer.seek_to_beginning()
            with timed(found, "iterated_seconds"):
                iterated = sum(1 for _ in consumer.drain())
    check_count(received, count)
    check_count(iterated, count)
    return found


# librdkafka -------------------------------------------------------------------------------------------------


def mock_producer(**settings: Any) -> tuple[Any, str]:
    """A producer with a mock broker in its process, and where that listens."""
    from confluent_kafka import Producer

    mock = {"test.mock.num.brokers": 1, "log_level": 0, "linger.ms": 5, "batch.num.messages": GROUP_RECORDS}
    producer = Producer({**mock, **settings})
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    return producer, f"{broker.host}:{broker.port}"


def mock_consumer(address: str, **settings: Any) -> Any:
    """A consumer of topic ``t`` from its beginning."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "log_level": 0, **settings})
    consumer.assign([TopicPartition("t", number, 0) for number in range(MOCK_PARTITIONS)])
    return consumer


def measure_confluent(directory: str, sizes: Sizes) -> Found:
    """``acks=1``. The clock of receiving starts when the first records have come: connections are made."""
    found: Found = {"records": sizes.records}
    producer, _ = mock_producer(acks=1, **{"queue.buffering.max.messages": sizes.records + 1})
    with timed(found, "sent_seconds"):
        for number in range(sizes.records):
            producer.produce("t", VALUE)
            if number % 1_000 == 0:
                producer.poll(0)
        producer.flush()
    producer, address = mock_producer(acks=1)
    for _ in range(sizes.mock_records):
        producer.produce("t", VALUE)
    producer.flush()
    consumer = mock_consumer(address)
    first = len(_take(consumer))
    received = first
    with timed(found, "received_seconds"):
        while received < sizes.mock_records:
            received += len(_take(consumer))
    consumer.close()
    check_count(received, sizes.mock_records)
    found["received"] = received - first
    return found


def _take(consumer: Any) -> list[Any]:
    """The next records, at least one.

    Raises:
        WrongDataError: none came for a long time: the mock broker has dropped them.
    """
    deadline = perf_counter() + _PATIENCE_SECONDS
    while perf_counter() < deadline:
        messages = consumer.consume(_POLLED_RECORDS, 0.005)
        records = [message for message in messages if message.error() is None]
        if records:
            return records
    raise WrongDataError("the mock broker gives no more records")


# sqlite3 ----------------------------------------------------------------------------------------------------


def open_sqlite(directory: str, *, flushes: bool) -> sqlite3.Connection:
    """A database in WAL mode, which commits when it is told."""
    base = sqlite3.connect(f"{directory}/base.db", isolation_level=None)
    base.execute("pragma journal_mode=wal")
    base.execute(f"pragma synchronous={'full' if flushes else 'off'}")
    base.execute("create table t (id integer primary key, value blob)")
    return base


def measure_sqlite(directory: str, sizes: Sizes, *, flushes: bool = False) -> Found:
    """A row for each record, 2,000 in a transaction; read by their ids."""
    count = sizes.flushed_records if flushes else sizes.records
    found: Found = {"records": count}
    base = open_sqlite(directory, flushes=flushes)
    with timed(found, "sent_seconds"):
        execute = base.execute
        for first in range(0, count, GROUP_RECORDS):
            execute("begin")
            for _ in range(first, min(first + GROUP_RECORDS, count)):
                execute("insert into t (value) values (?)", (VALUE,))
            execute("commit")
    received = 0
    with timed(found, "received_seconds"):
        rows = base.execute("select id, value from t where id > 0 order by id")
        while taken := rows.fetchmany(_POLLED_RECORDS):
            received += len(taken)
    base.close()
    check_count(received, count)
    return found


# persist-queue ----------------------------------------------------------------------------------------------


class _Bytes:
    """Keeps bytes as they are, where persist-queue would pickle them."""

    @staticmethod
    def dumps(value: bytes) -> bytes:
        return value

    @staticmethod
    def loads(value: bytes) -> bytes:
        return value


def measure_queue(directory: str, sizes: Sizes, *, flushes: bool = False) -> Found:
    """The queue in SQLite, which commits each record that is put: there is no way to put several. What is
    taken counts as taken by ``task_done()``, once for all."""
    from persistqueue import SQLiteQueue

    count = sizes.slow_flushes if flushes else sizes.slow_records
    queue: Any = SQLiteQueue(directory, auto_commit=False, serializer=_Bytes)
    queue._putter.execute(f"pragma synchronous={'full' if flushes else 'off'}")
    found: Found = {"records": count}
    with timed(found, "sent_seconds"):
        for _ in range(count):
            queue.put(VALUE)
    received = 0
    with timed(found, "received_seconds"):
        for _ in range(count):
            received += queue.get() == VALUE
        queue.task_done()
    queue.close()
    check_count(received, count)
    return found


# Columns ----------------------------------------------------------------------------------------------------


def measure_columns(take: Callable[[logstore.Store, int], int], directory: str, sizes: Sizes) -> Found:
    """Columns of a log that a producer wrote, several times over; the median counts."""
    with logstore.open(directory) as store:
        store.create_topic("t")
        with store.producer(acks=1) as producer:
            for _ in range(sizes.records):
                producer.send("t", VALUE)
        check_count(take(store, sizes.records), sizes.records)
        found: Found = {"records": sizes.records}
        with timed(found, "seconds"):
            check_count(take(store, sizes.records), sizes.records)
    return found


def read_columns(store: logstore.Store, count: int) -> int:
    """``read_arrow`` of the log."""
    return int(store["t"][0].read_arrow().num_rows)


def poll_columns(store: logstore.Store, count: int) -> int:
    """``poll_arrow`` of a consumer."""
    received = 0
    consumer: Any
    with store.consumer("t") as consumer:
        while received < count:
            received += consumer.poll_arrow().num_rows
    return received
