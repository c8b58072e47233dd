"""The highest bit of a batch's leader epoch changed, and verifying the log said that it was sound.

No checksum covers the epoch, and an epoch below -1 was taken for a batch without one. A follower that fetches
such a batch would write another history of leaders than its leader has.
"""

import pytest
from tests.fuzz.flips import FILE, let_go, open_log

from logstore.format.header import BATCH_HEADER
from logstore.testing import MemoryFiles

POSITION = BATCH_HEADER.position_of("partition_leader_epoch")


@pytest.mark.damaged
@pytest.mark.parametrize(("epoch", "found"), [(3, -(2**31) + 3), (None, -(2**31))])
def test_an_impossible_epoch_is_a_problem(epoch, found):
    files = MemoryFiles()
    log = open_log(files, "uncompressed")
    if epoch is not None:
        log.assign_leader_epoch(epoch)
    log.append(b"value")
    assert log.verify()
    file = files.open(FILE, write=True)
    right = file.read_at(POSITION, 4)
    file.write_at(POSITION, [bytes([right[0] ^ 0x80]) + right[1:]])
    (problem,) = log.verify().problems
    assert f"leader epoch {found}" in problem.reason
    let_go(log)
