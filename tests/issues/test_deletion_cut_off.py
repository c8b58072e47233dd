"""A deletion that was cut off behind the new log start left its segments in the log. The next recovery did
not check them, and yet learnt epochs from them, or met what was torn in them."""

from __future__ import annotations

import pytest

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import StorageError
from logstore.partition.log import Log
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles


def test_recovery_leaves_out_what_is_left_and_retention_removes_it():
    files = FaultyFiles(MemoryFiles())
    options = {
        "files": files,
        "clock": ManualClock(),
        "config": TopicConfig(segment_bytes=200),
        "store_config": StoreConfig(linger_ms=0),
    }
    log = Log.open("/t-0", **options)
    for number in range(8):
        log.extend([b"%d" % number])
    assert log.segment_count >= 3
    files.fail(FAULTS["EIO"], kinds=("rename",), path=".log", times=None)
    with pytest.raises(StorageError):
        log.delete_before(7)
    files.heal()
    log.abandon()
    log._context.home.release()
    log = Log.open("/t-0", **options)
    assert log.segment_count == 1
    assert [record.value for record in log.read()] == [b"7"]
    log.close()
    log = Log.open("/t-0", **options)
    log.enforce_retention()
    assert len([e for e in files.list_directory("/t-0") if e.name.endswith(".log")]) == 1
