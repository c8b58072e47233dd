"""A log whose records were all deleted began again at leader epoch 0 when it was opened.

Its history said that the last epoch begins at the log end, and opening drops what begins there. The next
batch was then of a lower epoch than those in front of it in the same file, and the next recovery read the
history from them: a follower would have been told to cut its log at a wrong offset. Found by the crash
explorer, which verifies the log in each state.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.partition.helpers import Partition

from logstore.format.checkpoint import EpochEntry


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_emptied_log_goes_on_in_its_leader_epoch(tmp_path: Path, is_clean: bool) -> None:
    partition = Partition(tmp_path / "t-0")
    partition.log.assign_leader_epoch(4)
    partition.write(3)
    partition.log.delete_before(3)
    log = partition.reopen() if is_clean else partition.recover()
    epoch = 4 if is_clean else 5  # after a crash a new one begins
    assert log.leader_epoch == epoch
    partition.write(2)
    assert partition.recover().epoch_entries == (EpochEntry(epoch, 3),)
    report = partition.log.verify()
    assert report, str(report)
    partition.close()
