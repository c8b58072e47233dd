"""When one file of a removed segment could not be removed, neither were the others, and closing the log did
not try that one again."""

from __future__ import annotations

from logstore.config import StoreConfig
from logstore.partition.log import Log
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles


def test_what_could_not_be_removed_is_removed_on_closing():
    clock, files = ManualClock(), FaultyFiles(MemoryFiles())
    log = Log.open("/t-0", files=files, clock=clock, store_config=StoreConfig(linger_ms=0))
    log.extend([b"a"])
    log.roll()
    log.delete_before(1)
    files.fail(FAULTS["EIO"], kinds=("remove",))
    clock.advance(60_000)
    log._context.scheduler.run_due()
    assert files.failures == [("remove", "/t-0/00000000000000000000.log.deleted")]
    assert [e.name for e in files.list_directory("/t-0") if "deleted" in e.name] == [
        "00000000000000000000.log.deleted"
    ]
    log.close()
    assert not [e.name for e in files.list_directory("/t-0") if "deleted" in e.name]
