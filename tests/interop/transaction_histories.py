"""One history of transactions, made from a seed, for our store and for Kafka's own producers at a broker."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import logstore
from tests.interop.clients import NewRecord
from tests.interop.plan import Plan

TOPIC = "replayed"
PARTITION_COUNT = 2
IDS = ("x", "y", "z")
LENGTH = 40
TIME_MS = 1_700_000_000_000


class Step(NamedTuple):
    """One thing that a producer does."""

    verb: str
    """``start``, ``begin``, ``send``, ``offset``, ``commit`` or ``abort``; ``plain`` is no transaction's."""
    producer: str
    partition: int = 0
    number: int = 0
    """Of the first record; or the offset."""
    count: int = 0

    @property
    def transactional_id(self) -> str:
        """Producers that take an id one after the other are called ``x-1``, ``x-2`` and so on."""
        return self.producer.partition("-")[0]

    @property
    def records(self) -> list[NewRecord]:
        numbers = range(self.number, self.number + self.count)
        return [
            NewRecord(b"k%d" % (n % 3), f"{self.producer}-{n}".encode(), (), TIME_MS + n) for n in numbers
        ]


def history(seed: int) -> Iterator[Step]:
    """Transactions that overlap, commit, abort, and are shut out by the next producer of their id; some stay
    open."""
    chance = random.Random(seed)
    lives = dict.fromkeys(IDS, 0)
    is_open = dict.fromkeys(IDS, False)

    def begin(name: str) -> Iterator[Step]:
        if not lives[name] or chance.random() < 0.15:
            lives[name] += 1
            is_open[name] = False
            yield Step("start", f"{name}-{lives[name]}")
        if not is_open[name]:
            is_open[name] = True
            yield Step("begin", f"{name}-{lives[name]}")

    for number in range(0, LENGTH * 10, 10):
        name, partition = chance.choice(IDS), chance.randrange(PARTITION_COUNT)
        drawn = chance.random()
        if drawn < 0.15:
            yield Step("plain", "plain", partition, number, chance.randint(1, 3))
        elif drawn < 0.6 or not is_open[name]:
            yield from begin(name)
            yield Step("send", f"{name}-{lives[name]}", partition, number, chance.randint(1, 3))
        elif drawn < 0.7:
            yield Step("offset", f"{name}-{lives[name]}", partition, chance.randint(0, 3))
        else:
            yield Step("commit" if drawn < 0.88 else "abort", f"{name}-{lives[name]}")
            is_open[name] = False


def for_broker(steps: list[Step], plan: Plan) -> None:
    """Let Kafka's producers do it."""
    plan.producer("plain")
    for step in steps:
        if step.verb == "start":
            plan.producer(
                step.producer, transactional_id=step.transactional_id, transaction_timeout_ms="600000"
            )
            plan.do("init", step.producer)
        elif step.verb in ("send", "plain"):
            plan.batch(step.producer, TOPIC, step.records, step.partition)
        elif step.verb == "offset":
            plan.offset(step.producer, step.transactional_id, TOPIC, step.partition, step.number)
        else:
            plan.do(step.verb, step.producer)


def for_us(steps: list[Step], store: logstore.Store) -> None:
    """Do it with a store of our own, which has the topic."""
    producers: dict[str, Any] = {"plain": store.producer()}
    transactions: dict[str, Any] = {}
    for step in steps:
        name = step.producer
        if step.verb == "start":
            producers[name] = store.producer(
                transactional_id=step.transactional_id, transaction_timeout_ms=600_000
            )
        elif step.verb == "begin":
            transactions[name] = producers[name].transaction().__enter__()
        elif step.verb in ("send", "plain"):
            for record in step.records:
                producers[name].send(
                    TOPIC,
                    record.value,
                    key=record.key,
                    partition=step.partition,
                    timestamp_ms=record.timestamp_ms,
                )
            producers[name].flush()
        elif step.verb == "offset":
            group, offsets = step.transactional_id, {(TOPIC, step.partition): step.number}
            transactions[name].commit_offsets(group, offsets)
        else:
            end: Callable[[], None] = getattr(transactions[name], step.verb)
            end()
