"""The leader epochs file was stored before the first batch of a new epoch, and is when an epoch begins by
itself. When that batch, or the file itself, could not be written, the log went on in the old epoch with a
history that had the new one, or had lost the old one: a follower might have cut its log at a wrong offset.
Found by verifying logs."""

from __future__ import annotations

import itertools

import pytest

from logstore.config import StoreConfig
from logstore.errors import StorageError
from logstore.format.batch import encode_batch
from logstore.partition.log import Log
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles


def open_log(files):
    return Log.open("/t-0", files=files, clock=ManualClock(), store_config=StoreConfig(linger_ms=0))


def append_of_epoch_7(log):
    log.append_replicated(bytes(encode_batch([None], [b"b"], 1, base_offset=1, partition_leader_epoch=7)))


@pytest.mark.parametrize("change", [append_of_epoch_7, lambda log: log.assign_leader_epoch(2)])
@pytest.mark.parametrize("fault", ["EIO", "late EIO"])
def test_the_history_is_that_of_the_batches(change, fault):
    for at in itertools.count(1):
        files = FaultyFiles(MemoryFiles())
        log = open_log(files)
        log.assign_leader_epoch(1)
        log.extend([b"a"])
        files.fail(FAULTS[fault], at=at)
        try:
            change(log)
        except StorageError:
            assert not log.needs_reopen
        files.heal()
        log.extend([b"c"])
        assert log.verify()
        log.close()
        assert open_log(files).verify()
        if not files.failures:
            break
    assert at > 1
