"""After an fsync that failed, Linux keeps the pages, takes them for clean, and lets the next fsync succeed. A
log that was reopened, as the error asks for, read them, flushed, and called durable what a power cut took.
Recovery now writes such data once more before it flushes; an empty file beside the log says when, also to
another process. Found by a disk in memory whose failed flushes are like that."""

from __future__ import annotations

import pytest

from logstore.config import StoreConfig
from logstore.errors import StorageError
from logstore.partition.log import Log
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from logstore.testing.clock import ManualClock
from logstore.testing.crash import CrashStates
from logstore.testing.operations import Note

PATH = "/t-0"
VALUES = [b"%d" % number for number in range(5)]


def open_log(files):
    return Log.open(PATH, files=files, clock=ManualClock(), store_config=StoreConfig(linger_ms=0))


def let_go(log):
    log.abandon()
    log._context.home.release()


def after_power_cut(memory, seed):
    """What is left when everything unflushed is lost."""
    states = CrashStates(memory.image, seed)
    for entry in memory.trace:
        if not isinstance(entry, Note):
            states.follow(entry)
    return MemoryFiles(states.image([0] * len(states.domains())))


@pytest.mark.parametrize("where", ["in an append", "in a recovery"])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_durable_after_a_reopen_survives_a_power_cut(where, times, seed):
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    log = open_log(files)
    log.extend(VALUES)
    if where == "in a recovery":
        let_go(log)
    # with the second failure the disk refuses to take a note of the first
    files.fail(FAULTS["failed flush"], path=".log")
    files.fail(FAULTS["EIO"], kinds=("create",), path=".failed-flush", times=times - 1)
    with pytest.raises(StorageError):
        open_log(files) if where == "in a recovery" else log.flush()
    files.heal()
    if where == "in an append":
        let_go(log)
    reopened = open_log(files)
    assert [record.value for record in reopened.read()] == VALUES
    assert reopened.durable_offset == 5
    found = open_log(after_power_cut(memory, seed))
    assert [record.value for record in found.read()] == VALUES


def test_the_note_is_gone_when_all_is_well_again():
    files = FaultyFiles(MemoryFiles())
    log = open_log(files)
    log.extend(VALUES)
    files.fail(FAULTS["failed flush"], path=".log")
    with pytest.raises(StorageError):
        log.flush()
    assert files.is_file(f"{PATH}/.failed-flush")
    let_go(log)
    open_log(files).close()
    assert not files.is_file(f"{PATH}/.failed-flush")
