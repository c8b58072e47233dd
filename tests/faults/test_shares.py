"""Each file operation of writes to ``__share_group_state`` fails, and of the deletion of what is redundant:
what was acknowledged stays, and a write that failed is there as a whole or not at all. Takes 3 s."""

from __future__ import annotations

import contextlib
import itertools
import uuid

import pytest

import logstore
from logstore.broker.share.stored import ShareChange, ShareState, apply_change
from logstore.broker.storing import shares as share_storage
from logstore.broker.storing.shares import ShareStorage
from logstore.config import StoreConfig
from logstore.errors import LogstoreError
from logstore.format.messages.share_records import ShareBatch, ShareKey
from logstore.format.names import SHARE_STATE_TOPIC
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
from tests.rotation import rotating

KEYS = [ShareKey("g", uuid.UUID(int=1), number) for number in range(2)]
CONFIG = StoreConfig(log_cleaner_enable=False, share_coordinator_snapshot_update_records_per_snapshot=2)
SEGMENT_BYTES = 600
WRITES = 14


def opened(files):
    store = logstore.open("/store", files=files, clock=ManualClock(), config=CONFIG)
    return store, ShareStorage(store._directory)


def changes_of(number):
    """Of both share-partitions."""
    return [(key, ShareChange(number, (ShareBatch(number, number + 3, 2, 1, number),))) for key in KEYS]


def write_until_it_fails(storage, states):
    """Returns what is acknowledged, and what may be there besides."""
    for number in range(1, WRITES):
        after = {key: apply_change(states[key], change) for key, change in changes_of(number)}
        try:
            storage.write(changes_of(number), flush=True)
        except LogstoreError:
            return states, after
        states = after
    return states, states


@pytest.mark.parametrize("fault", rotating(["EIO", "ENOSPC", "late EIO", "failed flush", "short write"], 3))
def test_whatever_operation_fails_nothing_is_lost(fault, monkeypatch):
    monkeypatch.setattr(share_storage, "_TIDY_EVERY", 6)
    refusals = deletions = 0
    for at in itertools.count(1):
        files = FaultyFiles(MemoryFiles())
        store, storage = opened(files)
        states = {key: ShareState(0, 0, 0) for key in KEYS}
        storage.write(list(states.items()), flush=True)
        topic = store[SHARE_STATE_TOPIC]
        topic.configure(segment_bytes=SEGMENT_BYTES)
        files.fail(FAULTS[fault], at=at)
        acknowledged, besides = write_until_it_fails(storage, states)
        failures = len(files.failures)
        refusals += acknowledged != besides
        files.heal()
        deletions += topic[0].log_start_offset > 0
        with contextlib.suppress(LogstoreError):  # it may have to be opened again
            assert storage.load() in (acknowledged, besides)
        with contextlib.suppress(LogstoreError):  # what was not flushed cannot be
            store.close()
        store, storage = opened(files)
        assert storage.load() in (acknowledged, besides)
        storage.write(changes_of(99), flush=True)
        assert {state.start_offset for state in storage.load().values()} == {99}
        assert store.verify()
        store.close()
        if not failures:
            break
    assert refusals > 3
    assert deletions > 3
