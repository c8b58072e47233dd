"""On a disk that is full to the last byte retention could not make room: it must store the new log start
before a file goes, and there was no room for that. A log with a limit, on a disk of its own, stood still
until somebody came, and later still if nothing of it was flushed. Found by filling real file systems;
`tests/kernel/test_full_disk.py` does it.
"""

import errno

import pytest
from tests.partition.helpers_rules import (
    WatchedFiles,
    add_segments,
    bases_of,
    names_in,
    offsets_of,
    open_log,
)

from logstore.errors import DiskFullError


def full_until_removed(files, suffix):
    """Nothing can be written before a file of this kind is gone."""

    def fault(operation, path):
        is_full = files.count("remove", suffix) == 0
        return errno.ENOSPC if is_full and operation in ("create", "write") else None

    files.operations.clear()
    files.fault = fault


@pytest.mark.parametrize("flush", [True, False])
def test_segments_that_go_make_the_room_for_it_with_their_indexes(tmp_path, flush):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, retention_bytes=0)
    add_segments(log, 3)
    if flush:
        log.flush()
    full_until_removed(files, ".index")
    assert log.delete_before(2) == 2
    assert bases_of(log) == [2, 3]
    assert offsets_of(log) == [2]
    assert files.count("remove", f"{2:020}.index") == 0
    log.flush()
    log.close()
    assert offsets_of(open_log(tmp_path / "t-0")) == [2]


@pytest.mark.parametrize("flush", [True, False])
def test_segments_that_stay_after_all_are_read_as_before(tmp_path, flush):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, retention_bytes=0)
    add_segments(log, 3)
    if flush:
        log.flush()
    full_until_removed(files, ".nothing")
    with pytest.raises(DiskFullError):
        log.delete_before(2)
    assert offsets_of(log) == [0, 1, 2]
    files.heal()
    assert names_in(log, "*0.index") == []
    log.flush()
    assert log.durable_offset == 3
    log.close()
    assert offsets_of(open_log(tmp_path / "t-0")) == [0, 1, 2]
