"""A process that died while `truncate_fully_and_start_at` was removing segments left a log that refused to
open: the stored recovery point was above what was left, which looks like lost data. Found by letting each of
its file operations fail, and opening the log again."""

from __future__ import annotations

import contextlib
import itertools

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import StorageError
from logstore.partition.log import Log
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles


def open_log(files):
    config = TopicConfig(segment_bytes=200)
    return Log.open(
        "/t-0", files=files, clock=ManualClock(), config=config, store_config=StoreConfig(linger_ms=0)
    )


def test_a_log_that_was_starting_over_opens_wherever_it_stopped():
    for at in itertools.count(1):
        memory = MemoryFiles()
        files = FaultyFiles(memory)
        log = open_log(files)
        for number in range(6):
            log.extend([b"%d" % number])
        log.checkpoint()
        files.fail(FAULTS["EIO"], at=at, times=None)
        with contextlib.suppress(StorageError):
            log.truncate_fully_and_start_at(50)
        found = open_log(MemoryFiles(memory.now()))
        assert (found.log_start_offset, found.log_end_offset) in {(0, 6), (50, 50)}
        if not files.failures:
            break
    assert at > 20
