"""A roll creates the new segment's files, and then writes the last entries of the old one's indexes.

Where the log had just been checkpointed, a power cut in between left nothing for recovery to read: the old
segment stayed without them, or with zeros in their place. A broker takes a segment's largest timestamp from
there: it would have passed over records in lookups by time, and deleted them too early. Found by the crash
explorer with ``verify`` in each state.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.partition import abandon, open_partition
from tests.partition.helpers import Partition

from logstore.testing import MemoryFiles
from logstore.testing.operations import Create


def test_a_segment_whose_seal_was_cut_off_gets_its_last_time_entry_in_recovery() -> None:
    files = MemoryFiles()
    log = open_partition(files)
    log.extend([b"a", b"b"], flush=True)
    log.roll()
    log.extend([b"c"], flush=True)
    log.checkpoint()
    images = []
    has_begun: list[bool] = []

    def before(operation: object) -> None:
        if isinstance(operation, Create) and operation.path.endswith("3.log"):
            has_begun.append(True)
        elif has_begun:
            images.append(files.now())

    files.before = before
    log.roll()
    files.before = None
    abandon(log)
    assert len(images) > 3
    for image in images:
        recovered = open_partition(MemoryFiles(image))
        assert recovered._core.segments[1].time_index.entry_count
        assert recovered.verify()


@pytest.mark.parametrize("entries", [1, 2, 5])
def test_zeros_at_the_end_of_its_offset_index_are_removed_by_recovery(tmp_path: Path, entries: int) -> None:
    partition = Partition(tmp_path / "t-0")
    partition.write(20)
    partition.checkpoint()
    partition.crash()
    partition.extend_file(bytes(8 * entries), 0, suffix=".index")
    for suffix in (".log", ".index", ".timeindex"):
        partition.write_file(b"", 20, suffix=suffix)
    report = partition.open().verify()
    assert report, str(report)
    assert partition.read() == list(range(20))
    partition.close()


@pytest.mark.parametrize("entries", [1, 2, 5])
def test_zeros_at_the_end_of_the_active_offset_index_are_removed_by_recovery(
    tmp_path: Path, entries: int
) -> None:
    partition = Partition(tmp_path / "t-0")
    partition.write(20)
    partition.checkpoint()
    partition.crash()
    partition.extend_file(bytes(8 * entries), 0, suffix=".index")
    report = partition.open().verify()
    assert report, str(report)
    partition.close()
