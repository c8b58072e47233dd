"""Transactions over two partitions and a group's offsets, in sessions: a scenario of the crash explorer.

After a cut and an opening, each transaction is in all of them or in none: those that were committed are, the
one whose commit was under way may be, and no other is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.transactions.config import TransactionConfig
from logstore.config import StoreConfig
from logstore.format.names import TRANSACTIONS_TOPIC
from logstore.model import Isolation, OffsetAndMetadata, TopicPartition
from logstore.testing import ManualClock, MemoryFiles
from tests.broker.rig import T0, T1, Transactional
from tests.crash.scenario import RandomScenario

CONFIG = StoreConfig(log_cleaner_enable=False, num_recovery_threads_per_data_dir=1)
GROUP = "g"
TIMEOUT_MS = 30_000
LINGER_MS = TransactionConfig().end_linger_ms


class Committing(NamedTuple):
    """A commit begins."""

    number: int


class Committed(NamedTuple):
    """A commit has returned: nothing can take it back."""

    number: int


class Found(NamedTuple):
    """A session has found these transactions, and goes on."""

    numbers: tuple[int, ...]


class Holds(NamedTuple):
    """A producer was told its epoch: no other may get it."""

    producer_id: int
    epoch: int


def offset_of(number: int) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offset that a transaction commits. Its metadata says of which: an offset that is above the end of
    its log would be set back after a power cut."""
    return {T0: OffsetAndMetadata(0, metadata=str(number))}


def check(found: Sequence[int], said: Sequence[Any]) -> None:
    """Whether these transactions may be there, and are all."""
    required, _ = promised(said)
    assert set(required) <= set(found), f"{set(required) - set(found)} were committed, and are not there"
    check_visible(found, said)


def check_visible(found: Sequence[int], said: Sequence[Any]) -> None:
    """Whether readers may see these transactions. An open one may hide others from them."""
    possible = {each for numbers in promised(said) for each in numbers}
    assert list(found) == sorted(found), f"{found} are not in order"
    assert set(found) <= possible, f"{set(found) - possible} are there, and were never committed"


def promised(said: Sequence[Any]) -> tuple[list[int], list[int]]:
    """The transactions that must be there, and those that may."""
    required: list[int] = []
    optional: list[int] = []
    for note in said:
        if isinstance(note, Committing):
            optional.append(note.number)
        elif isinstance(note, Committed):
            required.append(note.number)
        elif isinstance(note, Found):
            required, optional = list(note.numbers), []
    return required, optional


class Opened:
    """A store that is open, and its broker: as much of a rig as a producer needs."""

    def __init__(self, files: MemoryFiles) -> None:
        self.clock = ManualClock()
        self.store = logstore.open("/store", files=files, clock=self.clock, config=CONFIG)
        self.broker = self.store._open_broker(self.store._directory)
        self.run()

    def run(self) -> None:
        for _ in range(20):
            if not self.store._directory.context.scheduler.run_due():
                return

    def now(self, pending: Pending[Any]) -> Any:
        result = pending.poll()
        assert result is not None
        return result

    def soon(self, pending: Pending[Any]) -> Any:
        self.run()
        return self.now(pending)

    def committed(self) -> list[int]:
        """The transactions that readers see, which is the same everywhere."""
        found = [self._values(partition) for partition in (T0, T1)]
        assert found[0] == found[1], f"one partition has {found[0]}, the other {found[1]}"
        offset = self.broker.committed.fetch(GROUP).get(T0)
        last = str(found[0][-1]) if found[0] else None
        assert (None if offset is None else offset.metadata) == last, f"the offset is {offset}, not {last}"
        return found[0]

    def _values(self, partition: TopicPartition) -> list[int]:
        log = self.store._directory.log(partition)
        assert log.last_stable_offset == log.log_end_offset, f"a transaction of {partition} hangs"
        return self.visible(partition)

    def visible(self, partition: TopicPartition) -> list[int]:
        """The transactions that readers see while one may be open."""
        log = self.store._directory.log(partition)
        return [int(record.value or b"") for record in log.read(isolation=Isolation.COMMITTED)]

    def start(self, *, takes_epoch: bool = True) -> Transactional:
        producer = Transactional(self, timeout_ms=TIMEOUT_MS, takes_epoch=takes_epoch)  # type: ignore[arg-type]
        assert producer.start() is ErrorCode.NONE
        self.run()
        return producer


class TransactionsSession:
    """One process."""

    def __init__(
        self, files: MemoryFiles, said: Sequence[Any], rng: random.Random, *, takes_epoch: bool
    ) -> None:
        self.rng = rng
        self.say = files.note
        self._files = files
        self._number = 1_000 * len(said)
        self._takes_epoch = takes_epoch
        self._open()

    def _open(self) -> None:
        self.opened = Opened(self._files)
        if "t" not in self.opened.store:
            self.opened.store.create_topic("t", partitions=2)
        self.restart()
        self.say(Found(tuple(self.opened.committed())))

    def send(self) -> None:
        """The whole transaction, or more records of it."""
        producer = self.producer
        if not self.is_open:
            self._number += 1
            self.is_open = True
            for partition in self.rng.sample([T0, T1], 2):
                assert producer.send(b"%d" % self._number, to=partition) is ErrorCode.NONE
            assert producer.commit_offsets(GROUP, offset_of(self._number)) is ErrorCode.NONE
        if self.rng.random() < 0.3:
            self.opened.store._directory.log(self.rng.choice([T0, T1])).flush()

    def commit(self) -> None:
        self.send()
        self.say(Committing(self._number))
        assert self.producer.end() is ErrorCode.NONE
        self.say(Committed(self._number))
        self._say_epoch()
        self.is_open = False
        if self.rng.random() < 0.5:
            self.opened.run()

    def abort(self) -> None:
        if self.is_open:
            assert self.producer.end(committed=False) is ErrorCode.NONE
            self.is_open = False

    def restart(self) -> None:
        """Another producer takes the id."""
        self.producer = self.opened.start(takes_epoch=self._takes_epoch)
        self.is_open = False
        self._say_epoch()

    def _say_epoch(self) -> None:
        self.say(Holds(self.producer.producer_id, self.producer.epoch))

    def time_out(self) -> None:
        if self.is_open:
            self.opened.clock.advance(TIMEOUT_MS + 10_001)
            self.opened.run()
            assert self.producer.end() is ErrorCode.PRODUCER_FENCED
            self.restart()

    def rest(self) -> None:
        """Nothing comes for so long that the end of the last transaction is stored."""
        self.opened.clock.advance(LINGER_MS)
        self.opened.run()

    def compact(self) -> None:
        self.opened.store[TRANSACTIONS_TOPIC][0].compact(now=True)

    def checkpoint(self) -> None:
        self.opened.store.checkpoint()

    def reopen(self) -> None:
        self.opened.store.close()
        self._open()


ACTIONS: dict[str, tuple[int, Callable[[TransactionsSession], None]]] = {
    "send": (3, TransactionsSession.send),
    "commit": (6, TransactionsSession.commit),
    "abort": (3, TransactionsSession.abort),
    "restart": (1, TransactionsSession.restart),
    "time out": (1, TransactionsSession.time_out),
    "rest": (1, TransactionsSession.rest),
    "compact": (1, TransactionsSession.compact),
    "checkpoint": (1, TransactionsSession.checkpoint),
    "reopen": (1, TransactionsSession.reopen),
}


class TransactionsScenario(RandomScenario):
    """Sessions of transactions."""

    table = ACTIONS
    first = ("commit",)

    def __init__(self, *, actions: Sequence[str] = (), length: int = 8, takes_epoch: bool = True) -> None:
        """``takes_epoch``: each transaction has an epoch of its own (KIP-890)."""
        super().__init__(actions=actions, length=length)
        self._takes_epoch = takes_epoch

    def begin(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> TransactionsSession:
        return TransactionsSession(files, said, rng, takes_epoch=self._takes_epoch)

    def check_state(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        opened = Opened(files)
        if "t" not in opened.store:
            opened.store.create_topic("t", partitions=2)
        for partition in (T0, T1):
            check_visible(opened.visible(partition), said)
        producer = opened.start()  # which ends what was open
        for note in said:
            if isinstance(note, Holds) and note.producer_id == producer.producer_id:
                assert producer.epoch > note.epoch, (
                    f"{note} was told, and the next producer has {producer.epoch}"
                )
        found = opened.committed()
        check(found, said)
        for partition in (T0, T1):
            assert producer.send(b"%d" % 10**9, to=partition) is ErrorCode.NONE
        assert producer.commit_offsets(GROUP, offset_of(10**9)) is ErrorCode.NONE
        assert producer.end() is ErrorCode.NONE
        assert opened.committed() == [*found, 10**9]
        opened.store.close()
