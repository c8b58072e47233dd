"""A recovery trusted a checkpoint whose name was not yet durable.

The last writer lowered the recovery point and died between the rename and the flush of the directory. The
next one read the new file, built indexes of old segments anew, and the power failed: the old recovery point
was back, above segments whose indexes were just being written. Found by letting two operations fail, one
after another.
"""

from tests.crash.partition import abandon, open_partition

from logstore.testing import MemoryFiles
from logstore.testing.operations import FlushDirectory


def test_a_recovery_makes_the_names_durable_before_it_changes_anything():
    files = MemoryFiles()
    log = open_partition(files)
    log.extend([b"v"], flush=True)
    abandon(log)
    done = []
    files.before = done.append
    open_partition(files)
    assert isinstance(done[0], FlushDirectory)
    assert done[0].path == "/t-0"
