"""A log was cut while the disk was too full to note it in the states of queues, and grew beyond its old end
before they were asked for: what came in the place of jobs that were done was never given. So it was with
groups that had no worker just then, where others had some, and with all of them after a clean stop.
"""

from __future__ import annotations

import pytest

import logstore
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles

STATES = f"__share_group_state-0/{0:020}.log"


def do_all(store, group):
    """The jobs that a group has left."""
    with store.queue("t", group=group) as queue:
        return [job.value for job in queue.drain() if job.accept() is None]


@pytest.mark.parametrize("is_reopened", [False, True])
def test_what_takes_their_place_is_given(is_reopened):
    """0.1 s."""
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    store = logstore.open("/store", files=files, clock=ManualClock())
    store.create_topic("t").extend([b"old"] * 5)
    store.create_topic("other").extend([b"old"])
    for group in ("idle", "working"):
        assert len(do_all(store, group)) == 5
    others = [store.queue("other", group="g"), store.queue("t", group="working")]
    for queue in others:
        queue.poll(0)
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path="__share", times=None)
    store["t"][0].truncate_to(0)
    files.heal()
    store["t"].extend([b"new"] * 9)
    for queue in others:
        queue.close()
    if is_reopened:
        store.close()
        store = logstore.open("/store", files=disk, clock=ManualClock())
    with store:
        assert [len(do_all(store, group)) for group in ("idle", "working")] == [9, 9]


def test_a_stop_while_it_cannot_be_stored_is_none():
    """The next open sets them back. 0.1 s."""
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    store = logstore.open("/store", files=files, clock=ManualClock())
    store.create_topic("t").extend([b"old"] * 5)
    queue = store.queue("t", group="g")
    assert [job.accept() for job in queue.drain()] == [None] * 5
    queue.flush()
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path=STATES, times=None)
    store["t"][0].truncate_to(2)
    store.close()
    with logstore.open("/store", files=disk, clock=ManualClock()) as store:
        assert not store.was_clean
        store["t"].extend([b"new"] * 9)
        assert do_all(store, "g") == [b"new"] * 9
