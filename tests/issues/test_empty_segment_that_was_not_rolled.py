"""A roll of an empty segment removes its indexes and makes new ones. When the disk failed in between, the log
kept the old segment without the files of its indexes. Then every flush after the next roll failed, until the
log was reopened.

Since then the segment writes them again.
"""

from __future__ import annotations

import pytest

from logstore.errors import StorageError
from logstore.partition.log import Log
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles


@pytest.mark.parametrize("fault", ["EIO", "late EIO"])
def test_the_log_goes_on_whichever_operation_fails(fault):
    at = 0
    while True:
        at += 1
        files = FaultyFiles(MemoryFiles())
        log = Log.open("/t-0", files=files, clock=ManualClock())
        files.fail(FAULTS[fault], at=at)
        try:
            log.roll()
        except StorageError:
            files.heal()
        else:
            break
        for number in range(3):
            log.extend([b"%d" % number])
            log.roll()
            log.flush()
        assert [record.value for record in log.read()] == [b"0", b"1", b"2"]
        assert log.verify()
        log.close()
    assert at > 1, "nothing has failed"
