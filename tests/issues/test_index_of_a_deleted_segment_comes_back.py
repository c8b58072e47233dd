"""Segments are deleted, and a power cut brings back of the first one its log, and of the second one only an
index: that index looked like what is left of a segment that was lost.
"""

from __future__ import annotations

import pytest
from tests.crash.partition import abandon, open_partition

from logstore.testing import MemoryFiles


def contents_of(files, name):
    file = files.open(f"/t-0/{name}")
    data = bytes(file.read_at(0, file.size_bytes()))
    file.close()
    return data


def three_segments(files):
    """Of three records each, and an empty one behind them."""
    log = open_partition(files)
    for _ in range(3):
        log.extend([b"a", b"b", b"c"])
        log.roll()
    log.checkpoint()
    return log


def test_it_is_removed(caplog):
    files = MemoryFiles()
    log = three_segments(files)
    names = [f"{0:020}.log", f"{3:020}.timeindex"]
    before = {name: contents_of(files, name) for name in names}
    log.delete_before(7)
    log.checkpoint()
    abandon(log)
    for each in files.list_directory("/t-0"):
        if each.name.endswith(".deleted"):
            files.remove(f"/t-0/{each.name}")
    for name, data in before.items():
        file = files.open(f"/t-0/{name}", create=True)
        file.truncate(0)
        file.write_at(0, [data])
        file.close()
    log = open_partition(files)
    assert [record.offset for record in log.read(7)] == [7, 8]
    assert log.verify().is_sound
    assert "missing" not in caplog.text
    assert f"{3:020}.timeindex" not in {each.name for each in files.list_directory("/t-0")}


@pytest.mark.damaged
def test_one_behind_the_log_start_stays(caplog):
    files = MemoryFiles()
    log = three_segments(files)
    abandon(log)
    files.remove(f"/t-0/{3:020}.log")
    log = open_partition(files)
    assert "the segment of offset 3 is missing" in caplog.text
    assert not log.verify().is_sound
