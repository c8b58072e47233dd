"""What an open after a crash reads: what came since the last checkpoint, once."""

from __future__ import annotations

import random
import time

import pytest

from logstore.model import NewRecord
from tests.partition.helpers import Partition


@pytest.mark.slow
def test_a_gibibyte_is_open_again_in_a_moment_after_a_kill(tmp_path):
    """What is read depends on the time since the last checkpoint, not on the size of the log."""
    partition = Partition(tmp_path / "t-0", segment_bytes=128 * 2**20)
    value = random.Random(5).randbytes(1000)
    records = [NewRecord(value)] * 900
    while partition.log.size_bytes < 2**30:
        for _ in range(128):
            partition.log.extend(records)
        partition.checkpoint()
    partition.log.extend(records)
    end, size = partition.log.log_end_offset, partition.log.size_bytes
    partition.crash()
    began = time.perf_counter()
    report = partition.open().recovery
    seconds = time.perf_counter() - began
    print(f"{size / 2**20:.0f} MiB open after {seconds * 1000:.1f} ms, {report.scanned_bytes} bytes read")
    assert partition.log.log_end_offset == end
    assert not report.was_clean
    assert report.scanned_bytes < 4 * 2**20
    assert seconds < 5
    assert next(partition.log.read(end - 1)).value == value
    partition.crash()


@pytest.mark.slow
def test_what_was_never_checkpointed_is_read_once_after_a_kill(tmp_path):
    partition = Partition(tmp_path / "t-0", segment_bytes=16 * 2**20)
    records = [NewRecord(bytes(1000))] * 900
    for _ in range(64):
        partition.log.extend(records)
    size = partition.log.size_bytes
    partition.recover()
    assert partition.log.recovery.scanned_bytes == size
    partition.recover()
    assert partition.log.recovery.scanned_bytes < 2 * 2**20
    partition.crash()
