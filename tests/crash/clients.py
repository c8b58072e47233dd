"""Producers, a consumer in a group, and commits without one, in sessions: a scenario of the crash explorer.

After a cut each record that was acknowledged by all is there, once. Each group has what it had after one of
its commits, the last flushed one or a later, and never an offset above the end of a log: its consumers get
everything that is appended from then on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import logstore
from logstore.clients.consumer import Consumer
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import RetriableError
from logstore.format.names import OFFSETS_TOPIC
from logstore.model import TopicPartition
from logstore.store import Store
from logstore.testing import ManualClock, MemoryFiles
from tests.crash.offsets import Changing, Durable, Found, State, allowed_states
from tests.crash.scenario import RandomScenario

MEMBERS, ALONE = GROUPS = ("a", "b")
"""One has a consumer, of the other the offsets are committed."""
PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 1))
CONFIG = StoreConfig(
    log_cleaner_enable=False,
    num_recovery_threads_per_data_dir=1,
    topic=TopicConfig(segment_bytes=600, flush_ms=1_000),
)
OFFSETS_SEGMENT_BYTES = 900


class Acknowledged(NamedTuple):
    """No power cut takes this record."""

    partition: int
    offset: int
    value: bytes


def states_in(store: Store) -> dict[str, State]:
    return {
        group: {partition: value.offset for partition, value in store.offsets(group).items()}
        for group in GROUPS
    }


class ClientsSession:
    """A store that is open on a disk, and its clients."""

    def __init__(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> None:
        self.rng = rng
        self.say = files.note
        self._files = files
        self._number = 1_000 * len(said)
        self._clock = ManualClock()
        self._consumer: Consumer | None = None
        self._open()

    def _open(self) -> None:
        self.store = open_store(self._files, self._clock)
        self.store.require_topic("orders", partitions=len(PARTITIONS))
        self.states = states_in(self.store)
        self.say(Found(dict(self.states)))
        self._producers = {acks: self.store.producer(acks=acks, linger_ms=0) for acks in (1, "all")}

    def _turn(self) -> None:
        for producer in self._producers.values():
            producer.run_due()
        self.store.run_background()
        for producer in self._producers.values():
            producer.run_due()

    def send(self, acks: str | int) -> None:
        sent = []
        for _ in range(self.rng.randint(1, 3)):
            self._number += 1
            value, partition = b"%d" % self._number, self.rng.choice(PARTITIONS).partition
            sent.append((value, self._producers[acks].send("orders", value, partition=partition)))
        self._turn()
        for value, handle in sent:
            delivered = handle.result(0)
            if acks == "all":
                self.say(Acknowledged(delivered.partition, delivered.offset, value))

    def consume(self) -> None:
        if self._consumer is None:
            self._consumer = self.store.consumer("orders", group=MEMBERS)
        found = self._consumer.poll(timeout=0)
        if found or self.rng.random() < 0.5:
            offsets = {each: self._consumer.position(each) for each in self._consumer.assignment}
            self._change(MEMBERS, {**self.states[MEMBERS], **offsets})
            self._consumer.commit()

    def leave(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
            self._turn()

    def commit(self, *, flush: bool = False) -> None:
        """For both partitions, or one."""
        offsets = {
            each: self.rng.randint(0, self.store["orders"][each.partition].log_end_offset)
            for each in self.rng.sample(PARTITIONS, self.rng.randint(1, 2))
        }
        self._change(ALONE, {**self.states[ALONE], **offsets})
        self.store.offsets(ALONE).commit(offsets, flush=flush)
        self._say_durable(flush)

    def delete(self) -> None:
        if self.states[ALONE]:
            self._change(ALONE, {})
            self.store.offsets(ALONE).delete()

    def delete_group(self) -> None:
        self.leave()
        self._change(MEMBERS, {})
        self.store._open_broker(self.store._directory).delete_groups((MEMBERS,))  # type: ignore[arg-type]
        self._turn()

    def _change(self, group: str, state: State) -> None:
        self.states[group] = state
        self.say(Changing(group, state))

    def _say_durable(self, flush: bool) -> None:
        if flush:
            self.say(Durable())

    def compact(self) -> None:
        if OFFSETS_TOPIC in self.store:
            topic = self.store[OFFSETS_TOPIC]
            if topic.config.segment_bytes != OFFSETS_SEGMENT_BYTES:
                topic.configure(segment_bytes=OFFSETS_SEGMENT_BYTES)
            topic[0].compact(now=True)

    def wait(self) -> None:
        """Let flushes be done, and tombstones and replaced files go."""
        self._clock.advance(self.rng.choice((1_000, 2 * 86_400_000)))
        self._turn()

    def checkpoint(self) -> None:
        self.store.checkpoint()
        self.say(Durable())

    def reopen(self) -> None:
        self.leave()
        self.store.close()
        self.say(Durable())
        self._open()


ACTIONS: dict[str, tuple[int, Callable[[ClientsSession], None]]] = {
    "send": (4, lambda session: session.send(1)),
    "send to all": (3, lambda session: session.send("all")),
    "consume": (4, ClientsSession.consume),
    "leave": (1, ClientsSession.leave),
    "commit": (2, lambda session: session.commit()),
    "commit and flush": (2, lambda session: session.commit(flush=True)),
    "delete": (1, ClientsSession.delete),
    "delete group": (1, ClientsSession.delete_group),
    "compact": (2, ClientsSession.compact),
    "wait": (1, ClientsSession.wait),
    "checkpoint": (1, ClientsSession.checkpoint),
    "reopen": (1, ClientsSession.reopen),
}


class ClientsScenario(RandomScenario):
    """Sessions of clients."""

    table = ACTIONS
    first = ("send", "consume")

    def begin(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> ClientsSession:
        return ClientsSession(files, said, rng)

    def check_state(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        clock = ManualClock()
        with open_store(files, clock) as store:
            store.require_topic("orders", partitions=len(PARTITIONS))
            records = [[record.value for record in log.read()] for log in store["orders"]]
            check_records(records, said)
            found = states_in(store)
            check_states(found, [len(values) for values in records], said)
            with logstore.open("/store", files=files, clock=clock, read_only=True) as reader:
                assert states_in(reader) == found
            check_goes_on(store, found, records)


def open_store(files: MemoryFiles, clock: ManualClock) -> Store:
    return logstore.open("/store", files=files, clock=clock, config=CONFIG)


def check_records(records: Sequence[Sequence[bytes | None]], said: Sequence[Any]) -> None:
    for note in said:
        if isinstance(note, Acknowledged):
            there = records[note.partition][note.offset : note.offset + 1]
            assert there == [note.value], f"LOST: {note}; there is {there}"
    for values in records:
        numbers = [int(value or 0) for value in values]
        assert numbers == sorted(set(numbers)), f"TWICE, or out of order: {numbers}"


def check_states(found: Mapping[str, State], ends: Sequence[int], said: Sequence[Any]) -> None:
    """What was lost of a log was not read by the group either, as far as it knows."""
    for group, states in allowed_states(said).items():
        possible = [
            {each: min(offset, ends[each.partition]) for each, offset in state.items()} for state in states
        ]
        assert found[group] in possible, (
            f"group {group!r} has {found[group]}; it may be one of {possible}, the logs end at {ends}"
        )


def check_goes_on(
    store: Store, found: Mapping[str, State], records: Sequence[Sequence[bytes | None]]
) -> None:
    """What is appended from now on reaches the group, and so does all that it had not read yet."""
    for log in store["orders"]:
        log.extend([b"%d" % (10**9 + number) for number in range(5)])
    expected = {
        each: [*records[each.partition], *(b"%d" % (10**9 + number) for number in range(5))][
            found[MEMBERS].get(each, 0) :
        ]
        for each in PARTITIONS
    }
    got: dict[TopicPartition, list[bytes | None]] = {each: [] for each in PARTITIONS}
    with store.consumer("orders", group=MEMBERS) as consumer:
        for record in drained(consumer):
            assert record.partition is not None
            got[PARTITIONS[record.partition]].append(record.value)
        assert got == expected, f"the group had {found[MEMBERS]}"
        consumer.commit()
        ends = {each: len(records[each.partition]) + 5 for each in PARTITIONS}
        assert {each: value.offset for each, value in store.offsets(MEMBERS).items()} == ends


def drained(consumer: Consumer) -> list[Any]:
    for _ in range(5):
        try:
            return list(consumer.drain())
        except RetriableError:
            continue
    raise AssertionError("the group does not come to rest")
