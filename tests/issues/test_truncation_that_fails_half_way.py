"""A truncation that the disk cut short left readers with a view that told them to read again, each time:
nothing could be read until the log was reopened. And it went on to call durable what it had renamed away."""

from __future__ import annotations

import itertools

import pytest

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import StorageError
from logstore.partition.log import Log
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles

CONFIG = TopicConfig(segment_bytes=200)


@pytest.mark.parametrize(
    "change", [lambda log: log.truncate_to(2), lambda log: log.truncate_fully_and_start_at(50)]
)
def test_the_log_stays_readable_wherever_it_stops(change):
    refused = 0
    for at in itertools.count(1):
        files = FaultyFiles(MemoryFiles())
        log = Log.open(
            "/t-0", files=files, clock=ManualClock(), config=CONFIG, store_config=StoreConfig(linger_ms=0)
        )
        for number in range(6):
            log.extend([b"%d" % number], flush=True)
        assert log.segment_count > 2
        files.fail(FAULTS["EIO"], at=at)
        try:
            change(log)
        except StorageError:
            refused += 1
        files.heal()
        values = [record.value for record in log.read()]
        assert values in ([b"%d" % number for number in range(6)], [b"0", b"1"], [])
        assert log.durable_offset <= log.log_end_offset
        if not files.failures:
            break
    assert refused > 10
