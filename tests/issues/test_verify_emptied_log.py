"""Recovery of a log whose records were all deleted forgets the history of their leader epochs.

The batches that wait below the log start for their file's deletion are no problem then; ``verify`` took them
for one. Found by the crash explorer.
"""

from __future__ import annotations

from pathlib import Path

from tests.partition.helpers import Partition


def test_batches_below_the_log_start_need_no_leader_epoch(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "t-0")
    partition.write(3)
    partition.log.delete_before(3)
    report = partition.recover().verify()
    assert report, str(report)
    assert report.batch_count == 3
    partition.close()
