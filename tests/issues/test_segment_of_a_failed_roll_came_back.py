"""A roll failed, and the files that it had made were removed, but the directory could not be flushed: the log
asked to be opened again. There was nothing to recover, since it ended where the last checkpoint had left it.
So nothing was flushed, and a power cut could bring the empty segment back. What had been appended and flushed
since lay behind its base, and was dropped as left over.

Such a log flushes its directory with the next records. Found by the random histories of a producer, in one of
a million. 0.2 s.
"""

from __future__ import annotations

import random

import pytest

import logstore
from logstore.errors import StorageError
from logstore.testing import FAULTS, FaultyFiles, Image, ManualClock, MemoryFiles
from logstore.testing.crash import CrashStates
from logstore.testing.operations import Note


def open_store(files):
    return logstore.open("/store", files=files, clock=ManualClock())


def fail_to_roll(store, files, monkeypatch, ending):
    files.fail(FAULTS["ENOSPC"], kinds=["create"], path=".timeindex")
    if ending == "reopen":
        files.fail(FAULTS["EIO"], kinds=["flush directory"], path="/t-0", times=None)
        with pytest.raises(StorageError):
            store["t"][0].roll()
        assert store["t"][0].needs_reopen
        files.heal()
        store["t"].reopen(0)
        return store

    def die(path):
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(files, "flush_directory", die)
        with pytest.raises(SystemExit):
            store["t"][0].roll()
    store.directory.abandon()
    files.heal()
    return open_store(files)


@pytest.mark.parametrize("ending", ["reopen", "kill"])
def test_what_is_flushed_since_survives_a_power_cut(monkeypatch, ending):
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    store = open_store(files)
    store.create_topic("t")[0].extend([b"a"], flush=True)
    store.checkpoint()
    store = fail_to_roll(store, files, monkeypatch, ending)
    assert store["t"][0].extend([b"b", b"c"], flush=True) == range(1, 3)
    crash = CrashStates(Image(), 1)
    for entry in memory.trace:
        if not isinstance(entry, Note):
            crash.follow(entry)
    states = 0
    for choices in crash.choices(50, random.Random(1)):
        found = open_store(MemoryFiles(crash.image(choices)))
        assert [record.value for record in found["t"][0].read()] == [b"a", b"b", b"c"], choices
        found.directory.abandon()
        states += 1
    assert states
    store.close()
