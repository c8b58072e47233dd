"""Random lives of topics that are held in part, held against a model: a dictionary of lists."""

from __future__ import annotations

import random
from typing import Any

import pytest

from logstore.errors import UnknownTopicError
from logstore.format.partitioner import partition_for_key
from logstore.testing import MemoryFiles
from tests.logdir.helpers import crash, open_store, values

SEEDS = 30
STEPS = 40
NAMES = ("a", "b", "a-1")


class Life:
    """A store in memory and what it must be: of each topic the number of its partitions, and the values in
    those that are held."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.files = MemoryFiles()
        self.store = self.open()
        self.counts: dict[str, int] = {}
        self.held: dict[str, dict[int, list[bytes]]] = {}
        self.number = 0

    def open(self, **options: Any):
        return open_store("/store", files=self.files, **options)

    def some(self, numbers, *, least: int = 1) -> list[int]:
        numbers = list(numbers)
        return self.rng.sample(numbers, self.rng.randint(min(least, len(numbers)), len(numbers)))

    def new_value(self) -> bytes:
        self.number += 1
        return b"%d" % self.number

    def topic(self) -> str | None:
        return self.rng.choice([*self.held]) if self.held else None

    # What may be done

    def create(self) -> None:
        name, count = self.rng.choice(NAMES), self.rng.randint(1, 9)
        if name not in self.held:
            held = self.some(range(count)) if self.rng.random() < 0.8 else None
            topic = self.store.create_topic(name, partitions=count, held=held)
            self.counts[name] = count
            self.held[name] = {number: [] for number in (range(count) if held is None else held)}
            assert topic.held_partitions == tuple(sorted(self.held[name]))

    def grow(self, name: str) -> None:
        old, new = self.counts[name], self.counts[name] + self.rng.randint(1, 3)
        held = self.some(range(old, new), least=0) if self.rng.random() < 0.7 else None
        self.store[name].add_partitions(new, held=held)
        self.counts[name] = new
        self.held[name] |= {number: [] for number in (range(old, new) if held is None else held)}

    def hold(self, name: str) -> None:
        numbers = self.some(range(self.counts[name]))
        self.store[name].hold(numbers)
        for number in numbers:
            self.held[name].setdefault(number, [])

    def let_go(self, name: str) -> None:
        if len(self.held[name]) > 1:
            number = self.rng.choice([*self.held[name]])
            self.store[name].let_go(number)
            del self.held[name][number]

    def delete(self, name: str) -> None:
        self.store.delete_topic(name)
        del self.held[name], self.counts[name]

    def append(self, name: str) -> None:
        key, value = b"%d" % self.rng.randrange(50), self.new_value()
        number, there = partition_for_key(key, self.counts[name]), self.held[name]
        if number in there:
            assert self.store[name].append(value, key=key) == (number, len(there[number]))
            there[number].append(value)
        else:
            with pytest.raises(UnknownTopicError, match=f"does not hold partition {number} of topic"):
                self.store[name].append(value, key=key)

    def append_without_key(self, name: str) -> None:
        value = self.new_value() + bytes(200_000)
        number, offset = self.store[name].append(value)
        assert offset == len(self.held[name][number])
        self.held[name][number].append(value)

    def extend(self, name: str) -> None:
        rows = [(b"%d" % self.rng.randrange(50), self.new_value()) for _ in range(self.rng.randint(1, 4))]
        numbers = [partition_for_key(key, self.counts[name]) for key, _ in rows]
        there = self.held[name]
        if all(number in there for number in numbers):
            self.store[name].extend(rows)
            for number, (_, value) in zip(numbers, rows, strict=True):
                there[number].append(value)
        else:
            with pytest.raises(UnknownTopicError, match="does not hold partition"):
                self.store[name].extend(rows)

    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()
        assert self.store.was_clean

    def crash(self) -> None:
        self.store.flush()
        crash(self.store)
        self.store = self.open()

    # What must be so

    def check(self) -> None:
        self.check_store(self.store)
        with self.open(read_only=True) as reader:
            self.check_store(reader)

    def check_store(self, store) -> None:
        assert sorted(store) == sorted(self.held)
        assert not store.damaged
        for name, there in self.held.items():
            topic = store[name]
            assert len(topic) == self.counts[name]
            assert topic.held_partitions == tuple(sorted(there))
            assert {log.partition.partition: values(log) for log in topic} == there
            for number in range(len(topic)):
                if number not in there:
                    with pytest.raises(UnknownTopicError, match=f"does not hold partition {number} of topic"):
                        topic[number]
            assert topic.verify().partition_count == len(there)
        report = store.verify()
        assert report, str(report)
        assert report.partition_count == sum(map(len, self.held.values()))


OF_A_TOPIC = ("grow", "hold", "hold", "let_go", "let_go", "append", "append_without_key", "extend", "extend")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_life(seed):
    life = Life(seed)
    said = []
    try:
        for _ in range(STEPS):
            step = life.rng.choice((*OF_A_TOPIC, "create", "create", "delete", "reopen", "crash"))
            said.append(step)
            name = life.topic()
            if step in ("create", "reopen", "crash"):
                getattr(life, step)()
            elif name is not None:
                getattr(life, step)(name)
            if life.rng.random() < 0.3:
                life.check()
        life.reopen()
        life.check()
    except BaseException as error:
        error.add_note(f"seed {seed}: {' '.join(said)}")
        raise
    finally:
        crash(life.store)
