"""A store with clients, for which one model of each partition says what every reader must find.

Producers with transactional ids, which overlap, are shut out by their successors, or run out of time; a plain
producer beside them; offsets that are committed in transactions; compaction, deletion, and the end of the
process, clean or killed. What is in a partition behind the records that were sent, the coordinator has put
there: :meth:`Store.learn_markers` reads it, and holds it against what was to come.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import logstore
from logstore.clients.producer import Producer
from logstore.clients.transactions.transaction import Transaction
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import ProducerFencedError
from logstore.format.batch import decode_batch
from logstore.format.control import ControlType, decode_control_record
from logstore.format.loops import scan_batches
from logstore.format.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from logstore.model import Isolation, Record, TimestampType, TopicPartition
from logstore.partition.reading.readable import ReadableLog
from logstore.testing import ManualClock
from tests.differential.checks import check_log
from tests.differential.model import Model
from tests.logdir.helpers import QuickFiles

Place = tuple[int | None, int, bytes | None]
"""Partition, offset and value of a record."""

PARTITIONS = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))
COMPACTED = PARTITIONS[2]
IDS = ("x", "y", "z")
KEYS = (b"k0", b"k1", b"k2")
TIMEOUT_MS = 600_000
SMALL = {"segment_bytes": 600, "index_interval_bytes": 100, "file_delete_delay_ms": 0, "retention_ms": -1}
CONFIG = StoreConfig(log_cleaner_enable=False, batch_cache_bytes=0)


class Partition:
    """What is known of one."""

    def __init__(self, clock: ManualClock, chance: random.Random) -> None:
        self.model = Model()
        self.clock = clock
        self.chance = chance


class Open:
    """The open transaction of an id."""

    def __init__(self) -> None:
        self.partitions: set[TopicPartition] = set()
        self.offsets: dict[TopicPartition, int] = {}

    @property
    def is_known(self) -> bool:
        """To the coordinator: it has got something."""
        return bool(self.partitions or self.offsets)


class Owner:
    """The producer that has an id, and its transaction."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.transaction: Transaction | None = None


class Store:
    """A store, its clients, and the models."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.clock = ManualClock()
        self._chance = random.Random(seed)
        self.partitions = {each: Partition(self.clock, self._chance) for each in PARTITIONS}
        self.open: dict[str, Open] = {}
        """Of each id: its open transaction, which outlives its producer."""
        self.owners: dict[str, Owner] = {}
        self.offsets: dict[str, dict[TopicPartition, int]] = {name: {} for name in IDS}
        """What the group of each id has committed."""
        self.shut_out: list[Owner] = []
        self._number = 0
        self._open()
        self._watcher = logstore.open(str(path), read_only=True)

    def _open(self) -> None:
        self.store = logstore.open(str(self.path), clock=self.clock, files=QuickFiles(), config=CONFIG)
        self.store.require_topic("a", partitions=2, config=TopicConfig(**SMALL))
        self.store.require_topic("b", config=TopicConfig(cleanup_policy="compact", **SMALL))
        self._plain = self.store.producer(acks=1)
        self.owners.clear()
        self.shut_out.clear()

    def log(self, partition: TopicPartition) -> logstore.Log:
        return self.store[partition.topic][partition.partition]

    def end(self) -> None:
        self._watcher.close()
        self.store.close()

    # Records

    def _new(self, partition: TopicPartition, key: bytes, size: int) -> dict[str, Any]:
        self._number += 1
        return {
            "value": b"%d" % self._number + b"." * size,
            "key": key,
            "partition": partition.partition,
            "timestamp_ms": self.clock.now_ms(),
        }

    def _note(self, partition: TopicPartition, new: Mapping[str, Any], name: str | None = None) -> None:
        model = self.partitions[partition].model
        record = Record(
            model.end,
            new["timestamp_ms"],
            new["key"],
            new["value"],
            (),
            topic=partition.topic,
            partition=partition.partition,
            timestamp_type=TimestampType.CREATE_TIME,
            leader_epoch=self.log(partition).leader_epoch,
        )
        model.add(record, None if name is None else IDS.index(name))

    def send_plain(self, partition: TopicPartition, key: bytes, size: int) -> None:
        new = self._new(partition, key, size)
        sent = self._plain.send(partition.topic, **new)
        self._plain.flush()
        assert sent.result(0).offset == self.partitions[partition].model.end
        self._note(partition, new)

    def send(self, name: str, partition: TopicPartition, key: bytes, size: int) -> None:
        """In the transaction of the id, which begins with it."""
        producer = self._begin(name).producer
        new = self._new(partition, key, size)
        sent = producer.send(partition.topic, **new)
        self._settle(producer)
        assert sent.result(0).offset == self.partitions[partition].model.end
        self.open[name].partitions.add(partition)
        self._note(partition, new, name)

    def commit_offset(self, name: str, partition: TopicPartition) -> None:
        """Commit the end of a partition with the transaction."""
        transaction = self._begin(name).transaction
        assert transaction is not None
        offset = self.partitions[partition].model.end
        transaction.commit_offsets(name, {partition: offset})
        self.open[name].offsets[partition] = offset

    def _begin(self, name: str) -> Owner:
        owner = self.owners.get(name) or self.start(name)
        if owner.transaction is None:
            owner.transaction = owner.producer.transaction().__enter__()
            self.open[name] = Open()
        return owner

    def _settle(self, producer: Producer) -> None:
        """Have everything sent and answered."""
        for _ in range(20):
            producer.run_due()
            self.store.run_background()

    # Ends

    def start(self, name: str) -> Owner:
        """A producer takes the id: who had it is shut out, and the open transaction aborted."""
        before = self.owners.pop(name, None)
        self.owners[name] = Owner(
            self.store.producer(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS, linger_ms=0)
        )
        self.learn_markers({name: False})
        if before is not None:
            self.shut_out.append(before)
        return self.owners[name]

    def finish(self, name: str, *, committed: bool) -> None:
        """Commit or abort, if a transaction is open."""
        owner = self.owners.get(name)
        if owner is not None and owner.transaction is not None:
            (owner.transaction.commit if committed else owner.transaction.abort)()
            owner.transaction = None
            self.learn_markers({name: committed})

    def use_one_that_is_shut_out(self) -> None:
        """Whatever it does, nothing of it is seen."""
        if not self.shut_out:
            return
        owner = self.shut_out.pop(self._chance.randrange(len(self.shut_out)))
        try:
            transaction = owner.transaction or owner.producer.transaction().__enter__()
            owner.producer.send("a", **self._new(PARTITIONS[0], b"k", 0))
            self._settle(owner.producer)
            (transaction.commit if self._chance.random() < 0.7 else transaction.abort)()
        except ProducerFencedError:
            pass
        else:  # an abort of what is aborted
            assert owner.producer.is_fenced
        self.learn_markers({})

    def time_out(self) -> None:
        """Let so much time pass that open transactions are aborted."""
        self.clock.advance(TIMEOUT_MS + 10_001)
        for _ in range(5):
            self.store.run_background()
        late = [name for name, open_now in self.open.items() if open_now.is_known]
        self.learn_markers(dict.fromkeys(late, False))
        for name in late:
            owner = self.owners.pop(name, None)
            if owner is not None:
                self.shut_out.append(owner)

    def learn_markers(self, ends: Mapping[str, bool]) -> None:
        """These transactions have ended, committed or not: their markers are in all of their partitions, in
        any order, and nothing else is."""
        owners = {each.producer_id: each.transactional_id for each in self.store.transactions()}
        ended = {
            name: (self.open.pop(name), committed) for name, committed in ends.items() if name in self.open
        }
        for each, partition in self.partitions.items():
            expected = Counter(
                (name, committed)
                for name, (transaction, committed) in ended.items()
                if each in transaction.partitions
            )
            found = list(_markers(self.log(each), partition.model.end))
            assert Counter((owners[of], committed) for _, of, committed in found) == expected, (each, found)
            for offset, producer_id, committed in found:
                partition.model.mark(offset, IDS.index(owners[producer_id] or ""), is_commit=committed)
        for name, (transaction, committed) in ended.items():
            if committed:
                self.offsets[name] |= transaction.offsets

    # What else happens

    def let_time_pass(self) -> None:
        self.clock.advance(1_000)
        self.store.run_background()

    def compact(self) -> None:
        for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            if name in self.store:
                self.store[name][0].compact(now=True)
        log = self.log(COMPACTED)
        log.compact(now=True)
        self.partitions[COMPACTED].model.compact(list(log.read(isolation=Isolation.LOG_END)))

    def delete_before(self, partition: TopicPartition, count: int) -> None:
        model = self.partitions[partition].model
        if partition != COMPACTED:
            model.start = min(model.start + count, model.end)
            self.log(partition).delete_before(model.start)

    def roll(self, partition: TopicPartition) -> None:
        self.log(partition).roll()

    def reopen(self, *, killed: bool) -> None:
        """A clean end aborts the open transactions; those of a process that is killed stay open."""
        if killed:
            self.store._directory.abandon()
            self._open()
            self.learn_markers({})
        else:
            names = [name for name, owner in self.owners.items() if owner.transaction is not None]
            self.store.close()
            self._open()
            self.learn_markers(dict.fromkeys(names, False))

    # Looking

    def check(self) -> int:
        """Read everything in every way; returns the number of reads."""
        with logstore.open(str(self.path), read_only=True) as fresh:
            count = sum(
                check_log(self.partitions[each], store[each.topic][each.partition])
                for store in (self.store, self._watcher, fresh)
                for each in PARTITIONS
            )
            for store in (self.store, fresh):
                count += self._check_topics(store)
                for name in IDS:
                    committed = {each: value.offset for each, value in store.offsets(name).items()}
                    assert committed == self.offsets[name], (name, committed)
        self._check_consumers()
        self._check_statuses()
        return count + 2

    def _check_topics(self, store: logstore.Store) -> int:
        for isolation in (Isolation.LOG_END, Isolation.COMMITTED):
            for name in ("a", "b"):
                expected = self.expected(name, isolation)
                assert sorted(map(_place, store[name].read(isolation=isolation))) == expected
                table = store[name].read_arrow(isolation=isolation, columns=["partition", "offset", "value"])
                rows = sorted((row["partition"], row["offset"], row["value"]) for row in table.to_pylist())
                assert rows == expected
        return 8

    def expected(self, topic: str, isolation: Isolation) -> list[Place]:
        """What readers of the whole topic must get, in order."""
        found = []
        for each, partition in self.partitions.items():
            model = partition.model
            if each.topic == topic:
                found += model.records(model.start, model.limit(isolation), isolation)
        return sorted(map(_place, found))

    def _check_consumers(self) -> None:
        for isolation in (Isolation.HIGH_WATERMARK, Isolation.COMMITTED):
            with self.store.consumer("a", "b", isolation=isolation, auto_offset_reset="earliest") as consumer:
                found = [record for poll in iter(lambda: consumer.poll(timeout=0), []) for record in poll]
            for topic in ("a", "b"):
                of_topic = sorted(_place(record) for record in found if record.topic == topic)
                assert of_topic == self.expected(topic, isolation), isolation

    def _check_statuses(self) -> None:
        """Each id as readers see it: open, or over."""
        states = {each.transactional_id: each for each in self.store.transactions()}
        for name, status in states.items():
            assert name is not None, f"{status} hangs"
            open_now = self.open.get(name)
            if open_now is not None and open_now.is_known:
                offsets = {TopicPartition(OFFSETS_TOPIC, 0)} if open_now.offsets else set()
                assert status.state == "Ongoing", status
                assert set(status.partitions) == open_now.partitions | offsets
            else:
                assert status.state in ("Empty", "CompleteCommit", "CompleteAbort"), status


def _place(record: Record) -> Place:
    return record.partition, record.offset, record.value


def _markers(log: ReadableLog, position: int) -> Iterator[tuple[int, int, bool]]:
    """All from there on: the offset of each marker, the producer id, and whether it commits.

    Raises:
        AssertionError: there are records.
    """
    while position < log.log_end_offset:
        fetched = log.fetch(position, isolation=Isolation.LOG_END)
        for at, header in scan_batches(fetched.data, 0, len(fetched.data), check=True)[0]:
            if header.base_offset >= position:
                assert header.is_control, f"{log.partition} has what was not sent, at {header.base_offset}"
                (record,) = decode_batch(fetched.data, at, header, partition=log.partition)
                is_commit = decode_control_record(record).control_type is ControlType.COMMIT
                yield header.base_offset, header.producer_id, is_commit
        position = fetched.next_offset
