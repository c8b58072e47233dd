"""A follower's log ends with a durable batch that has a gap in front. A power cut leaves the file longer than
what was written, and in the new part what the file begins with: the same batch again. It says nothing of the
one that is durable.
"""

from __future__ import annotations

import pytest
from tests.crash.partition import abandon, open_partition

from logstore.errors import CorruptionError
from logstore.format.batch import encode_batch
from logstore.model import Isolation, Role
from logstore.testing import MemoryFiles

LOG = f"/t-0/{5:020}.log"


def batch(offset, value):
    return bytes(encode_batch([b"k"], [value], 1_700_000_000_000, base_offset=offset))


@pytest.fixture
def files():
    """Segments from 0 and 5; in the second one there is a batch of offset 6."""
    found = MemoryFiles()
    log = open_partition(found)
    log.set_role(Role.FOLLOWER)
    log.append_replicated(b"".join(batch(offset, b"%d" % offset) for offset in range(5)))
    log.roll()
    log.append_replicated(batch(6, b"x"))
    log.checkpoint()
    assert log.durable_offset == 7
    abandon(log)
    return found


def write_behind(files, data):
    file = files.open(LOG)
    file.write_at(file.size_bytes(), [data])
    file.close()


def test_it_stays(files):
    write_behind(files, batch(6, b"x") + bytes(100))
    log = open_partition(files)
    assert [record.offset for record in log.read(0, isolation=Isolation.LOG_END)] == [0, 1, 2, 3, 4, 6]
    assert log.log_end_offset == 7


def test_another_batch_of_its_offset_says_that_its_own_has_changed(files):
    """No checksum covers an offset: it may have been 5."""
    write_behind(files, batch(6, b"y"))
    with pytest.raises(CorruptionError, match="offset 6 is behind the batch that follows"):
        open_partition(files)


def test_of_a_log_that_was_closed_the_same_batch_says_so_too(files):
    """Nothing of the past comes back without a crash: there were two batches with the same contents."""
    open_partition(files).close()
    write_behind(files, batch(6, b"x"))
    with pytest.raises(CorruptionError, match="offset 6 is behind the batch that follows"):
        open_partition(files)
