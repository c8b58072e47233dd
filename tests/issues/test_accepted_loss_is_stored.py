"""`topic.reopen(n, accept_loss=True)` cut the log and left the old recovery point on the disk until the next
checkpoint. Readers elsewhere refused the log, or called durable what nobody had flushed; `verify()` reported
a problem; and a process that was killed after a `flush()` left a partition that did not open.

Where the log that was left, as one from a backup, ended below the log start, all of it was removed."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.logdir.helpers import QuickFiles, crash, open_store, values

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import CorruptionError
from logstore.files import Files, OsFiles
from logstore.format.checkpoint import EpochEntry
from logstore.model import Isolation, TopicPartition
from logstore.testing import ManualClock, MemoryFiles
from logstore.testing.crash import CrashStates
from logstore.testing.memory import Image
from logstore.testing.operations import Note

CONFIG = TopicConfig(segment_bytes=800, file_delete_delay_ms=0)
LAST = "00000000000000000024.log"
OLD = [b"old%02d" % number + b"x" * 50 for number in range(30)]


def fill(files: Files, path: str, count: int = 30) -> None:
    with open_store(path, files=files) as store:
        topic = store.create_topic("t", config=CONFIG)
        for value in OLD[:count]:
            topic[0].extend([value])


def change(files: Files, path: str, position: int, data: bytes | None) -> None:
    """Put other bytes into a file; for None, end it there."""
    file = files.open(path, write=True)
    if data is None:
        file.truncate(position)
    else:
        file.write_at(position, [data])
    file.flush()
    file.close()


def lose_directory(files: Files, directory: str) -> None:
    """As the error for a missing one advises: make an empty one."""
    for entry in files.list_directory(directory):
        files.remove(f"{directory}/{entry.name}")
    files.flush_directory(directory)


def lose_segment(files: Files, directory: str) -> None:
    files.remove(f"{directory}/{LAST}")
    files.flush_directory(directory)


LOSSES: dict[str, tuple[Callable[[Files, str], None], int]] = {
    "end cut off": (lambda files, directory: change(files, f"{directory}/{LAST}", 300, None), 26),
    "flipped byte": (lambda files, directory: change(files, f"{directory}/{LAST}", 150, b"\x99"), 25),
    "last segment lost": (lose_segment, 24),
    "empty directory": (lose_directory, 0),
}


@pytest.fixture(params=LOSSES)
def loss(request) -> tuple[Callable[[Files, str], None], int]:
    return LOSSES[request.param]


def test_what_is_flushed_after_an_accepted_loss_survives_a_kill(tmp_path, loss):
    lose, end = loss
    fill(QuickFiles(), str(tmp_path))
    lose(QuickFiles(), str(tmp_path / "t-0"))
    store = open_store(tmp_path)
    with pytest.raises(CorruptionError):
        store["t"][0]
    log = store["t"].reopen(0, accept_loss=True)
    assert log.log_end_offset == log.durable_offset == end
    assert store.verify(), str(store.verify())
    log.extend([b"later"], flush=True)
    crash(store)
    with open_store(tmp_path) as store:
        assert store.damaged == {}
        assert values(store["t"][0]) == [*OLD[:end], b"later"]
        assert store.verify(), str(store.verify())


def test_a_reader_elsewhere_calls_durable_what_is(tmp_path, loss):
    lose, end = loss
    fill(QuickFiles(), str(tmp_path))
    lose(QuickFiles(), str(tmp_path / "t-0"))
    with open_store(tmp_path) as store:
        log = store["t"].reopen(0, accept_loss=True)
        log.extend([b"not flushed"] * 10)
        with open_store(tmp_path, read_only=True) as readers:
            reader = readers["t"][0]
            assert reader.durable_offset == log.durable_offset == end
            assert values(reader, isolation=Isolation.DURABLE) == OLD[:end]
            assert len(values(reader)) == end + 10


def states_of_a_reopen(loss: tuple[Callable[[Files, str], None], int]) -> Iterator[tuple[list[str], Image]]:
    """What power cuts leave during a reopen that accepts a loss, an append and a flush; and what had
    returned by then."""
    files = MemoryFiles()
    fill(files, "/s")
    loss[0](files, "/s/t-0")
    config = StoreConfig(linger_ms=0)
    store = logstore.open("/s", files=files, clock=ManualClock(), config=config)
    first = len(files.trace)
    log = store["t"].reopen(0, accept_loss=True)
    files.note("reopened")
    log.extend([b"later"])
    log.flush()
    files.note("flushed")
    crash(store)
    states, rng, said, seen = CrashStates(Image(), 1), random.Random(1), [], set()
    for point, entry in enumerate(files.trace):
        if isinstance(entry, Note):
            said.append(entry.said)
        else:
            states.follow(entry)
        for choices in states.choices(6, rng) if point >= first else ():
            image = states.image(choices)
            key = len(said), hash(frozenset(image.paths().items()))
            if key not in seen:
                seen.add(key)
                yield list(said), image


def test_power_cuts_leave_the_loss_to_be_accepted_or_accepted(loss):
    end, count = loss[1], 0
    for said, image in states_of_a_reopen(loss):
        count += 1
        for _ in range(2):  # the second time after a kill
            files = MemoryFiles(image)
            store = open_store("/s", files=files)
            if store.damaged:
                assert not said, store.damaged
                store["t"].reopen(0, accept_loss=True)
            found = values(store["t"][0])
            assert found in ([*OLD[:end]], [*OLD[:end], b"later"])
            assert "flushed" not in said or found[-1] == b"later"
            assert store.verify(), str(store.verify())
            crash(store)
            image, said = files.now(), ["reopened"]
    assert count > 20


def replace_by_backup(path: Path, *, delete_before: int, count: int = 30) -> None:
    """`docs/backup.md`, "A single partition". The store had 100 records, and some of them deleted."""
    with open_store(path / "data") as store:
        log = store.create_topic("t", config=CONFIG)[0]
        for value in OLD[:count]:
            log.extend([value])
        store.backup(path / "backup")
        for number in range(count, 100):
            log.extend([b"new%d" % number + b"x" * 50])
        log.delete_before(delete_before)
    shutil.rmtree(path / "data" / "t-0")
    shutil.copytree(path / "backup" / "t-0", path / "data" / "t-0")


@pytest.mark.parametrize("delete_before", [0, 10, 29, 30, 31, 60, 100])
@pytest.mark.parametrize("count", [3, 30])
def test_a_restored_partition_keeps_what_is_there(tmp_path, caplog, delete_before, count):
    replace_by_backup(tmp_path, delete_before=delete_before, count=count)
    is_below = delete_before > count
    expected = OLD[:count] if is_below else OLD[delete_before:count]
    store = open_store(tmp_path / "data")
    with caplog.at_level(logging.WARNING, logger="logstore"):
        log = store["t"].reopen(0, accept_loss=True)
    assert values(log) == expected
    assert ("ignoring the log start" in caplog.text) == is_below
    log.extend([b"later"], flush=True)
    crash(store)
    with open_store(tmp_path / "data") as store:
        assert values(store["t"][0]) == [*expected, b"later"]
        assert store.verify(), str(store.verify())
        assert store["t"][0].log_end_offset == count + 1


@pytest.mark.damaged
def test_a_crash_does_not_bring_the_log_start_back(tmp_path):
    """It is forgotten before the recovery point: else the next open would take the log for one whose records
    were all deleted."""
    replace_by_backup(tmp_path, delete_before=60)
    files = MemoryFiles()
    files.make_directory("/s")
    for path in sorted((tmp_path / "data").rglob("*")):
        name = "/s/" + str(path.relative_to(tmp_path / "data"))
        if path.is_dir():
            files.make_directory(name)
        else:
            file = files.open(name, create=True)
            file.write_at(0, [path.read_bytes()])
            file.flush()
            file.close()
    for name in ("/", "/s", *(f"/s/{entry.name}" for entry in files.list_directory("/s"))):
        if files.is_directory(name):
            files.flush_directory(name)
    store = open_store("/s", files=files)
    first = len(files.trace)
    assert store.damaged.keys() == {TopicPartition("t", 0)}
    store["t"].reopen(0, accept_loss=True)
    crash(store)
    states, rng = CrashStates(Image(), 1), random.Random(1)
    for point, entry in enumerate(files.trace):
        if not isinstance(entry, Note):
            states.follow(entry)
        for choices in states.choices(3, rng) if point >= first else ():
            store = open_store("/s", files=MemoryFiles(states.image(choices)))
            if store.damaged:
                store["t"].reopen(0, accept_loss=True)
            assert values(store["t"][0]) == OLD
            crash(store)


@pytest.mark.damaged
def test_what_comes_back_from_below_the_log_start_has_its_epochs(tmp_path):
    """The history of epochs began at the log start, and ``verify()`` reported what came back as damaged."""
    with open_store(tmp_path) as store:
        log = store.create_topic("t")[0]
        for epoch, value in enumerate(OLD):
            log.assign_leader_epoch(epoch // 10)
            log.extend([value])
        position = log.size_bytes // 2
        log.delete_before(25)
    change(OsFiles(), str(tmp_path / "t-0" / f"{0:020}.log"), position, None)
    with open_store(tmp_path) as store:
        log = store["t"].reopen(0, accept_loss=True)
        assert values(log) == OLD[:15]
        assert log.epoch_entries == (EpochEntry(0, 0), EpochEntry(1, 10))
        assert store.verify(), str(store.verify())
