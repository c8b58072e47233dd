"""Random histories of a topic at a cluster: what producers, transactions, compaction, deletion and new
leaders leave in its logs."""

from __future__ import annotations

import random
from typing import Any

from logstore.format.header import decode_header
from logstore.model import Isolation, ProducerIdentity


class History:
    """Does one thing after another to the logs of a topic."""

    def __init__(self, topic: Any, chance: random.Random, *, compacts: bool) -> None:
        self.topic = topic
        self.chance = chance
        self.compacts = compacts
        self.sequences: dict[tuple[int, int], int] = {}
        self.open: set[tuple[int, int]] = set()
        self.number = 0

    def go_on(self, count: int) -> None:
        for _ in range(count):
            log = self.chance.choice(list(self.topic))
            step = self.chance.choices(
                [self.plain, self.transactional, self.end, self.lead, self.roll, self.shorten],
                [6, 6, 4, 1, 2, 1],
            )[0]
            step(log)

    def end_all(self) -> None:
        for log in self.topic:
            for producer, (epoch, _) in log.open_transactions().items():
                log.append_end_marker(producer, epoch, committed=self.chance.random() < 0.5)

    def records(self) -> list[Any]:
        found = []
        for _ in range(self.chance.randrange(1, 12)):
            self.number += 1
            key = b"k%d" % self.chance.randrange(8)
            value = None if self.chance.random() < 0.1 else b"%d" % self.number * self.chance.randrange(1, 9)
            headers = [("h", b"%d" % self.number)] if self.chance.random() < 0.3 else []
            found.append((key, value, 1_700_000_000_000 + self.chance.randrange(10**6), headers))
        return found

    def plain(self, log: Any) -> None:
        log.extend(self.records())

    def transactional(self, log: Any) -> None:
        producer = self.chance.randrange(1, 4)
        at = log.partition.partition, producer
        records, sequence = self.records(), self.sequences.get(at, 0)
        log.extend(records, producer=ProducerIdentity(producer, 0, sequence, True))
        self.sequences[at] = sequence + len(records)

    def end(self, log: Any) -> None:
        for producer, (epoch, _) in log.open_transactions().items():
            log.append_end_marker(producer, epoch, committed=self.chance.random() < 0.6)

    def lead(self, log: Any) -> None:
        """Another leader."""
        log.assign_leader_epoch(log.leader_epoch + self.chance.randrange(1, 3))

    def roll(self, log: Any) -> None:
        log.roll()
        if self.compacts:
            log.compact(now=True)

    def shorten(self, log: Any) -> None:
        """Its beginning is deleted, at times inside a batch. Not that of an open transaction: the cluster
        would remember it, and no copy could."""
        if log.config.deletes and self.chance.random() < 0.5:
            room = log.last_stable_offset - log.log_start_offset
            log.delete_before(log.log_start_offset + self.chance.randrange(room // 3 + 1))

    def lose(self, log: Any) -> None:
        """An unclean election: the new leader does not have the last records."""
        room = log.log_end_offset - log.log_start_offset
        log.truncate_to(log.log_end_offset - self.chance.randrange(min(room, 30) + 1))
        log.assign_leader_epoch(log.leader_epoch + 1)
        self.sequences.clear()  # its producers begin again


def batches(log: Any) -> list[bytes]:
    """All batches from the log start on, each as it is on disk."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.fetch(offset, isolation=Isolation.LOG_END)
        position = 0
        while position < len(fetched.data):
            size = decode_header(fetched.data, position).size_bytes
            found.append(bytes(fetched.data[position : position + size]))
            position += size
        if fetched.next_offset <= offset:
            break
        offset = fetched.next_offset
    return found


def check_copy(source: Any, copy: Any) -> None:
    """All batches of the source that a copy can have are there, byte for byte, and nothing else."""
    assert len(copy) == len(source)
    for theirs, ours in zip(source, copy, strict=True):
        assert batches(ours) == batches(theirs), ours.partition
        assert ours.high_watermark == ours.log_end_offset
        written = {decode_header(batch).partition_leader_epoch for batch in batches(ours)}
        assert written <= {each.epoch for each in ours.epoch_entries}  # which has those of deleted ones, too
        committed = Isolation.COMMITTED
        assert list(ours.read(isolation=committed)) == list(theirs.read(isolation=committed))
        assert ours.verify()
