"""A log was truncated inside a batch, and the disk refused the checkpoint that says where it ends now: the
call raised, but appends went on. The next open took the gap in front of them for a loss, and cut them off,
also those that were flushed; and groups that had read on had not gone back.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from functools import partial

import pytest

import logstore
from logstore.errors import ReopenRequiredError, StorageError
from logstore.partition.state.lost_ends import LostEnds
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles


def truncate(at, fault, kinds):
    """Returns the disk, the values that a flush has kept, and how many operations failed."""
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    store = logstore.open("/store", files=files, clock=ManualClock())
    topic = store.create_topic("t")
    topic.extend([b"old"] * 5, flush=True)
    store.offsets("g").commit({("t", 0): 5})
    store.checkpoint()
    files.fail(FAULTS[fault], at=at, kinds=kinds)
    with suppress(StorageError):
        topic[0].truncate_to(3)
    failed = len(files.failures)
    files.heal()
    before = [record.value for record in topic[0].read()]
    try:
        topic.extend([b"new"] * 9, flush=True)
    except ReopenRequiredError:
        topic.reopen(0)
        before = [record.value for record in topic[0].read()]
        topic.extend([b"new"] * 9, flush=True)
    assert before or store.offsets("g")["t", 0].offset <= next(topic[0].read()).offset
    store.directory.abandon()
    return disk, before + [b"new"] * 9, failed


@pytest.mark.parametrize(
    ("fault", "kinds"), [("ENOSPC", None), ("EIO", ["flush"]), ("EMFILE", None), ("late EIO", None)]
)
def test_what_was_flushed_behind_it_is_kept(fault, kinds):
    """1 s for the longest."""
    for at in itertools.count(1):
        disk, kept, failed = truncate(at, fault, kinds)
        with logstore.open("/store", files=disk, clock=ManualClock()) as store:
            assert [record.value for record in store["t"][0].read()] == kept, at
        if not failed:
            break
    assert at > 3


class InterruptionError(Exception):
    """What a signal handler raises."""


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("cut", ["truncate_to", "reopen"])
def test_groups_go_back_if_an_interrupt_comes_in_between(cut, is_told, monkeypatch):
    """In front of it, or behind. 0.05 s each."""
    disk = MemoryFiles()
    store = logstore.open("/store", files=disk, clock=ManualClock())
    topic = store.create_topic("t")
    topic.extend([b"old"] * 5)
    store.offsets("g").commit({("t", 0): 5})
    tell = LostEnds.tell

    def interrupted(ends, told):
        if is_told:
            tell(ends, told)
        raise InterruptionError

    if cut == "reopen":
        file = disk.open(f"/store/t-0/{0:020}.log", write=True)
        file.truncate(0)
        file.close()
    cuts = {
        "truncate_to": partial(topic[0].truncate_to, 0),
        "reopen": partial(topic.reopen, 0, accept_loss=True),
    }
    with monkeypatch.context() as patch:
        patch.setattr(LostEnds, "tell", interrupted)
        with pytest.raises(InterruptionError):
            cuts[cut]()
    with pytest.raises(ReopenRequiredError, match="Interruption"):
        topic.extend([b"new"] * 9)
    topic.reopen(0)
    topic.extend([b"new"] * 9)
    assert store.offsets("g")["t", 0].offset == 0
    store.close()
