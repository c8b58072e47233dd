"""``delete_before()`` had left the active segment in place, and a later roll left it below the log start.
After a kill it was not part of the log, and its files stayed until the open after the next clean stop:
retention did not find them, and ``erase()`` returned while they held its records."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.logdir.helpers import crash, open_store, values

from logstore.config import TopicConfig

CONFIG = TopicConfig(segment_bytes=300, file_delete_delay_ms=0)


def fill(path: Path, count: int) -> None:
    store = open_store(path)
    log = store.create_topic("t", config=CONFIG)[0]
    for number in range(count):
        log.extend([b"deleted %d" % number])
    log.delete_before(count)
    log.extend([b"kept" + b"x" * 200], flush=True)
    crash(store)


def found(path: Path, data: bytes) -> list[str]:
    return [file.name for file in path.rglob("*") if file.is_file() and data in file.read_bytes()]


@pytest.mark.parametrize("count", [1, 2, 9])
def test_an_open_removes_them(tmp_path, count):
    fill(tmp_path, count)
    assert found(tmp_path / "t-0", b"deleted %d" % (count - 1))
    with open_store(tmp_path) as store:
        log = store["t"][0]
        assert log.log_start_offset == count
        assert len(values(log)) == 1
        log.erase(offsets=[range(count)])
        assert found(tmp_path, b"deleted") == []
        report = store.verify()
        assert report, str(report)
        assert not report.notes, str(report)
    with open_store(tmp_path) as store:
        assert len(values(store["t"][0])) == 1
