"""A broker that loads a cleanly closed directory reads no batch: the largest timestamp of each segment is the
last entry of its time index. Our close left the active segment's time index as sparse as it was, so that a
broker's lookups by time passed over the newest records, and its retention took the segment for older than it
was. Found by running a stock broker over a directory of ours.
"""

from __future__ import annotations

from pathlib import Path

from logstore import Log, TopicConfig
from logstore.format.index import time_entry
from logstore.format.layout import TIME_INDEX_ENTRY
from logstore.testing import ManualClock


def last_entry(directory: Path) -> tuple[int, int]:
    index = (directory / "00000000000000000000.timeindex").read_bytes()
    return time_entry(index, len(index) // TIME_INDEX_ENTRY.size_bytes - 1, 0)


def test_a_closed_log_ends_its_time_index_with_the_largest_timestamp(tmp_path: Path) -> None:
    directory, clock = tmp_path / "topic-0", ManualClock(1_000)
    for offset in range(3):
        with Log.open(str(directory), config=TopicConfig(index_interval_bytes=100), clock=clock) as log:
            log.append(b"gathered until the log is closed", timestamp_ms=1_000 + offset)
        assert last_entry(directory) == (1_000 + offset, offset)


def test_so_does_one_that_was_only_checkpointed(tmp_path: Path) -> None:
    """A checkpoint stored the index as a growing log has it, and the close found nothing to do: no record had
    come. Found by a compaction, which begins with a checkpoint, and was called off."""
    directory = tmp_path / "topic-0"
    with Log.open(str(directory), clock=ManualClock(1_000)) as log:
        log.append(b"v", timestamp_ms=1_000)
    for _ in range(2):
        with Log.open(str(directory), clock=ManualClock(1_000)) as log:
            log.checkpoint()
        assert last_entry(directory) == (1_000, 0)
