"""Each file operation of a compaction fails: of each key the latest record stays, and what was aborted stays
gone."""

from __future__ import annotations

import itertools

import pytest

from logstore.errors import LogstoreError
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from tests.crash.compacted import open_compacted
from tests.crash.partition import abandon
from tests.partition.helpers_compaction import end, left, put, transact


def _prepared(files):
    log = open_compacted(files)
    for number in range(3):
        put(log, a=f"{number}", b=None if number else "0", **{f"key {number}": "1"})
        transact(log, 7, 2 * number, a="aborted", c="aborted")
        end(log, 7, committed=False)
        log.roll()
    log.checkpoint()
    return log


@pytest.mark.parametrize("fault", ["EIO", "ENOSPC", "late EIO", "failed flush"])
def test_whatever_operation_fails_nothing_is_lost(fault):
    """Each segment is as it was or compacted, and the log goes on, or says that it must be opened again."""
    disk = MemoryFiles()
    log = _prepared(disk)
    before = left(log)
    log.compact(now=True)
    after = left(log)
    assert len(after) < len(before)
    log.close()
    refusals = 0
    for at in itertools.count(1):
        files = FaultyFiles(MemoryFiles())
        log = _prepared(files)
        files.fail(FAULTS[fault], at=at)
        try:
            log.compact(now=True)
        except LogstoreError:
            refusals += 1
        failures = len(files.failures)
        files.heal()
        assert after.items() <= left(log).items() <= before.items()
        if log.needs_reopen:
            abandon(log)
            log = open_compacted(files)
        assert after.items() <= left(log).items() <= before.items()
        put(log, new="1")  # so that no segment is left alone
        log.compact(now=True)
        assert left(log).items() - after.items() == {(log.log_end_offset - 1, ("new", "1"))}
        report = log.verify()
        assert report, report
        assert not [
            n.name for n in files.list_directory(log.directory) if n.name.endswith((".swap", ".cleaned"))
        ]
        log.close()
        if not failures:
            break
    assert refusals > 5
