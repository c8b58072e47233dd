"""The power fails twice, and records of before the first cut are back after the second.

The first cut takes the new size of a file, but not the bytes: whole batches lie behind its end, in its last
block, where nobody sees them. The next writer's records go to the same place. The second cut leaves the size
that these gave the file, and not their bytes: the old batches, which the log had been without, were valid
again. Found by power cuts of ext4, where `tests/kernel/test_power_cuts.py` does it step by step.
"""

from tests.crash.partition import abandon, open_partition

from logstore.testing import MemoryFiles
from logstore.testing.operations import FlushFile, Truncate


def test_a_recovery_cuts_the_file_where_it_ends_before_anybody_appends():
    files = MemoryFiles()
    log = open_partition(files)
    log.extend([b"v"])
    abandon(log)
    done = []
    files.before = done.append
    log = open_partition(files)
    on_log = [operation for operation in done if operation_path(operation) == f"/t-0/{0:020}.log"]
    assert isinstance(on_log[0], Truncate)
    assert on_log[0].size_bytes == log.size_bytes
    assert isinstance(on_log[1], FlushFile)


def operation_path(operation):
    return getattr(operation, "path", "")
