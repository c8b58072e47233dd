"""A topic that is copied exactly once: by ``store.transform``, or by the loop of ``docs/transactions.md``.

The keys stay, and both topics have as many partitions, so a record's copy is in the partition of its number.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from logstore.clients.producer import Producer
from logstore.clients.transform import Transform
from logstore.config import StoreConfig, TopicConfig
from logstore.model import Isolation, Record
from logstore.store import Store

SOURCE, TARGET, GROUP = "in", "out", "copy"
PARTITION_COUNT = 3


class Settings(NamedTuple):
    """How one directory is used."""

    store: StoreConfig
    workers: int
    """Of a transform; 0: the loop, which is one process."""
    max_poll_records: int
    """Of a transaction."""
    linger_ms: int
    patience_ms: int | None = None
    """How long a producer waits for the disk; as long as by default, if None."""

    @classmethod
    def draw(cls, chance: random.Random) -> Settings:
        topic = TopicConfig(
            segment_bytes=chance.choice((2_000, 300_000)),
            flush_ms=chance.choice((1, 10, 1_000)),
            file_delete_delay_ms=chance.choice((0, 60_000)),
            retention_ms=-1,
        )
        store = StoreConfig(
            topic=topic,
            log_cleaner_enable=chance.random() < 0.5,
            log_flush_offset_checkpoint_interval_ms=chance.choice((2, 20, 60_000)),
        )
        return cls(store, chance.choice((0, 1, 2)), chance.choice((1, 5, 20)), chance.choice((0, 0, 2)))

    @property
    def transactional_ids(self) -> list[str]:
        return [f"{GROUP}-{number}" for number in range(max(self.workers, 1))]


def fill(store: Store, count: int) -> None:
    """Make both topics, and the records to copy."""
    for name in (SOURCE, TARGET):
        store.require_topic(name, partitions=PARTITION_COUNT)
    with store.producer() as producer:
        for number in range(count):
            producer.send(SOURCE, b"%d" % number, key=b"k%d" % (number % 8))


def copy(store: Store, settings: Settings) -> None:
    """Copy what is not copied yet."""
    if settings.workers:
        _transform(store, settings).run(until_end=True)
    else:
        copy_in_a_loop(store, settings)


def _transform(store: Store, settings: Settings) -> Transform:
    options = {"retry_backoff_ms": 5, "workers": settings.workers}
    reads = {"group": GROUP, "max_poll_records": settings.max_poll_records}
    if settings.patience_ms is None:
        return store.transform(SOURCE, TARGET, same, **reads, **options)
    return Transform(
        lambda: store.consumer(SOURCE, isolation=Isolation.COMMITTED, **reads),
        lambda number: _producer(store, settings, number),
        TARGET,
        same,
        dead_letter_topic=None,
        retries=0,
        **options,
    )


def same(record: Record) -> bytes | None:
    return record.value


def _producer(store: Store, settings: Settings, number: int) -> Producer:
    waits = {}
    if settings.patience_ms is not None:
        waits = dict.fromkeys(("max_block_ms", "delivery_timeout_ms"), settings.patience_ms)
    name = settings.transactional_ids[number]
    return store.producer(transactional_id=name, linger_ms=settings.linger_ms, **waits)


def copy_in_a_loop(store: Store, settings: Settings) -> None:
    partitions = [(SOURCE, number) for number in range(PARTITION_COUNT)]
    with (
        _producer(store, settings, 0) as producer,
        store.consumer(partitions=partitions, group=GROUP, isolation=Isolation.COMMITTED) as consumer,
    ):
        while any(consumer.lag().values()):
            records = consumer.poll(timeout=0, max_records=settings.max_poll_records)
            with producer.transaction() as transaction:
                for record in records:
                    producer.send(TARGET, record.value, key=record.key)
                transaction.commit_offsets(consumer)


def end_what_is_open(store: Store, settings: Settings) -> None:
    """As the next process does: only then it is decided."""
    for number in range(len(settings.transactional_ids)):
        _producer(store, settings, number).close()


class Copied(NamedTuple):
    """How far a copy has come."""

    count: int
    is_done: bool
    aborted_count: int
    """Records of transactions that were cut short: there, and seen by nobody who reads what is committed."""


def check(store: Store) -> Copied:
    """
    Raises:
        AssertionError: a record was copied twice, left out, or without the offset behind it.
    """
    count = total = there = 0
    offsets = store.offsets(GROUP)
    for source, target in zip(store[SOURCE], store[TARGET], strict=True):
        assert target.last_stable_offset == target.log_end_offset, (
            f"a transaction of {target.partition} hangs"
        )
        values = [record.value for record in source.read()]
        copied = [record.value for record in target.read(isolation=Isolation.COMMITTED)]
        committed = offsets.get(source.partition)
        offset = 0 if committed is None else committed.offset
        twice = {value for value in copied if copied.count(value) > 1} if copied != values[:offset] else set()
        assert copied == values[:offset], (
            f"{source.partition}: offset {offset} is committed, and {len(copied)} records are copied; TWICE: "
            f"{sorted(twice)}, LEFT OUT: {sorted(set(values[:offset]) - set(copied))}"
        )
        count, total = count + len(copied), total + len(values)
        there += sum(1 for _ in target.read(isolation=Isolation.LOG_END))
    return Copied(count, count == total, there - count)
