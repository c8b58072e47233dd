"""Sessions of a store: topics are created and deleted, partitions are written, time passes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import logstore
from logstore import Store, StoreConfig, Topic, TopicConfig
from logstore.testing import ManualClock, MemoryFiles
from tests.crash.history import Deleted, Deleting, Durable, Found, History
from tests.crash.scenario import RandomScenario
from tests.crash.writer import Writer, check_lookups, check_producers, found_in

PATH = "/store"
TOPICS = ("a", "b", "c")
CONFIG = TopicConfig(segment_bytes=600, index_interval_bytes=100, retention_ms=-1)
RETAINING = TopicConfig(segment_bytes=600, index_interval_bytes=100, retention_ms=-1, retention_bytes=1_500)
STORE_CONFIG = StoreConfig(linger_ms=0, topic=CONFIG, num_recovery_threads_per_data_dir=1)
"""One thread opens the partitions: a session must do the same each time."""


class Creating(NamedTuple):
    """The topic may exist from now on, with these partitions."""

    topic: str
    held: tuple[int, ...]


class Created(NamedTuple):
    """The topic exists, durably, with exactly these partitions."""

    topic: str
    held: tuple[int, ...]


class LettingGo(NamedTuple):
    """The partition may be gone from now on."""

    topic: str
    partition: int


class Removing(NamedTuple):
    """The topic may be gone from now on."""

    topic: str


class Removed(NamedTuple):
    """The topic is gone, durably."""

    topic: str


class Said(NamedTuple):
    """A note of a partition's writer."""

    topic: str
    partition: int
    note: Any


class StoreHistory:
    """Which topics may exist, and what their partitions may contain."""

    def __init__(self, said: Sequence[Any]) -> None:
        self.least: dict[str, frozenset[int]] = {}
        """The partitions that a topic must hold."""
        self.most: dict[str, frozenset[int]] = {}
        """The partitions that it may hold."""
        self._notes: dict[tuple[str, int], list[Any]] = {}
        for note in said:
            self._fold(note)

    def _fold(self, note: Any) -> None:
        if isinstance(note, Said):
            self._notes.setdefault((note.topic, note.partition), []).append(note.note)
        elif isinstance(note, Creating):
            self.most[note.topic] = frozenset(note.held)
        elif isinstance(note, Created):
            self.least[note.topic] = self.most[note.topic] = frozenset(note.held)
            self._forget(note.topic, note.held)
        elif isinstance(note, LettingGo):
            self.least[note.topic] -= {note.partition}
        elif isinstance(note, Removing):
            self.least.pop(note.topic, None)
        elif isinstance(note, Removed):
            self.most.pop(note.topic, None)
            self._forget(note.topic, ())

    def _forget(self, topic: str, held: Sequence[int]) -> None:
        """Forget notes about partitions that are no longer held."""
        for place in [place for place in self._notes if place[0] == topic and place[1] not in held]:
            del self._notes[place]

    def partition(self, topic: str, number: int) -> History:
        return History(self._notes.get((topic, number), ()))

    def check_topics(self, store: Store) -> None:
        for topic, least in self.least.items():
            assert topic in store, f"LOST: topic {topic} is gone"
            held = store[topic].held_partitions
            assert least.issubset(held), f"LOST: topic {topic} holds {held}"
        for topic in store:
            assert topic in self.most, f"PHANTOM: topic {topic} is back"
            assert self.most[topic].issuperset(store[topic].held_partitions)


def open_store(files: MemoryFiles, clock: ManualClock | None = None) -> Store:
    return logstore.open(PATH, files=files, clock=clock or ManualClock(), config=STORE_CONFIG)


class StoreSession:
    """A store that is open on a disk."""

    def __init__(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> None:
        self.files = files
        self.rng = rng
        self._number = 1_000 * len(said)
        self.clock = ManualClock()
        self._open()

    def _open(self) -> None:
        self.store = open_store(self.files, self.clock)
        self.writers: dict[tuple[str, int], Writer] = {}
        for name, topic in self.store.items():
            self.files.note(Created(name, topic.held_partitions))
            self._add_writers(name)
        for name in TOPICS:
            if name not in self.store:
                self.files.note(Removed(name))

    def _add_writers(self, name: str) -> None:
        for number in self.store[name].held_partitions:
            if (name, number) in self.writers:
                continue
            self._number += 1_000_000
            self.writers[name, number] = Writer(
                self.store[name][number], partial(self._say, name, number), self.rng, self.clock, self._number
            )

    def _say(self, topic: str, number: int, note: Any) -> None:
        self.files.note(Said(topic, number, note))

    def _any(self) -> list[Writer]:
        """A random writer, in a list; empty if there is no topic."""
        return [self.rng.choice(list(self.writers.values()))] if self.writers else []

    # Actions

    def create(self) -> None:
        """Create a topic that does not exist."""
        missing = [name for name in TOPICS if name not in self.store]
        if missing:
            name, count = self.rng.choice(missing), self.rng.randint(1, 3)
            held = tuple(sorted(self.rng.sample(range(count), self.rng.randint(1, count))))
            config = RETAINING if name == "c" else CONFIG
            create = partial(self.store.create_topic, name, partitions=count, config=config, held=held)
            self._change(name, held, create)

    def _change(self, name: str, held: Sequence[int], change: Callable[[], object]) -> None:
        """Hold these partitions of a topic, new ones among them."""
        held = tuple(sorted(held))
        self.files.note(Creating(name, held))
        change()
        self.files.note(Created(name, held))
        self._add_writers(name)

    def add_partitions(self) -> None:
        for topic in self._any_topic():
            count = len(topic)
            added = self.rng.choice(([count], [count], []))
            grown = [*topic.held_partitions, *added]
            self._change(topic.name, grown, partial(topic.add_partitions, count + 1, held=added))

    def hold(self) -> None:
        for topic in self._any_topic():
            others = sorted(set(range(len(topic))) - set(topic.held_partitions))
            added = self.rng.sample(others, self.rng.randint(1, len(others))) if others else [0]
            held = {*topic.held_partitions, *added}
            self._change(topic.name, [*held], partial(topic.hold, added))

    def let_go(self) -> None:
        for topic in self._any_topic():
            if len(topic.held_partitions) > 1:
                number = self.rng.choice(topic.held_partitions)
                self.files.note(LettingGo(topic.name, number))
                topic.let_go(number)
                self.files.note(Created(topic.name, topic.held_partitions))
                del self.writers[topic.name, number]

    def _any_topic(self) -> list[Topic]:
        """A random topic, in a list; empty if there is none."""
        present = list(self.store)
        return [self.store[self.rng.choice(present)]] if present else []

    def remove(self) -> None:
        present = list(self.store)
        if present:
            name = self.rng.choice(present)
            self.files.note(Removing(name))
            self.store.delete_topic(name)
            self.files.note(Removed(name))
            self.writers = {place: writer for place, writer in self.writers.items() if place[0] != name}

    def write(self) -> None:
        for writer in self._any():
            writer.append(self.rng.randint(1, 4), size_bytes=100, flush=self.rng.random() < 0.4)

    def write_as_producer(self) -> None:
        for writer in self._any():
            writer.append_as_producer()

    def delete_before(self) -> None:
        for writer in self._any():
            writer.delete_before()

    def truncate(self) -> None:
        for writer in self._any():
            writer.truncate()

    def roll(self) -> None:
        for writer in self._any():
            writer.roll()

    def flush(self) -> None:
        self.store.flush()
        for writer in self.writers.values():
            writer.say(Durable(writer.end))

    def checkpoint(self) -> None:
        self.store.checkpoint()
        for writer in self.writers.values():
            writer.say_durable()

    def let_time_pass(self) -> None:
        """Background work: flushes, retention, checkpoints, the removal of what was deleted."""
        for writer in self.writers.values():
            writer.say(Deleting(writer.end))
        self.clock.advance(self.rng.choice((1_000, 60_000, 600_000)))
        self.store.run_background()
        for writer in self.writers.values():
            writer.say(Deleted(writer.log.log_start_offset))
            writer.say_durable()

    def reopen(self) -> None:
        self.store.close()
        for writer in self.writers.values():
            writer.say(Durable(writer.end))
        self._open()


ACTIONS: dict[str, tuple[int, Callable[[StoreSession], None]]] = {
    "create": (4, StoreSession.create),
    "add partitions": (1, StoreSession.add_partitions),
    "hold": (2, StoreSession.hold),
    "let go": (2, StoreSession.let_go),
    "remove": (2, StoreSession.remove),
    "write": (10, StoreSession.write),
    "write as producer": (2, StoreSession.write_as_producer),
    "delete before": (1, StoreSession.delete_before),
    "truncate": (1, StoreSession.truncate),
    "roll": (1, StoreSession.roll),
    "flush": (2, StoreSession.flush),
    "checkpoint": (1, StoreSession.checkpoint),
    "let time pass": (2, StoreSession.let_time_pass),
    "reopen": (1, StoreSession.reopen),
}


class StoreScenario(RandomScenario):
    """Sessions of a store; each begins with a topic."""

    table = ACTIONS
    first = ("create",)

    def begin(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> StoreSession:
        return StoreSession(files, said, rng)

    def check_state(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        history = StoreHistory(said)
        store = open_store(files)
        assert store.damaged == {}
        history.check_topics(store)
        expected: dict[tuple[str, int], Found] = {}
        for name, topic in store.items():
            for number in topic.held_partitions:
                log = topic[number]
                found = found_in(log)
                history.partition(name, number).check(found)
                check_lookups(log, found)
                appended = (*check_producers(log), b"more")
                log.extend([(None, b"more")], flush=True)
                expected[name, number] = Found(found.start, (*found.values, *appended))
        report = store.verify()
        assert report, str(report)
        store._directory.abandon()
        again = open_store(MemoryFiles(files.now()))
        for name, topic in again.items():
            for number in topic.held_partitions:
                assert topic[number].recovery.cut_bytes == 0
                assert found_in(topic[number]) == expected.pop((name, number)), (
                    "the second open found another log"
                )
        assert expected == {}
