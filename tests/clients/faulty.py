"""A producer, a consumer in a group and commits without one, on a disk that fails at random: each record that
is acknowledged is there, each handle is answered, nothing comes twice, and the order is kept."""

from __future__ import annotations

import random
from typing import Any

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import LogstoreError, RetriableError, StorageError
from logstore.format.names import OFFSETS_TOPIC
from logstore.testing import FAULTS, FaultyFiles, Image, ManualClock, MemoryFiles
from logstore.testing.crash import CrashStates
from logstore.testing.operations import Note

GROUP, ALONE = "members", "alone"
PARTITION_COUNT = 2
NEVER_MS = 10**9
ACTIONS = {"send": 6, "turn": 6, "consume": 4, "commit": 2, "fail": 2, "heal": 2, "change": 1, "mend": 1}


class World:
    """A store, its clients, and what they were promised. Everything is drawn from the seed."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.chance = chance = random.Random(seed)
        self.memory = MemoryFiles()
        self.files = FaultyFiles(self.memory)
        self.clock = ManualClock()
        self.config = StoreConfig(
            log_cleaner_enable=False,
            topic=TopicConfig(
                segment_bytes=chance.choice((500, 100_000)),
                flush_ms=chance.choice((100, 10_000)),
                flush_messages=chance.choice((1, 2**62)),
            ),
        )
        self.acks = chance.choice(("all", "all", 1))
        self.delivery_timeout_ms = chance.choice((NEVER_MS, NEVER_MS, 400))
        self.store = self._open()
        self.store.create_topic("orders", partitions=PARTITION_COUNT)
        self.store.offsets(ALONE).commit({("orders", 0): 0})
        self.producer = self.store.producer(
            acks=self.acks,
            linger_ms=chance.choice((0, 5)),
            batch_size=chance.choice((1, 200, 5_000)),
            retry_backoff_ms=10,
            delivery_timeout_ms=self.delivery_timeout_ms,
            buffer_memory=chance.choice((3_000, 10**6)),
            max_block_ms=0,
            request_timeout_ms=chance.choice((30_000, 50)),
            **settings,
        )
        self.consumer = self.store.consumer("orders", group=GROUP)
        self.sent = [[] for _ in range(PARTITION_COUNT)]
        """What each partition was sent: values and handles."""
        self.number = 0
        self.read = [0] * PARTITION_COUNT
        """Up to where the group has got every record."""
        self.possible = {(group, n): {0} for group in (GROUP, ALONE) for n in range(PARTITION_COUNT)}
        self.errors = 0
        self.state_count = 0
        """How many states of power cuts were checked."""

    def _open(self):
        return logstore.open("/store", files=self.files, clock=self.clock, config=self.config)

    # What may happen

    def act(self) -> None:
        name = self.chance.choices(list(ACTIONS), list(ACTIONS.values()))[0]
        try:
            getattr(self, name)()
        except (StorageError, RetriableError):
            self.errors += 1

    def send(self) -> None:
        for _ in range(self.chance.randint(1, 8)):
            number = self.chance.randrange(PARTITION_COUNT)
            self.number += 1
            value = b"%d" % self.number + b"." * self.chance.choice((0, 100))
            self.sent[number].append((value, self.producer.send("orders", value, partition=number)))

    def turn(self) -> None:
        self.clock.advance(self.chance.choice((0, 1, 10, 100)))
        self.producer.run_due()
        self.store.run_background()
        self.producer.run_due()

    def consume(self) -> None:
        for record in self.consumer.poll(timeout=0, max_records=self.chance.choice((1, 100))):
            value, _ = self.found(record)
            assert record.offset <= self.read[record.partition], f"LEFT OUT: what is in front of {value}"
            self.read[record.partition] = max(self.read[record.partition], record.offset + 1)
        if self.chance.random() < 0.5:
            for each in self.consumer.assignment:
                self.possible[GROUP, each.partition].add(self.consumer.position(each))
            self.consumer.commit()

    def found(self, record):
        """A record that was sent."""
        return next(each for each in self.sent[record.partition] if each[0] == record.value)

    def commit(self) -> None:
        offsets = {log.partition: log.log_end_offset for log in self.store["orders"]}
        for each, offset in offsets.items():
            self.possible[ALONE, each.partition].add(offset)
        self.store.offsets(ALONE).commit(offsets, flush=self.chance.random() < 0.5)
        for each, offset in offsets.items():
            self.possible[ALONE, each.partition] = {offset}

    def fail(self) -> None:
        fault = FAULTS[self.chance.choice(list(FAULTS))]
        times = self.chance.choice((1, 3, None))
        path = self.chance.choice(("", "orders", OFFSETS_TOPIC))
        self.files.fail(fault, at=self.chance.randint(1, 6), times=times, path=path)

    def heal(self) -> None:
        self.files.heal()

    def change(self) -> None:
        topic = self.store[self.chance.choice(("orders", OFFSETS_TOPIC))]
        if topic.name == OFFSETS_TOPIC and self.chance.random() < 0.5:
            topic[0].compact(now=True)
        else:
            topic[0].roll()

    def mend(self) -> None:
        """Reopen what must be reopened."""
        for name, topic in self.store.items():
            for number in topic.held_partitions:
                if (name, number) in self.store.damaged or topic[number].needs_reopen:
                    topic.reopen(number)

    # What must hold

    def end(self) -> None:
        """The disk works again: everything gets done."""
        self.heal()
        self.mend()
        for _ in range(50):
            self.clock.advance(1_000)  # a flush that failed is tried again after flush_ms
            self.turn()
        try:
            self.producer.close()
        except LogstoreError:  # of a record that was given up
            if self.delivery_timeout_ms == NEVER_MS:
                raise
        self.check_records()
        self.check_offsets(self.store)
        for _ in range(1_000):
            if self.read == [log.log_end_offset for log in self.store["orders"]]:
                break
            self.clock.advance(200)
            self.consume()
        assert self.read == [log.log_end_offset for log in self.store["orders"]]

    def check_records(self) -> None:
        for log, sent in zip(self.store["orders"], self.sent, strict=True):
            values = [record.value for record in log.read()]
            order = {value: at for at, (value, _) in enumerate(sent)}
            places = [order[value] for value in values]
            assert places == sorted(set(places)), f"TWICE, or out of order: {values}"
            for value, handle in sent:
                assert handle.is_done, f"nobody says what became of {value!r}"
                try:
                    offset = handle.result(0).offset
                    assert value in (values if offset < 0 else values[offset : offset + 1])
                except (RetriableError, StorageError):
                    if self.delivery_timeout_ms == NEVER_MS:
                        raise

    def check_offsets(self, store) -> None:
        for (group, number), possible in self.possible.items():
            committed = store.offsets(group).get(("orders", number))
            offset = 0 if committed is None else committed.offset
            assert offset in possible, f"{group} has {offset}; it may have {possible}"

    def cut_power(self, states: int) -> None:
        """Check what a power cut may leave now."""
        crash = CrashStates(Image(), 1)
        for entry in self.memory.trace:
            if not isinstance(entry, Note):
                crash.follow(entry)
        for choices in crash.choices(states, self.chance):
            files = MemoryFiles(crash.image(choices))
            store = logstore.open("/store", files=files, clock=ManualClock(), config=self.config)
            for log, sent in zip(store["orders"], self.sent, strict=True):
                values = [record.value for record in log.read()]
                for value, handle in sent:
                    if self.acks == "all" and handle.is_done and not handle._batch.error:
                        offset = handle.result(0).offset
                        assert value in (values if offset < 0 else values[offset : offset + 1]), (
                            f"LOST: {value}"
                        )
            self.state_count += 1


def run(seed: int, **settings: Any) -> World:
    """A whole history."""
    world = World(seed, **settings)
    for _ in range(120):
        world.act()
    world.cut_power(3)
    world.end()
    world.cut_power(3)
    return world
