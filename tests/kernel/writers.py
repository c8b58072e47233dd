"""The lives of writers: what each kind does until it is killed, and what it says of it.

A life is drawn by a seed. Everything is said before it is done (it may be there from now on) and after the
call has returned (it must be there from now on).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import logstore
from logstore.clock import SystemClock
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import OffsetOutOfRangeError
from logstore.files import Files
from logstore.format.header import BatchHeader
from logstore.model import ProducerIdentity
from logstore.partition.log import Log
from logstore.store import Store
from logstore.testing import ManualClock
from tests.crash.history import (
    FIRST,
    Appending,
    Deleted,
    Deleting,
    Truncated,
    Truncating,
    next_value,
)
from tests.crash.writer import batches_of, check_lookups, found_in
from tests.kernel.ledger import (
    At,
    Begun,
    Dropped,
    Dropping,
    Growing,
    Grown,
    Made,
    Making,
    Returned,
    Seen,
    Stored,
    lane_value,
)

Say = Callable[[Any], None]
CODECS = ("uncompressed", "uncompressed", "gzip", "snappy", "lz4", "zstd")


class Settings(NamedTuple):
    """How one directory is used by all its writers."""

    topic: TopicConfig
    store: StoreConfig

    @classmethod
    def draw(cls, chance: random.Random, **settings: Any) -> Settings:
        topic: dict[str, Any] = {
            "segment_bytes": chance.choice((2_000, 6_000, 300_000)),
            "compression_type": chance.choice(CODECS),
            "flush_ms": chance.choice((1, 10, 1_000)),
            "index_interval_bytes": 100,
            "retention_ms": -1,
            "file_delete_delay_ms": chance.choice((0, 5, 60_000)),
        }
        store = StoreConfig(
            linger_ms=chance.choice((0, 0, 1, 5)),
            log_flush_offset_checkpoint_interval_ms=chance.choice((2, 20, 60_000)),
            log_retention_check_interval_ms=chance.choice((3, 30_000)),
            replica_high_watermark_checkpoint_interval_ms=chance.choice((2, 5_000)),
            topic=TopicConfig(**topic | settings),
        )
        return cls(store.topic, store)


class PartitionWriter:
    """One thread's work on one partition. ``life`` numbers it, so that no two lives write the same value."""

    def __init__(self, log: Log, life: int, chance: random.Random, say: Say) -> None:
        self._log = log
        self._chance = chance
        self._say = say
        self.end = log.log_end_offset
        self._last = self._last_value()
        self._number = life * 1_000_000
        self._life = life
        self._borders = [self.end]
        self._lingers = log._context.config.linger_ms > 0
        self._sequences: dict[int, int] = {}
        """The next sequence of each producer that is known."""

    def _last_value(self) -> bytes:
        last = self._log.record_at(self.end - 1) if self.end > self._log.log_start_offset else None
        return (last.value or b"") if last else FIRST + b"<"

    def know_producers(self) -> None:
        """Go on where the producers of earlier lives were cut off."""
        for _, header in batches_of(self._log):
            if header.producer_id >= 0:
                self._sequences[header.producer_id] = header.last_sequence + 1

    def act(self, weights: dict[str, int]) -> None:
        name = self._chance.choices(list(weights), list(weights.values()))[0]
        getattr(self, name)()

    def _values(self, count: int) -> tuple[bytes, ...]:
        size_bytes = self._chance.choice((5, 20, 60, 700))
        values = []
        for _ in range(count):
            self._number += 1
            self._last = next_value(self._number, self._last, size_bytes)
            values.append(self._last)
        return tuple(values)

    def _say_stored(self) -> None:
        """Everything appended so far is with the kernel."""
        self._say(Stored(self.end, self._log.durable_offset))

    def _say_appended(self, offsets: range, values: Sequence[bytes]) -> None:
        assert offsets == range(self.end, self.end + len(values)), f"{offsets}, not from {self.end}"
        self.end += len(values)
        self._borders.append(self.end)
        self._say_stored()

    # What can be done

    def append(self, *, flush: bool = False) -> None:
        values = self._values(1)
        self._say(Appending(self.end, values))
        assert self._log.append(values[0], flush=flush) == self.end
        self.end += 1
        if flush or not self._lingers:
            self._borders.append(self.end)
            self._say_stored()

    def append_and_flush(self) -> None:
        self.append(flush=True)

    def extend(self, count: int = 0, *, flush: bool = False) -> None:
        values = self._values(count or self._chance.randint(1, 6))
        self._say(Appending(self.end, values))
        offsets = self._log.extend([(None, value) for value in values], flush=flush)
        self._say_appended(offsets, values)

    def extend_and_flush(self) -> None:
        self.extend(flush=True)

    def extend_by_many(self) -> None:
        self.extend(400)

    def extend_as_producer(self) -> None:
        """An idempotent producer's batch: a new producer's, or the next one of a known one."""
        known = self._sequences
        if self._chance.random() < 1 / (1 + len(known)) ** 2:
            known[self._life * 10 + len(known)] = 0
        if not known:
            return
        producer_id = self._chance.choice(list(known))
        values = self._values(2)
        producer = ProducerIdentity(producer_id, 0, known[producer_id])
        self._say(Appending(self.end, values))
        offsets = self._log.extend([(None, value) for value in values], producer=producer)
        self._say_appended(offsets, values)
        known[producer_id] += 2

    def flush(self) -> None:
        self._log.flush()
        assert self._log.durable_offset >= self.end
        self._borders.append(self.end)
        self._say_stored()

    def roll(self) -> None:
        self._log.roll()
        self._borders.append(self.end)
        self._say_stored()

    def checkpoint(self) -> None:
        self._log.checkpoint()
        self._say_stored()

    def delete_before(self) -> None:
        offset = self._chance.randint(self._log.log_start_offset, self.end)
        self._say(Deleting(offset))
        self._say(Deleted(self._log.delete_before(offset)))
        self._say_stored()

    def enforce_retention(self) -> None:
        self._say(Deleting(self.end))
        self._log.enforce_retention()
        self._say(Deleted(self._log.log_start_offset))

    def truncate(self) -> None:
        """At a border of batches."""
        start = self._log.log_start_offset
        floor = self._chance.choice([border for border in self._borders if border >= start] or [self.end])
        self._say(Truncating(floor))
        self._log.truncate_to(floor)
        self.end = self._log.log_end_offset
        self._say(Truncated(self.end))
        self._borders = [border for border in self._borders if border <= self.end]
        self._sequences.clear()
        self._last = self._last_value()

    def new_epoch(self) -> None:
        self._log.assign_leader_epoch(max(self._log.leader_epoch, 0) + 1)

    def read(self) -> None:
        """A reader makes the log write what gathers, unless the disk refuses."""
        start = max(self.end - 1, self._log.log_start_offset)
        try:
            is_written = len(list(self._log.read(start))) == self.end - start
        except OffsetOutOfRangeError:
            is_written = False
        if not is_written:
            self._log.flush()  # says why
        assert len(list(self._log.read(start))) == self.end - start
        self._say_stored()

    def append_from_threads(self) -> None:
        """Group commit, until death."""
        lanes = [b"%d.%d" % (self._life, number) for number in range(3)]
        with ThreadPoolExecutor(len(lanes)) as pool:
            list(pool.map(self._append_in_lane, lanes))  # raises what a thread raised

    def _append_in_lane(self, lane: bytes) -> None:
        for number in itertools.count():
            self._say(Begun(lane, number))
            offset = self._log.append(lane_value(lane, number), flush=True)
            self._say(Returned(lane, number, offset))


KINDS: dict[str, dict[str, int]] = {
    "single appends": {"append": 60, "append_and_flush": 10, "flush": 5, "read": 3},
    "extend": {"extend": 50, "extend_and_flush": 15, "extend_by_many": 3, "flush": 5, "checkpoint": 3},
    "group commit": {"append_from_threads": 1},
    "roll": {"extend": 30, "append": 10, "roll": 15, "checkpoint": 10, "new_epoch": 4, "flush": 5},
    "delete": {"extend": 50, "roll": 5, "delete_before": 10, "enforce_retention": 10, "flush": 5},
    "truncate": {"extend": 40, "append": 10, "flush": 8, "truncate": 8, "roll": 4, "delete_before": 2},
    "producers": {"extend_as_producer": 50, "append": 10, "roll": 4, "checkpoint": 4, "flush": 4},
}


def live_on_partition(
    path: str, settings: Settings, kind: str, life: int, files: Files | None, say: Say
) -> None:
    chance = random.Random(life)
    log = Log.open(path, config=settings.topic, store_config=settings.store, files=files)
    say(None)
    writer = PartitionWriter(log, life, chance, say)
    if kind == "producers":
        writer.know_producers()
    for _ in range(chance.choice((20, 2_000))):
        writer.act(KINDS[kind])
    if chance.random() < 0.5:  # die in the middle of a clean stop
        log.close()
        say(Stored(writer.end, writer.end))


def _still() -> ManualClock:
    """Nothing happens in the background of a look."""
    return ManualClock(SystemClock().now_ms())


def look_at_partition(path: str, settings: Settings, *, closely: bool) -> tuple[Seen, int]:
    """What is there, and how many bytes were cut. Half of the looks leave the log as a crash does."""
    log = Log.open(path, config=settings.topic, store_config=settings.store, clock=_still())
    seen = Seen(found_in(log), log.durable_offset)
    if closely:
        check_lookups(log, seen.found)
        check_sequences(log)
        log.close()
    return seen, log.recovery.cut_bytes


def check_sequences(log: Log) -> None:
    """The sequences of each producer follow one another: nothing twice, nothing left out. The log knows the
    last batch of each again, so that a producer who was not told may send it once more."""
    last: dict[int, tuple[bytes, BatchHeader]] = {}
    for data, header in batches_of(log):
        if header.producer_id >= 0:
            if header.producer_id in last:
                expected = last[header.producer_id][1].last_sequence + 1
                assert header.base_sequence == expected, (
                    f"producer {header.producer_id} has a gap or a repeat"
                )
            last[header.producer_id] = data, header
    for data, header in last.values():
        result = log.append_batch(bytes(8) + data[8:])  # the base offset is the leader's to give
        assert result is not None
        assert result.is_duplicate, f"the batch of producer {header.producer_id} was appended twice"
        assert result.base_offset == header.base_offset


# A whole store

TOPICS = ("orders", "payments", "clicks", "returns")
ON_LOGS = {
    "append": 30, "append_and_flush": 5, "extend": 30, "extend_and_flush": 5, "flush": 3, "roll": 3,
    "delete_before": 2, "read": 2, "extend_as_producer": 3,
}  # fmt: skip


class StoreWriter:
    """One thread's work on a store of topics that come and go."""

    def __init__(self, store: Store, life: int, chance: random.Random, say: Say) -> None:
        self._store = store
        self._life = life
        self._chance = chance
        self._say = say
        self._writers: dict[tuple[str, int], PartitionWriter] = {}

    def act(self) -> None:
        action = self._chance.choices((self._on_log, self._make, self._drop, self._grow), (40, 3, 2, 1))[0]
        action()

    def _on_log(self) -> None:
        names = list(self._store)
        if not names:
            return
        topic = self._chance.choice(names)
        number = self._chance.randrange(len(self._store[topic]))
        self._writer(topic, number).act(ON_LOGS)

    def _writer(self, topic: str, number: int) -> PartitionWriter:
        if (topic, number) not in self._writers:
            self._writers[topic, number] = PartitionWriter(
                self._store[topic][number],
                self._life,
                self._chance,
                lambda said: self._say(At(topic, number, said)),
            )
        return self._writers[topic, number]

    def _make(self) -> None:
        missing = [name for name in TOPICS if name not in self._store]
        if missing:
            topic, count = self._chance.choice(missing), self._chance.randint(1, 3)
            self._say(Making(topic, count))
            self._store.create_topic(topic, partitions=count)
            self._say(Made(topic))

    def _grow(self) -> None:
        names = [name for name in self._store if len(self._store[name]) < 5]
        if names:
            topic = self._chance.choice(names)
            count = len(self._store[topic]) + 1
            self._say(Growing(topic, count))
            self._store[topic].add_partitions(count)
            self._say(Grown(topic, count))

    def _drop(self) -> None:
        names = list(self._store)
        if names:
            topic = self._chance.choice(names)
            self._say(Dropping(topic))
            self._store.delete_topic(topic)
            self._say(Dropped(topic))
            self._writers = {key: writer for key, writer in self._writers.items() if key[0] != topic}


def live_on_store(path: str, settings: Settings, life: int, files: Files | None, say: Say) -> None:
    chance = random.Random(life)
    store = logstore.open(path, config=settings.store, files=files)
    say(None)
    writer = StoreWriter(store, life, chance, say)
    for _ in range(chance.choice((20, 1_000))):
        writer.act()
    if chance.random() < 0.5:
        store.close()


def look_at_store(path: str, settings: Settings, *, closely: bool) -> tuple[dict[str, list[Seen]], int]:
    store = logstore.open(path, config=settings.store, clock=_still())
    assert not store.damaged, store.damaged
    seen = {
        topic.name: [Seen(found_in(log), log.durable_offset) for log in topic] for topic in store.values()
    }
    cut_bytes = sum(log.recovery.cut_bytes for topic in store.values() for log in topic)
    if closely:
        for topic in store.values():
            for log, (found, _) in zip(topic, seen[topic.name], strict=True):
                check_lookups(log, found)
                check_sequences(log)
        store.close()
    return seen, cut_bytes


def warm_up(path: str) -> None:
    """Have everything imported before the first fork."""
    Log.open(f"{path}/alone", clock=_still()).close()
    for number, codec in enumerate(sorted(set(CODECS))):
        with logstore.open(f"{path}/{number}", clock=_still()) as store:
            log = store.create_topic("t", config=TopicConfig(compression_type=codec))[0]
            log.extend([bytes(100)] * 9, flush=True)
            assert len(list(log.read())) == 9
