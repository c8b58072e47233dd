"""An fsync that failed was forgotten, and the next one, which the system lets succeed, was believed: of a
segment that was flushed to give up its descriptor and then sealed, of a sealed one whose log was cut at its
end at that moment, and of index files, whose entries were written into the same pages again. Each segment
now remembers it, and an index file is written anew. Found by looking for others like the log that was
rewritten in place."""

from __future__ import annotations

import pytest

from logstore.config import StoreConfig
from logstore.errors import ReopenRequiredError, StorageError
from logstore.model import AbortedTransaction
from logstore.partition.log import Log
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles

PATH = "/t-0"


@pytest.fixture
def files():
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def log(files):
    log = Log.open(PATH, files=files, clock=ManualClock(), store_config=StoreConfig(linger_ms=0))
    log.extend([b"v"] * 5)
    return log


def give_up_descriptor(log):
    """As :class:`OpenSegments` does when there are too many."""
    return log.writer.core.active.forget_flushed_files(flush=True)


def check_refused(log):
    with pytest.raises(StorageError, match="flush"):
        log.flush()
    check_refused_changes(log)


def check_refused_changes(log):
    assert log.durable_offset == 0
    with pytest.raises(ReopenRequiredError):
        log.flush()


def test_a_segment_that_is_sealed_after_its_flush_failed_is_not_called_durable(files, log):
    files.fail(FAULTS["failed flush"], path=".log")
    assert not give_up_descriptor(log)
    log.roll()
    check_refused(log)


def test_a_sealed_segment_whose_flush_failed_is_not_called_durable(files, log):
    log.roll()
    (sealed,) = log.writer.core.unflushed
    files.fail(FAULTS["failed flush"], path=".log")
    with pytest.raises(StorageError):
        sealed.flush()
    check_refused(log)


def test_a_sealed_segment_that_becomes_active_again_is_not_called_durable(files, log):
    log.roll()
    log.extend([b"w"] * 5)
    files.fail(FAULTS["failed flush"], path=f"{0:020}.log")
    with pytest.raises(StorageError):
        log.writer.core.unflushed[0].flush()
    with pytest.raises(StorageError):
        log.truncate_to(5)
    check_refused_changes(log)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_whose_flush_failed_is_written_to_a_new_file(files, log, suffix):
    log.extend([b"w" * 5_000] * 3)
    log.checkpoint()
    log.extend([b"x" * 5_000] * 3)
    number = files.stamp(f"{PATH}/{0:020}{suffix}").number
    files.fail(FAULTS["failed flush"], path=suffix)
    with pytest.raises(StorageError):
        log.checkpoint()
    assert log._context.home.recovery_point(log.partition) < log.log_end_offset
    log.checkpoint()
    assert files.stamp(f"{PATH}/{0:020}{suffix}").number != number


def test_aborted_transactions_whose_flush_failed_are_told_to_the_next_recovery(files, log):
    log.writer.core.active.append_aborted(AbortedTransaction(1, 0, 4, 0))
    files.fail(FAULTS["failed flush"], path=".txnindex")
    with pytest.raises(StorageError):
        log.flush()
    assert files.is_file(f"{PATH}/.failed-flush")
