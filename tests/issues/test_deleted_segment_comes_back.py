"""Deleting from the front renames the files of several segments, and flushes the directory once, at the end.

A power cut may keep the renaming of the second segment and forget that of the first. Recovery then found a
gap below the log start, took it for loss, and cut off everything behind it: flushed records that
nobody had deleted. Found by the crash explorer, where no checkpoint came between flush and deletion.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.partition.helpers import Partition


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("forgotten", [[0], [3], [0, 3]])
def test_what_lies_above_the_log_start_survives(tmp_path: Path, forgotten: list[int], is_torn: bool) -> None:
    partition = Partition(tmp_path / "t-0", retention_ms=-1)
    partition.write_segments(3, 3, 3, 3)
    partition.log.flush()
    partition.log.delete_before(10)
    partition.crash()
    for base in forgotten:
        partition.rename(base, ".log.deleted", ".log")
        if is_torn:
            partition.truncate_file(partition.file(base).stat().st_size - 5, base)
    log = partition.open()
    assert partition.read() == [10, 11]
    assert log.recovery.cut_bytes == 0
    report = log.verify()
    assert report, str(report)
    partition.reopen().enforce_retention()
    partition.clock.advance(120_000)
    partition.log._context.scheduler.run_due()
    assert partition.bases() == [9]
    assert partition.read() == [10, 11]
    partition.close()
