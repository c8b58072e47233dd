"""A log whose fsync had failed was reopened: its pages were written once more, in place, flushed without an
error, and called durable. On ext4 they were zeros after the next mount: it takes the blocks of a write that
failed for written, keeps them as never written on the disk, and skips what would change that when the same
pages are written again. With a device whose blocks ran out, 34 of 40 rounds lost what the reopened log had
called durable. Such a log is now copied into a new file, which takes the old one's place: new blocks.

The disk in memory knows of such pages since then; `tests/kernel/failing_disk.py` has a real device."""

from __future__ import annotations

import contextlib

import pytest

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import DiskFullError, StorageError
from logstore.files import OsFiles
from logstore.partition.log import Log
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
from logstore.testing.crash import CrashStates
from logstore.testing.operations import Note

PATH = "/t-0"
LOG = f"{PATH}/{0:020}.log"
VALUES = [b"%d|" % number + bytes(1_000) for number in range(12)]


def open_log(files, *, segment_bytes=1_000_000):
    config = TopicConfig(segment_bytes=segment_bytes)
    return Log.open(
        PATH, config=config, files=files, clock=ManualClock(), store_config=StoreConfig(linger_ms=0)
    )


def let_go(log):
    log.abandon()
    log._context.home.release()


def values_of(log):
    return [record.value for record in log.read()]


def power_cuts(memory, seed):
    """What is left after a power cut at the end: of all that was not flushed, nothing or everything."""
    states = CrashStates(memory.image, seed)
    for entry in memory.trace:
        if not isinstance(entry, Note):
            states.follow(entry)
    domains = states.domains()
    for choices in ([0] * len(domains), [len(domain.variants) - 1 for domain in domains]):
        yield MemoryFiles(states.image(choices))


def fail_to_flush(files, *, segment_bytes, durable_count=0, appended=VALUES):
    """A log that was let go after a flush of it failed; ``durable_count`` records were flushed before."""
    log = open_log(files, segment_bytes=segment_bytes)
    if durable_count:
        log.extend(appended[:durable_count], flush=True)
    for value in appended[durable_count:]:
        log.extend([value])
    files.fail(FAULTS["failed flush"], path=".log", times=None)
    with pytest.raises(StorageError):
        log.flush()
    files.heal()
    let_go(log)


@pytest.mark.parametrize("segment_bytes", [3_000, 1_000_000])
@pytest.mark.parametrize("durable_count", [0, 5])
@pytest.mark.parametrize("seed", range(6))
def test_what_a_reopened_log_calls_durable_is_not_on_pages_of_the_failed_flush(
    seed, durable_count, segment_bytes
):
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    fail_to_flush(files, segment_bytes=segment_bytes, durable_count=durable_count)
    log = open_log(files, segment_bytes=segment_bytes)
    assert log.durable_offset == len(VALUES)
    log.extend([b"after"], flush=True)
    for found in power_cuts(memory, seed):
        assert values_of(open_log(found, segment_bytes=segment_bytes)) == [*VALUES, b"after"]


@pytest.mark.parametrize(("fault", "step"), [("EIO", 5), ("failed flush", 1), ("late EIO", 3)])
def test_a_copy_that_the_disk_refuses_leaves_the_log_as_it_was(fault, step):
    """Operations of the reopening fail in turn; then the next reopening goes on as if nothing had been."""
    values, at = VALUES[:5], 1 - step
    while True:
        at += step
        memory = MemoryFiles()
        files = FaultyFiles(memory)
        fail_to_flush(files, segment_bytes=3_000, appended=values)
        files.operations.clear()
        files.fail(FAULTS[fault], at=at)
        log = None
        with contextlib.suppress(StorageError):
            log = open_log(files, segment_bytes=3_000)
        if not files.failures[1:]:
            break
        files.heal()
        if log is not None:
            let_go(log)
        log = open_log(files, segment_bytes=3_000)
        assert values_of(log) == values
        for found in power_cuts(memory, at):
            assert values_of(open_log(found, segment_bytes=3_000)) == values
    assert at > 5


def test_a_full_disk_is_said_and_nothing_of_the_copy_stays():
    files = FaultyFiles(MemoryFiles())
    fail_to_flush(files, segment_bytes=1_000_000)
    files.fail(FAULTS["short write"], path=".log.tmp")
    with pytest.raises(DiskFullError, match=r"\.log\.tmp"):
        open_log(files)
    assert not files.is_file(f"{LOG}.tmp")
    assert files.is_file(f"{PATH}/.failed-flush")
    assert values_of(open_log(files)) == VALUES
    assert not files.is_file(f"{PATH}/.failed-flush")


def test_retention_goes_by_the_time_of_the_old_file():
    files = FaultyFiles(MemoryFiles())
    fail_to_flush(files, segment_bytes=3_000)
    files.set_modified_ms(LOG, 12_345_000)
    let_go(open_log(files, segment_bytes=3_000))
    assert files.modified_ms(LOG) == 12_345_000


def test_without_a_failed_flush_nothing_is_copied():
    files = FaultyFiles(MemoryFiles())
    log = open_log(files)
    log.extend(VALUES)
    let_go(log)
    number = files.stamp(LOG).number
    let_go(open_log(files))
    assert files.stamp(LOG).number == number


def test_readers_of_the_old_file_go_on(tmp_path):
    """Of a process that had the log open, and of another one that watches it."""
    files = FaultyFiles(OsFiles())
    store = logstore.open(tmp_path / "s", files=files)
    topic = store.create_topic("t")
    topic[0].extend(VALUES)
    with logstore.open(tmp_path / "s", read_only=True) as watching:
        watched = watching["t"][0]
        here, there = iter(topic[0].read()), iter(watched.read())
        assert next(here).value == next(there).value == VALUES[0]
        files.fail(FAULTS["failed flush"], path=".log")
        with pytest.raises(StorageError):
            topic[0].flush()
        topic.reopen(0)
        assert [record.value for record in there] == VALUES[1:]
        assert [record.value for record in here] == VALUES[1:]
        topic[0].extend([b"after"])
        assert values_of(watched) == [*VALUES, b"after"]
    store.close()
