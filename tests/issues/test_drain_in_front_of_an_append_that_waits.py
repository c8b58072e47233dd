"""``drain()`` in the moment after an append that a full disk refused: it waited for a record that was not
written, for as long as the disk was full.

The end that it was told counted the append, which still waited in memory for others; no fetch could read it.
"""

from __future__ import annotations

import logstore
from logstore import StoreConfig
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles


def test_it_ends_with_what_can_be_read():
    files = FaultyFiles(MemoryFiles())
    with logstore.open("/store", files=files, config=StoreConfig(linger_ms=60_000)) as store:
        log = store.create_topic("t")[0]
        log.extend([b"1", b"2"])
        consumer = store.consumer(partitions=[("t", 0)])
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path=".log", times=None)
        log.append(b"waits")
        assert set(consumer.end_offsets().values()) == {2}  # what drain() asks for first
        assert [record.offset for record in consumer.drain()] == [0, 1]
        files.heal()
        log.flush()
        assert [record.offset for record in consumer.drain()] == [2]
