"""An index that was built anew and could not be written stayed as an empty file, which nobody doubted.
Found by letting two operations fail, one after another.
"""

from tests.crash.partition import open_partition

from logstore.testing import FAULTS, FaultyFiles, MemoryFiles


def test_what_cannot_be_stored_leaves_no_file():
    memory = MemoryFiles()
    log = open_partition(memory)
    for _ in range(3):
        log.extend([b"v" * 100], flush=True)
    log.roll()
    log.extend([b"w"], flush=True)
    log.close()
    for kind in ("index", "timeindex"):
        memory.remove(f"/t-0/{0:020}.{kind}")
    files = FaultyFiles(memory)
    log = open_partition(files)
    files.fail(FAULTS["EIO"], kinds={"write"}, path="timeindex")
    assert len(list(log.read())) == 4
    assert files.failures
    files.heal()
    log.close()
    log = open_partition(memory)
    report = log.verify()
    assert report, str(report)
