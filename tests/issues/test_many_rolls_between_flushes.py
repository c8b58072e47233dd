"""A log that begins segments faster than the disk flushes them. The recovery point stayed where it was, as
there was always one that was not flushed; and each segment was to have a snapshot of the producers, also one
that retention had deleted since: the close of the log wrote them one after the other, for minutes.
"""

from __future__ import annotations

import pytest
from tests.crash.partition import abandon, open_partition

from logstore import TopicConfig
from logstore.testing import MemoryFiles
from logstore.testing.operations import Create

CONFIG = TopicConfig(segment_bytes=200, retention_bytes=2_000)
SNAPSHOT = ".snapshot"


@pytest.fixture
def files():
    return MemoryFiles()


def snapshots(files):
    return {int(each.name[:20]) for each in files.list_directory("/t-0") if each.name.endswith(SNAPSHOT)}


def test_the_recovery_point_moves_up_to_what_was_flushed(files, monkeypatch):
    """A segment is begun between the flush and the look at what it has made durable."""
    log = open_partition(files, config=CONFIG)
    durability, core = log.writer.durability, log.writer.core
    flush = durability.commit.wait_until_durable

    def roll_behind(offset):
        flush(offset)
        log.extend([b"x" * 100] * 3)

    monkeypatch.setattr(durability.commit, "wait_until_durable", roll_behind)
    for _ in range(5):
        log.extend([b"x" * 100] * 3)
        durability.background_flush()
        assert core.unflushed
        point = core.context.home.recovery_point(log.partition)
        assert point == core.unflushed[0].base_offset
        assert log.durable_offset - 3 <= point <= log.durable_offset
        assert point in snapshots(files)
    monkeypatch.undo()
    core.context.home.store_checkpoints()
    log.flush()
    end, count = log.log_end_offset, len(core.segments)
    abandon(log)
    log = open_partition(files, config=CONFIG)
    assert log.log_end_offset == end
    assert log.recovery.recovered_segments < count / 3
    assert log.verify().is_sound


def test_only_the_newest_segments_get_a_snapshot(files):
    """0.3 s."""
    log = open_partition(files, config=CONFIG)
    for number in range(1_000):
        log.extend([b"%d" % number * 30])
    log.enforce_retention()
    assert len(log.writer.core.coming_snapshots) <= 256
    done = []
    files.before = done.append
    log.close()
    files.before = None
    created = [each for each in done if isinstance(each, Create) and SNAPSHOT in each.path]
    assert 0 < len(created) < 50
    log = open_partition(files, config=CONFIG)
    assert log.recovery.was_clean
    assert log.verify().is_sound
    assert [each.value for each in log.read(log.log_start_offset)][-1] == b"999" * 30
