"""A power cut could take records and leave the offset that was committed behind them. The records that were
appended next got the same offsets, and the group never read them.

Since then an open after a crash sets such offsets back to the ends of their logs, durably, before anything
can be appended.
"""

from __future__ import annotations

import logging

import pytest

import logstore
from logstore.errors import DiskFullError
from logstore.model import OffsetAndMetadata
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles

ORDERS = ("orders", 0), ("orders", 1)


@pytest.fixture
def disk():
    """What a power cut has left: two of five records of each partition, and commits behind the fifth."""
    files = MemoryFiles()
    store = open_store(files)
    logs = store.create_topic("orders", partitions=2)
    for log in logs:
        log.extend([b"1", b"2"], flush=True)
        size_bytes = files.size_bytes(path_of(log))
        log.extend([b"3", b"4", b"5"])
        store.offsets("billing").commit({log.partition: OffsetAndMetadata(5, "a note", 7)})
        store.offsets("mails").commit({log.partition: 2})
        store["__consumer_offsets"][0].flush()
        files.open(path_of(log), write=True).truncate(size_bytes)
    return MemoryFiles(files.now())


def open_store(files, **options):
    return logstore.open("/store", files=files, clock=ManualClock(), **options)


def path_of(log):
    return f"{log.directory}/00000000000000000000.log"


def values(consumer):
    return sorted(record.value for record in consumer.drain())


def test_a_group_reads_what_takes_the_place_of_lost_records(disk, caplog):
    with caplog.at_level(logging.INFO):
        store = open_store(disk)
    assert "group 'billing': set back from 5 to 2, the end of orders-0" in caplog.text
    assert dict(store.offsets("billing")) == dict.fromkeys(ORDERS, OffsetAndMetadata(2, "a note", 7))
    assert dict(store.offsets("mails")) == dict.fromkeys(ORDERS, OffsetAndMetadata(2))
    for log in store["orders"]:
        log.extend([b"6", b"7", b"8", b"9"])
    with store.consumer("orders", group="billing") as consumer:
        assert values(consumer) == [b"6", b"6", b"7", b"7", b"8", b"8", b"9", b"9"]


def test_a_second_power_cut_does_not_undo_it(disk):
    store = open_store(disk)
    store["orders"][0].extend([b"%d" % number for number in range(9)], flush=True)
    offsets = store["__consumer_offsets"][0]
    assert offsets.durable_offset == offsets.log_end_offset
    store = open_store(MemoryFiles(disk.now()))
    assert store.offsets("billing")["orders", 0].offset == 2


def test_after_a_clean_stop_nothing_is_looked_at(disk, monkeypatch):
    open_store(disk).close()
    for name in ("_set_offsets_back", "_set_queues_back"):
        monkeypatch.setattr(logstore.Store, name, lambda self, directory, ends: pytest.fail("looked"))
    open_store(disk).close()


def test_without_room_for_it_the_store_opens(disk, caplog):
    files = FaultyFiles(disk)
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path="__consumer_offsets", times=None)
    store = open_store(files)
    assert "could not be set back" in caplog.text
    with pytest.raises(DiskFullError):
        store.offsets("billing").commit({ORDERS[0]: 2})
    assert [record.value for record in store["orders"][0].read()] == [b"1", b"2"]
    with pytest.raises(DiskFullError):
        store.offsets("billing").get(ORDERS[0])
    store["orders"][0].extend([b"3", b"4", b"5", b"6", b"7"])
    files.heal()
    store["__consumer_offsets"].reopen(0)
    assert store.offsets("billing")[ORDERS[0]].offset == 2
    with store.consumer("orders", group="billing") as consumer:
        assert values(consumer) == [b"3", b"4", b"5", b"6", b"7"]


def test_what_was_refused_for_a_moment_is_done_at_the_close(disk):
    files = FaultyFiles(disk)
    files.fail(FAULTS["EIO"], kinds=["write"], path=".log", times=1)
    store = open_store(files)
    store["orders"][0].extend([b"3", b"4", b"5", b"6", b"7"])
    store.close()
    assert open_store(disk).offsets("billing")[ORDERS[0]].offset == 2
