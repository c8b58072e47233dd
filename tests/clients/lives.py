"""What a process does until it is killed: producers, the members of two groups, and a housekeeper, as threads
on one directory. Everything that may count later is said: before it is done, or when it has been promised.

What is said is in the kernel's hands, so it stands for the effects of a consumer's work, which outlive it.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import logstore
from logstore.broker.local import LocalBroker
from logstore.clock import SystemClock
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import RetriableError, StorageError
from logstore.files import Files
from logstore.format.names import OFFSETS_TOPIC
from logstore.model import Record
from logstore.store import Store
from logstore.testing import ManualClock
from tests.kernel.victim import Failed

Say = Callable[[Any], None]

TOPIC = "orders"
PARTITION_COUNT = 3
LEAST = "at least once"
MOST = "at most once"
SIDE = "side"
"""A group that comes and goes, beside the two that are checked."""
LIFE_SECONDS = 0.25
DRAIN_SECONDS = 20


class Delivered(NamedTuple):
    """A record was acknowledged."""

    partition: int
    offset: int
    value: bytes


class Committing(NamedTuple):
    """The group may have these offsets from now on."""

    group: str
    offsets: dict[int, int]


class Committed(NamedTuple):
    """The group has these offsets, or later ones."""

    group: str
    offsets: dict[int, int]


class Done(NamedTuple):
    """The work on a record is done, for good."""

    group: str
    partition: int
    offset: int
    value: bytes


class Origin(NamedTuple):
    """What a value says of itself."""

    life: int
    producer: str
    key: str
    number: int
    """Counts the records that a producer sends with the key."""

    def value(self, size_bytes: int) -> bytes:
        return f"{self.life} {self.producer} {self.key} {self.number} ".encode().ljust(size_bytes, b".")

    @classmethod
    def of(cls, value: bytes) -> Origin:
        life, producer, key, number, _ = value.decode().split(" ")
        return cls(int(life), producer, key, int(number))


class Settings(NamedTuple):
    """How one directory is used by all its processes."""

    store: StoreConfig
    assignor: str
    are_static: bool
    """Whether the members have a ``group_instance_id``."""

    @classmethod
    def draw(cls, chance: random.Random) -> Settings:
        topic = TopicConfig(
            segment_bytes=chance.choice((4_000, 300_000)),
            flush_ms=chance.choice((1, 10, 1_000)),
            file_delete_delay_ms=chance.choice((0, 60_000)),
        )
        store = StoreConfig(
            topic=topic,
            log_cleaner_enable=chance.random() < 0.5,
            log_flush_offset_checkpoint_interval_ms=chance.choice((2, 20, 60_000)),
        )
        assignor = chance.choice(("cooperative-sticky", "sticky", "range", "roundrobin"))
        return cls(store, assignor, chance.random() < 0.25)


def live(path: str, settings: Settings, life: int, files: Files | None, say: Say) -> None:
    """Produce and consume for a while; then die, maybe in the middle of a clean stop."""
    chance = random.Random(life)
    store = logstore.open(path, config=settings.store, files=files)
    store.require_topic(TOPIC, partitions=PARTITION_COUNT)
    say(None)
    stop = threading.Event()
    work: list[Callable[[], None]] = [
        functools.partial(_produce, store, acks, life, _fork(chance), say, stop) for acks in (1, "all")
    ]
    for group in (LEAST, MOST):
        for number in range(2):
            member = Member(store, group, f"{group} {number}", settings, _fork(chance), say)
            work.append(functools.partial(member.work, stop))
    work.append(functools.partial(_keep_house, store, _fork(chance), stop))
    threads = [threading.Thread(target=_or_die, args=(each, say), daemon=True) for each in work]
    for thread in threads:
        thread.start()
    stop.wait(LIFE_SECONDS)
    stop.set()
    if chance.random() < 0.5:
        for thread in threads:
            thread.join()
        store.close()


def drain(path: str, settings: Settings, say: Say) -> None:
    """Let the groups work on everything that is there."""
    with logstore.open(path, config=settings.store) as store:
        until = time.monotonic() + DRAIN_SECONDS
        for group in (LEAST, MOST):
            members = [
                Member(store, group, f"{group} {number}", settings, random.Random(number), say, tires=False)
                for number in range(2)
            ]
            while any(members[0].lag().values()):
                assert time.monotonic() < until, f"{group!r} does not get to the end: {members[0].lag()}"
                for member in members:
                    member.step(0.002)
            for member in members:
                member.consumer.close()


def warm_up(path: str) -> None:
    """Have everything imported before the first fork, without a thread."""
    with logstore.open(path, clock=_still()) as store:
        store.create_topic(TOPIC)
        with store.producer(acks=1) as producer:
            for codec in ("lz4", "zstd"):
                with store.producer(acks=1, compression=codec) as other:
                    other.send(TOPIC, b"v")
            producer.send(TOPIC, b"v", key=b"k")
        with store.consumer(TOPIC, group=LEAST) as consumer:
            assert len(consumer.poll(timeout=0)) > 0
            consumer.commit()
        store[OFFSETS_TOPIC][0].compact(now=True)


def _still() -> ManualClock:
    """Nothing happens in the background."""
    return ManualClock(SystemClock().now_ms())


def _fork(chance: random.Random) -> random.Random:
    return random.Random(chance.randrange(2**32))


def _or_die(work: Callable[[], None], say: Say) -> None:
    try:
        work()
    except BaseException as error:
        say(Failed(isinstance(error, StorageError), traceback.format_exc()))
        os.kill(os.getpid(), signal.SIGKILL)


# Producing


def _produce(
    store: Store, acks: str | int, life: int, chance: random.Random, say: Say, stop: threading.Event
) -> None:
    numbers: Counter[str] = Counter()

    def tell(value: bytes, delivered: Any, error: Any) -> None:
        failed = Failed(isinstance(error, StorageError), f"{value!r} was not delivered: {error!r}")
        say(Delivered(delivered.partition, delivered.offset, value) if error is None else failed)

    producer = store.producer(
        acks=acks,
        linger_ms=chance.choice((0, 1, 5)),
        batch_size=chance.choice((1, 300, 5_000)),
        compression=chance.choice(("none", "none", "lz4", "zstd")),
    )
    with producer:
        while not stop.is_set():
            for _ in range(chance.randint(1, 12)):
                key = f"k{chance.randrange(6)}"
                value = Origin(life, f"acks={acks}", key, numbers[key]).value(chance.choice((1, 40, 400)))
                numbers[key] += 1
                producer.send(TOPIC, value, key=key.encode(), on_delivery=functools.partial(tell, value))
            if chance.random() < 0.2:
                producer.flush()
            time.sleep(chance.choice((0, 0.001, 0.004)))


# Consuming


class Member:
    """A consumer of a group, and what it does with what it reads."""

    def __init__(
        self,
        store: Store,
        group: str,
        name: str,
        settings: Settings,
        chance: random.Random,
        say: Say,
        *,
        tires: bool = True,
    ) -> None:
        """``tires``: does not commit all of its work."""
        self._tires = tires
        self._store = store
        self._group = group
        self._name = name
        self._settings = settings
        self._chance = chance
        self._say = say
        self.consumer = self._join()

    def _join(self) -> Any:
        return self._store.consumer(
            TOPIC,
            group=self._group,
            assignors=[self._settings.assignor],
            heartbeat_interval_ms=self._chance.choice((1, 5, 20)),
            group_instance_id=self._name if self._settings.are_static else None,
        )

    def work(self, stop: threading.Event) -> None:
        """Come and go, until it is to stop."""
        while not stop.is_set():
            left = self._chance.choice((3, 30, 1_000))
            while left and not stop.is_set():
                self.step(0.01)
                left -= 1
            self.consumer.close()
            self.consumer = self._join()
        self.consumer.close()

    def step(self, timeout: float) -> None:
        """Work on some records."""
        found = self.consumer.poll(timeout=timeout, max_records=self._chance.choice((1, 10, 500)))
        if not found:
            return
        if self._group == LEAST:
            self._do(found)
            if not self._tires or self._chance.random() < 0.7:
                self._commit(found)
        elif self._commit(found):
            self._do(found)

    def lag(self) -> dict[int, int]:
        """How far the group is behind the ends of all partitions."""
        offsets = self._store.offsets(self._group)
        lag = {}
        for log in self._store[TOPIC]:
            committed = offsets.get(log.partition)
            lag[log.partition.partition] = log.log_end_offset - (committed.offset if committed else 0)
        return lag

    def _do(self, records: list[Record]) -> None:
        for record in records:
            assert record.partition is not None
            self._say(Done(self._group, record.partition, record.offset, record.value or b""))

    def _commit(self, records: list[Record]) -> bool:
        """Commit behind these records. Returns False if the member may not: they are another's by now."""
        last = records[-1]
        assert last.partition is not None
        self._say(Committing(self._group, {last.partition: last.offset + 1}))
        try:
            self.consumer.commit(
                last if self._chance.random() < 0.5 else {(TOPIC, last.partition): last.offset + 1}
            )
        except RetriableError:
            return False
        self._say(Committed(self._group, {last.partition: last.offset + 1}))
        return True


# Housekeeping


def _keep_house(store: Store, chance: random.Random, stop: threading.Event) -> None:
    broker = store._open_broker(store._directory)  # type: ignore[arg-type]

    def flush() -> None:
        chance.choice(list(store[TOPIC])).flush()

    def roll() -> None:
        chance.choice(list(store.values()))[0].roll()

    def compact() -> None:
        if OFFSETS_TOPIC in store:
            topic = store[OFFSETS_TOPIC]
            if topic.config.segment_bytes > 5_000:
                topic.configure(segment_bytes=5_000)
            topic[0].compact(now=True)

    def commit_aside() -> None:
        store.offsets(SIDE).commit(
            {log.partition: log.log_end_offset for log in store[TOPIC]}, flush=chance.random() < 0.3
        )

    def delete_aside() -> None:
        if chance.random() < 0.5:
            store.offsets(SIDE).delete()
        else:
            broker.delete_groups((SIDE,))

    while not stop.is_set():
        chance.choice((flush, roll, compact, compact, store.checkpoint, commit_aside, delete_aside))()
        time.sleep(chance.choice((0, 0.001, 0.005)))


# Looking at what is left


class Seen(NamedTuple):
    """What a directory has."""

    records: list[list[bytes]]
    """The values of each partition."""
    committed: dict[str, dict[int, int]]
    states: dict[str, str]
    """Group -> its state."""


def look(path: str, settings: Settings, *, closely: bool) -> Seen:
    """What is there. Half of the looks leave the directory as a crash does."""
    store = logstore.open(path, config=settings.store, clock=_still())
    assert not store.damaged, store.damaged
    records: list[list[bytes]] = [[] for _ in range(PARTITION_COUNT)]
    for log in store.get(TOPIC, ()):
        for at, record in enumerate(log.read()):
            assert record.offset == at, f"{log.partition} has no offset {at}"
            records[log.partition.partition].append(record.value or b"")
    committed = {
        group: {each.partition: value.offset for each, value in store.offsets(group).items()}
        for group in (LEAST, MOST)
    }
    broker = LocalBroker(store._directory)  # type: ignore[arg-type]
    described = broker.describe_groups((LEAST, MOST)).poll()
    assert described is not None
    states = {each.group_id: each.state for each in described}
    assert not any(each.error for each in described), described
    if closely:
        broker.close()
        store.close()
    return Seen(records, committed, states)
