"""`segment_jitter_ms` spreads the rolls of partitions. The first segment of a log, and the active one after
an open, had none: partitions that were made or opened together rolled together, all in one moment."""

from __future__ import annotations

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.partition.log import Log
from logstore.testing import ManualClock, MemoryFiles

CONFIG = TopicConfig(segment_ms=1_000_000, segment_jitter_ms=900_000)
PARTITIONS = 20


def jitters(store: logstore.Store) -> set[int]:
    found = {log.writer.core.active.jitter_ms for log in store["t"]}
    assert all(0 <= jitter_ms <= 900_000 for jitter_ms in found)
    return found


def test_each_partition_has_a_jitter_of_its_own() -> None:
    files, clock = MemoryFiles(), ManualClock()
    with logstore.open("/s", files=files, clock=clock) as store:
        for log in store.create_topic("t", partitions=PARTITIONS, config=CONFIG):
            log.extend([b"v"])
        assert len(jitters(store)) > PARTITIONS // 2
    with logstore.open("/s", files=files, clock=clock) as store:
        assert len(jitters(store)) > PARTITIONS // 2
        clock.advance(600_000)
        for log in store["t"]:
            log.extend([b"w"])
        assert 0 < sum(log.segment_count > 1 for log in store["t"]) < PARTITIONS


def test_without_the_setting_there_is_none() -> None:
    log = Log.open("/t-0", files=MemoryFiles(), clock=ManualClock(), store_config=StoreConfig(linger_ms=0))
    assert log.writer.core.active.jitter_ms == 0
