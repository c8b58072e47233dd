"""Transactions: of one record, of a thousand beside the same without a transaction, and many open ones."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from contextlib import closing
from time import perf_counter

import logstore
from benchmarks.clients.measuring import VALUE, Found, Sizes
from benchmarks.clients.offsets import median_seconds
from benchmarks.clients.rates import check_count, mock_producer, open_sqlite
from benchmarks.process import resident_memory_bytes
from logstore import Isolation, StoreConfig, TopicConfig
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import wait_for
from logstore.broker.requests import ACKS_ALL, InitProducerIdRequest, ProducePartition, ProduceRequest
from logstore.broker.transactions.requests import AddPartitionsToTransaction, TransactionalProducer
from logstore.format.batch import encode_batch

_MANY = 1_000
_WARM_UP = 5
_REST_SECONDS = 2.0


def _open(directory: str, *, flushes: bool) -> logstore.Store:
    """A store that waits for the disk, or not: in its topics, and in what it keeps of transactions."""
    store = logstore.open(directory, config=StoreConfig(topic=TopicConfig(acks_all_durable=flushes)))
    store.create_topic("t")
    return store


def _of(send: Callable[[], object], count: int) -> Callable[[int], None]:
    def action(_: int) -> None:
        for _ in range(count):
            send()

    return action


def measure_transactions(directory: str, sizes: Sizes, *, flushes: bool = False) -> Found:
    """Transactions of one record; then of a thousand, in turns with a thousand that are only flushed."""
    count = sizes.flushed_transactions if flushes else sizes.transactions
    one: list[float] = []
    many: list[float] = []
    plain: list[float] = []
    with (
        _open(directory, flushes=flushes) as store,
        store.producer(transactional_id="a") as producer,
        store.producer(acks="all") as plain_producer,
    ):

        def transact(records: int, taken: list[float]) -> None:
            started = perf_counter()
            with producer.transaction():
                for _ in range(records):
                    producer.send("t", VALUE)
            taken.append(perf_counter() - started)

        def send_plainly() -> None:
            started = perf_counter()
            for _ in range(_MANY):
                plain_producer.send("t", VALUE)
            plain_producer.flush()
            plain.append(perf_counter() - started)

        for _ in range(count + _WARM_UP):
            transact(1, one)
        for _ in range(count + _WARM_UP):
            transact(_MANY, many)
            send_plainly()
        records = store["t"][0].read(isolation=Isolation.COMMITTED)
        check_count(sum(1 for _ in records), (count + _WARM_UP) * (1 + 2 * _MANY))
    return {
        "one_seconds": _median(one),
        "many_seconds": _median(many),
        "plain_seconds": _median(plain),
    }


def _median(taken: list[float]) -> float:
    rest = sorted(taken[_WARM_UP:])
    return rest[len(rest) // 2]


def measure_mock_transactions(directory: str, sizes: Sizes) -> Found:
    """The same with librdkafka and its mock broker."""
    producer, _ = mock_producer(**{"transactional.id": "a", "linger.ms": 0})
    plain_producer, _ = mock_producer(**{"linger.ms": 0})
    producer.init_transactions()

    def transact(records: int) -> Callable[[int], None]:
        def action(_: int) -> None:
            producer.begin_transaction()
            for _ in range(records):
                producer.produce("t", VALUE)
            producer.commit_transaction()

        return action

    def send_plainly(_: int) -> None:
        for _ in range(_MANY):
            plain_producer.produce("t", VALUE)
        plain_producer.flush()

    count = sizes.flushed_transactions
    transact(1)(0)
    send_plainly(0)
    return {
        "one_seconds": median_seconds(count, transact(1)),
        "many_seconds": median_seconds(count, transact(_MANY)),
        "plain_seconds": median_seconds(count, send_plainly),
    }


def measure_sqlite_transactions(directory: str, sizes: Sizes, *, flushes: bool = False) -> Found:
    """Rows that are committed together. There is nothing to compare a thousand with."""
    count = sizes.flushed_transactions if flushes else sizes.transactions
    with closing(open_sqlite(directory, flushes=flushes)) as base:

        def transact(records: int) -> Callable[[int], None]:
            def action(_: int) -> None:
                base.execute("begin")
                for _ in range(records):
                    base.execute("insert into t (value) values (?)", (VALUE,))
                base.execute("commit")

            return action

        return {
            "one_seconds": median_seconds(count, transact(1)),
            "many_seconds": median_seconds(count, transact(_MANY)),
        }


def measure_open_transactions(directory: str, sizes: Sizes, *, flushes: bool = False) -> Found:
    """Open so many, with a record in each, by the requests that a client sends to the broker."""
    with _open(directory, flushes=flushes) as store:
        broker = store._open_broker(store._writable())
        partition = store["t"][0].partition

        def begin(name: str) -> None:
            asked = wait_for(broker.init_producer_id(InitProducerIdRequest(name, 600_000)))
            assert asked is not None
            producer = TransactionalProducer(name, asked.producer_id, asked.producer_epoch)
            added = wait_for(
                broker.add_partitions_to_transaction(AddPartitionsToTransaction(producer, (partition,)))
            )
            assert added is not None
            assert added.error is ErrorCode.NONE
            batch = encode_batch(
                [None],
                [VALUE],
                int(time.time() * 1000),
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
            request = ProduceRequest(ACKS_ALL, 30_000, (ProducePartition(partition, batch),), name)
            produced = wait_for(broker.produce(request))
            assert produced is not None
            assert produced.partitions[0].error is ErrorCode.NONE

        return _figures_of(begin, sizes.open_transactions)


def measure_open_producers(directory: str, sizes: Sizes) -> Found:
    """The same with a producer of ours for each, which stays, too."""
    with _open(directory, flushes=False) as store:
        kept = []

        def begin(name: str) -> None:
            producer = store.producer(transactional_id=name, linger_ms=0, transaction_timeout_ms=600_000)
            transaction = producer.transaction()
            transaction.__enter__()
            producer.send("t", VALUE).result()
            kept.append((producer, transaction))

        found = _figures_of(begin, sizes.open_transactions)
        for producer, transaction in kept:
            transaction.abort()
            producer.close()
    return found


def _figures_of(begin: Callable[[str], None], count: int) -> Found:
    """Of so many; the first one, which makes what all share, is not counted."""
    begin("first")
    gc.collect()
    before = resident_memory_bytes()
    started = perf_counter()
    for number in range(count):
        begin(f"open-{number}")
    seconds = (perf_counter() - started) / count
    time.sleep(_REST_SECONDS)  # the threads of producers that have nothing more to send end
    return {
        "open": count,
        "seconds": seconds,
        "memory_bytes": resident_memory_bytes() - before,
        "threads": threading.active_count(),
    }
