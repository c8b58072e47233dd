"""`close()` promises that everything is durable, or an error. After a failed fsync it let go in silence, with
records in the log that a power cut could take."""

from __future__ import annotations

import pytest

from logstore.config import StoreConfig
from logstore.errors import ReopenRequiredError, StorageError
from logstore.partition.log import Log
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles


def test_closing_says_that_not_all_is_durable():
    files = FaultyFiles(MemoryFiles())
    log = Log.open("/t-0", files=files, clock=ManualClock(), store_config=StoreConfig(linger_ms=0))
    log.extend([b"durable"], flush=True)
    log.extend([b"not durable"])
    files.fail(FAULTS["failed flush"])
    with pytest.raises(StorageError):
        log.flush()
    with pytest.raises(ReopenRequiredError, match="from offset 1 on"):
        log.close()
    assert log.is_closed
    Log.open("/t-0", files=files, clock=ManualClock()).close()
