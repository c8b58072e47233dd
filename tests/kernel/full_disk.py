"""Fill a file system to its last byte under a store, and go on.

    unshare -m python -m tests.kernel.full_disk tmpfs 1 /dev/shm/full

A small one that holds nothing but the store and a ballast file, which takes the last bytes that others leave.
The writer appends until it is refused, several times; after each, everything acknowledged is there. Then
retention makes room by itself, without the ballast. Topics are to come, and cannot; those that go make room,
or go without it.
Then the writer is killed on the full disk. With a reserve, it opens the store again there, and makes room.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import sys
from collections.abc import Callable

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import DiskFullError
from logstore.partition.log import Log
from logstore.store import Store
from logstore.testing import ManualClock
from tests.kernel.disks import MIB, LoopDisk, mount
from tests.kernel.victim import Victim, Voice, ask

SIZE_BYTES = {"tmpfs": 3 * MIB, "ext4": 4 * MIB}
SEGMENT_BYTES = 50_000
RESERVE_BYTES = 256 * 1024
CONFIG = StoreConfig(
    linger_ms=0, topic=TopicConfig(segment_bytes=SEGMENT_BYTES, retention_bytes=5 * SEGMENT_BYTES)
)


class FullDisk:
    """A store on a disk that is full whenever it is told to be."""

    def __init__(self, path: str, chance: random.Random) -> None:
        self._ballast = f"{path}/ballast"
        self.store_path = f"{path}/store"
        self.clock = ManualClock()
        self._chance = chance
        self.appended = 0
        self.refused = 0

    def open(self, *, reserve_bytes: int = 0) -> Store:
        config = dataclasses.replace(CONFIG, disk_reserve_bytes=reserve_bytes)
        return logstore.open(self.store_path, config=config, clock=self.clock)

    def fill(self) -> None:
        """Not a byte is left."""
        with open(self._ballast, "ab", buffering=0) as file:
            for size_bytes in (65_536, 512, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size_bytes)):
                        pass

    def drop_ballast(self) -> None:
        os.unlink(self._ballast)

    def value(self, offset: int) -> bytes:
        return b"%d|" % offset + bytes(offset * 7 % 1_500)

    def append(self, log: Log) -> None:
        """In one of the ways that there are."""
        end, value = self.appended, self.value(self.appended)
        way = self._chance.randrange(4)
        if way == 0:
            assert log.append(value, flush=True) == end
        elif way == 1:
            assert log.append(value) == end
        else:
            rows = [self.value(end + number) for number in range(way)]
            assert log.extend(rows, flush=way == 2) == range(end, end + way)
        self.appended = end + max(way, 1)

    def append_until_refused(self, log: Log) -> None:
        for _ in range(100_000):
            try:
                self.append(log)
            except DiskFullError:
                self.refused += 1
                return
        raise AssertionError("the disk does not fill up")

    def check(self, log: Log) -> None:
        """All that was acknowledged is there; nothing else is."""
        start = log.log_start_offset
        values = [record.value for record in log.read()]
        assert values == [self.value(offset) for offset in range(start, self.appended)], (
            f"{len(values)} records from {start}, not up to {self.appended}"
        )


def fill_and_go_on(disk: FullDisk) -> None:
    """A full disk refuses; room lets the writer go on, whoever makes it."""
    store = disk.open()
    log = store.create_topic("t")[0]
    while log.segment_count < 12:
        disk.append(log)
    log.flush()
    disk.fill()
    for _ in range(5):
        disk.append_until_refused(log)
        disk.check(log)
    disk.drop_ballast()
    disk.append(log)
    log.flush()
    disk.fill()
    disk.append_until_refused(log)
    before = log.log_start_offset
    store.enforce_retention()
    assert log.log_start_offset > before, "retention makes no room on a full disk"
    disk.clock.advance(61_000)  # until readers in other processes have had their time
    store.run_background()
    for _ in range(20):
        disk.append(log)
    log.flush()
    disk.check(log)
    disk.fill()
    with contextlib.suppress(DiskFullError):  # nothing that was acknowledged depends on a clean stop
        store.close()
    disk.drop_ballast()


def change_topics(disk: FullDisk) -> int:
    """Topics can neither come nor change on a full disk, and what is refused leaves no trace. Deleting one
    makes the room that it needs, and so does deleting records. Returns how many changes were refused."""
    store = disk.open()
    doomed = store.create_topic("doomed", partitions=2)
    shrinking = store.create_topic("shrinking")[0]
    rows = [bytes(1_000)] * 300
    doomed[1].extend(rows, flush=True)
    shrinking.extend(rows, flush=True)
    disk.fill()
    changes: list[Callable[[], object]] = [
        lambda: store.create_topic("new"),
        lambda: store.require_topic("new"),
        lambda: doomed.add_partitions(3),
        lambda: doomed.configure(TopicConfig(retention_ms=1)),
    ]
    for change in changes:
        try:
            change()
        except DiskFullError:
            continue
        raise AssertionError("a topic changed on a full disk")
    assert sorted(store) == ["doomed", "shrinking", "t"]
    assert [len(list(log.read())) for log in (*doomed, shrinking)] == [0, len(rows), len(rows)]
    store.delete_topic("doomed")
    assert sorted(store) == ["shrinking", "t"]
    disk.fill()
    shrinking.delete_before(len(rows))
    disk.clock.advance(61_000)  # until readers in other processes have had their time
    store.run_background()
    store.delete_topic("shrinking")
    assert list(store) == ["t"]
    disk.drop_ballast()
    store.close()
    return len(changes)


def delete_without_room(disk: FullDisk) -> None:
    """Topics that make less room than the list of topics takes are deleted, too, and stay so."""
    names = [f"many-{number}" for number in range(40)]
    store = disk.open()
    store.create_topics(dict.fromkeys(names, 1))
    left = sorted([*names[5:], "t"])
    for name in names[:5]:
        disk.fill()
        store.delete_topic(name)
    disk.fill()
    assert sorted(store) == left
    with logstore.open(disk.store_path, read_only=True) as reader:
        assert sorted(reader) == left
    with contextlib.suppress(DiskFullError):
        store.close()
    store = disk.open()
    assert (sorted(store), store.damaged) == (left, {})
    disk.drop_ballast()
    for name in names[5:]:
        store.delete_topic(name)
    store.close()


def come_back(disk: FullDisk) -> tuple[bool, int]:
    """Open what a dead writer left on a full disk, make room, and go on. Returns whether there was no room to
    open it, and where it ends now."""
    was_refused = True
    try:
        store = disk.open()
    except DiskFullError:
        disk.drop_ballast()
        store = disk.open()
    else:
        disk.drop_ballast()
        was_refused = bool(store.damaged)
        for partition, error in store.damaged.items():
            assert isinstance(error, DiskFullError), error
            store[partition.topic].reopen(partition.partition)
    assert not store.damaged
    log = store["t"][0]
    disk.check(log)
    disk.append(log)
    store.enforce_retention()
    store.close()
    return was_refused, disk.appended


def die_full(disk: FullDisk) -> bool:
    """A writer that is killed on a full disk leaves what was acknowledged. Returns whether the disk had room
    enough to be opened for writing."""

    def live(say: Voice) -> None:
        store = disk.open()
        log = store["t"][0]
        disk.append(log)
        disk.fill()
        disk.append_until_refused(log)
        say(disk.appended)

    (disk.appended,) = Victim(live).stop_itself()

    def read() -> None:
        with logstore.open(disk.store_path, read_only=True) as store:
            disk.check(store["t"][0])

    ask(read)
    was_refused, disk.appended = ask(lambda: come_back(disk))
    return bool(was_refused)


def come_back_without_room(disk: FullDisk, *, is_killed: bool) -> None:
    """With a reserve a store is opened on the full disk where its writer ended, and deleting makes room."""

    def live(say: Voice) -> None:
        store = disk.open(reserve_bytes=RESERVE_BYTES)
        log = store["t"][0]
        for _ in range(100):
            disk.append(log)
        disk.fill()
        disk.append_until_refused(log)
        say(disk.appended)
        if not is_killed:
            store.close()
            disk.fill()

    (disk.appended,) = Victim(live).stop_itself()
    for _ in range(2):  # the second time with what the first one has left of the reserve

        def look() -> None:
            with disk.open(reserve_bytes=RESERVE_BYTES) as store:
                assert not store.damaged
                disk.check(store["t"][0])
                disk.fill()

        ask(look)

    def delete() -> int:
        store = disk.open(reserve_bytes=RESERVE_BYTES)
        log = store["t"][0]
        log.delete_before(disk.appended - 10)
        disk.clock.advance(61_000)  # until readers in other processes have had their time
        store.run_background()
        disk.append(log)
        disk.check(log)
        store.close()
        return disk.appended

    disk.appended = ask(delete)
    disk.drop_ballast()


def main() -> None:
    kind, seed, directory = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    os.makedirs(directory, exist_ok=True)
    path = f"{directory}/{kind}"
    if kind == "tmpfs":
        os.mkdir(path)
        mount("none", path, "tmpfs", f"size={SIZE_BYTES[kind]}")
    else:
        path = LoopDisk(directory, kind, SIZE_BYTES[kind]).path
    disk = FullDisk(path, random.Random(seed))
    fill_and_go_on(disk)
    refused_changes = change_topics(disk)
    delete_without_room(disk)
    refused_opens = sum(die_full(disk) for _ in range(5))
    for is_killed in (True, False, True):
        come_back_without_room(disk, is_killed=is_killed)
    found = {"refused": disk.refused, "opens": refused_opens, "changes": refused_changes}
    print(json.dumps({"records": disk.appended, **found}))


if __name__ == "__main__":
    main()
