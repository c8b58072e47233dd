"""Let a real device refuse writes under a store, reopen, go on, and look at what a new mount finds.

    unshare -m python -m tests.kernel.failing_disk ext4 20 1 /dev/shm/failing

Blocks that were never written cannot be written for a while: an fsync fails, and the system takes the pages
for clean. The log is reopened, by its own process or by another one, before and after the device is well
again; what is acknowledged then must be there when the file system has been mounted anew, or its power cut.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from typing import Any, NamedTuple

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import LogstoreError, StorageError
from logstore.partition.log import Log
from logstore.store import Store
from tests.kernel.disks import MIB, FailingDisk
from tests.kernel.victim import Failed, Victim, Voice, ask

SIZE_BYTES = {"ext4": 96 * MIB, "xfs": 300 * MIB}
VALUE_BYTES = {"small": 150, "large": 200_000}
_MOST_BYTES = 8 * MIB  # while it fails: some blocks may have been written, and be free again


class Appending(NamedTuple):
    """Offsets from ``start`` to ``stop`` get records of a life's ``number``-th append; a refused one may
    have written the first of them. What was at or above ``start`` before is not there any more."""

    start: int
    stop: int
    number: int


class Durable(NamedTuple):
    """The log has called this durable."""

    end: int


class Refused(NamedTuple):
    """An fsync failed."""

    errno: int


class Round:
    """A store on a disk that fails for a while."""

    def __init__(self, disk: FailingDisk, seed: int) -> None:
        self.disk = disk
        self.path = f"{disk.path}/{seed}"
        self.chance = random.Random(seed)
        self.size = self.chance.choice(list(VALUE_BYTES))
        self._segment_bytes = self.chance.choice([300_000, 2 * MIB, 64 * MIB])
        self._appends = 0
        self._store: Store | None = None

    def open(self) -> Store:
        topic = TopicConfig(segment_bytes=self._segment_bytes)
        return logstore.open(self.path, config=StoreConfig(linger_ms=0, topic=topic))

    def value(self, offset: int, number: int) -> bytes:
        size_bytes = (offset * 2_654_435_761 + number) % VALUE_BYTES[self.size]
        return b"%d/%d|" % (offset, number) + bytes(size_bytes)

    def append(self, log: Log, say: Voice) -> None:
        start = log.log_end_offset
        self._appends += 1
        count = self.chance.randrange(1, 8)
        say(Appending(start, start + count, self._appends))
        log.extend([self.value(start + at, self._appends) for at in range(count)])

    def append_until_refused(self, log: Log, say: Voice) -> bool:
        until = log.size_bytes + _MOST_BYTES
        while log.size_bytes < until:
            try:
                for _ in range(self.chance.randrange(1, 4)):
                    self.append(log, say)
                log.flush()
                say(Durable(log.durable_offset))
            except StorageError as error:
                say(Refused(error.errno or 0))
                return True
        return False

    def life(self, say: Voice) -> None:
        self._store = self.open()
        log = self._store.create_topic("t")[0]
        self.append_some(log, say)
        for _ in range(self.chance.choice([1, 1, 2])):
            self.disk.fail()
            self.append_until_refused(log, say)
            if self.chance.random() < 0.5:
                with contextlib.suppress(LogstoreError):
                    self.append_until_refused(self.reopen(say), say)
            self.disk.heal()
            log = self.reopen(say)
            self.append_some(log, say)
        if self._store is not None and self.chance.random() < 0.3:
            self._store.close()

    def append_some(self, log: Log, say: Voice) -> None:
        for _ in range(self.chance.randrange(1, 20)):
            self.append(log, say)
        log.flush()
        say(Durable(log.durable_offset))

    def reopen(self, say: Voice) -> Log:
        """By a call, or as another process does it."""
        if self._store is None or self.chance.random() < 0.5:
            store, self._store = self._store, None
            with contextlib.suppress(LogstoreError):
                if store is not None:
                    store.close()
            self._store = self.open()
            for error in self._store.damaged.values():
                raise error
        else:
            self._store["t"].reopen(0)
        log = self._store["t"][0]
        say(Durable(log.durable_offset))
        return log

    def check(self, said: list[Any]) -> dict[str, int]:
        """What was called durable is there, and what is there is sound."""
        values: dict[int, int] = {}
        durable = 0
        for word in said:
            if isinstance(word, Appending):
                assert word.start >= durable, f"appended at {word.start} when {durable} was durable"
                for offset in range(word.start, word.stop):
                    values[offset] = word.number
            elif isinstance(word, Durable):
                assert word.end >= durable, f"durable up to {word.end}, and was up to {durable}"
                durable = word.end

        def look() -> dict[str, int]:
            with self.open() as store:
                assert not store.damaged, store.damaged
                log = store["t"][0]
                found = {record.offset: record.value for record in log.read()}
                lost = [offset for offset in range(durable) if offset not in found]
                assert not lost, f"{len(lost)} of {durable} are gone, from {lost[0]} on"
                for offset, value in found.items():
                    assert value == self.value(offset, values[offset]), f"{offset} is {value[:20]!r}"
                assert store.verify().is_sound
            return {"durable": durable, "found": len(found)}

        return ask(look)


def try_round(directory: str, kind: str, seed: int) -> dict[str, Any]:
    """On a disk of its own: one whose journal has failed is not to be relied on any more."""
    os.mkdir(directory)
    disk = FailingDisk(directory, kind, SIZE_BYTES[kind])
    try:
        return try_on_disk(disk, seed)
    finally:
        disk.close()
        shutil.rmtree(directory)


def try_on_disk(disk: FailingDisk, seed: int) -> dict[str, Any]:
    attempt = Round(disk, seed)
    os.mkdir(attempt.path)
    os.sync()  # that there is a directory is not the library's to promise
    said = Victim(attempt.life).stop_itself()
    disk.heal()
    is_cut = attempt.chance.random() < 0.5
    if is_cut:
        disk.shut_down()
    disk.power_up()
    failed = [word.trace for word in said if isinstance(word, Failed) and not word.is_of_disk]
    assert not failed, failed[0]
    found = attempt.check(said)
    refused = sum(isinstance(word, Refused) for word in said)
    is_stuck = any(isinstance(word, Failed) for word in said)
    return {"refused": refused, "is_stuck": is_stuck, "is_cut": is_cut, "size": attempt.size, **found}


def main() -> None:
    kind, rounds, seed, directory = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    os.makedirs(directory, exist_ok=True)
    started = time.perf_counter()
    rows, lost = [], []
    for number in range(seed, seed + rounds):
        try:
            rows.append(try_round(f"{directory}/{number}", kind, number))
        except AssertionError as error:
            lost.append(f"round {number}: {str(error).splitlines()[-1]}")
    figures = {
        "rounds": rounds,
        "lost": lost,
        "refused": sum(row["refused"] for row in rows),
        "stuck": sum(row["is_stuck"] for row in rows),
        "durable": sum(row["durable"] for row in rows),
        "sizes": Counter(row["size"] for row in rows),
        "seconds": round(time.perf_counter() - started, 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
