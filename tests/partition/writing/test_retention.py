"""Which segments go, and how their files go (section 3.7 of the storage rules)."""

import errno
import os

import pytest

from logstore.config import TopicConfig
from logstore.errors import StorageError
from logstore.partition.writing.retention import SegmentFacts, plan_retention
from tests.partition.helpers_rules import (
    START_MS,
    WatchedFiles,
    add,
    add_batches,
    add_segments,
    bases_of,
    batch,
    check_gone_after,
    crash,
    names_in,
    offsets_of,
    open_log,
    values_of,
)

NOW_MS = 10_000


def facts(*segments):
    """Segments of ten offsets each, by (size, newest timestamp)."""
    return [
        SegmentFacts(10 * number, 10 * number + 10, size, lambda newest=newest: newest)
        for number, (size, newest) in enumerate(segments)
    ]


def plan(segments, *, log_start_offset=0, high_watermark=1000, **config):
    config = {"retention_ms": -1, "retention_bytes": -1} | config
    return plan_retention(
        segments,
        config=TopicConfig(**config),
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        now_ms=NOW_MS,
    )


# The plan


@pytest.mark.parametrize(("log_start", "count"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 2)])
def test_segments_whose_next_base_is_at_or_below_the_log_start_go(log_start, count):
    assert plan(facts((5, 0), (5, 0), (5, 0)), log_start_offset=log_start) == count


@pytest.mark.parametrize(
    ("limit", "count"), [(-1, 0), (100, 0), (30, 0), (21, 0), (20, 1), (11, 1), (10, 2), (0, 3)]
)
def test_by_size_the_log_stays_at_or_above_the_limit(limit, count):
    assert plan(facts((10, 0), (10, 0), (10, 0)), retention_bytes=limit) == count


def test_by_size_the_first_segment_that_does_not_fit_the_excess_stops():
    assert plan(facts((5, 0), (50, 0), (5, 0), (5, 0)), retention_bytes=55) == 1


@pytest.mark.parametrize(("retention_ms", "count"), [(-1, 0), (9001, 0), (9000, 0), (8999, 1), (0, 3)])
def test_by_time_what_is_older_goes(retention_ms, count):
    segments = facts((5, NOW_MS - 9000), (5, NOW_MS - 8000), (5, NOW_MS - 1))
    assert plan(segments, retention_ms=retention_ms) == count


def test_by_time_the_first_young_segment_stops():
    assert plan(facts((5, 0), (5, NOW_MS), (5, 0)), retention_ms=100) == 1


def test_the_newest_timestamp_is_asked_only_where_it_decides():
    def never():
        raise AssertionError

    segments = [*facts((5, NOW_MS)), SegmentFacts(10, 20, 5, never)]
    assert plan(segments, retention_ms=100) == 0


@pytest.mark.parametrize(("high_watermark", "count"), [(9, 0), (10, 1), (19, 1), (20, 2), (30, 3)])
def test_nothing_at_or_above_the_high_watermark_goes(high_watermark, count):
    assert plan(facts((5, 0), (5, 0), (5, 0)), retention_ms=0, high_watermark=high_watermark) == count
    assert plan(facts((5, 0), (5, 0), (5, 0)), retention_bytes=0, high_watermark=high_watermark) == count


def test_an_empty_last_segment_never_goes():
    assert plan(facts((5, 0), (0, 0)), retention_ms=0, retention_bytes=0) == 1
    assert plan(facts((0, 0)), retention_ms=0, retention_bytes=0) == 0


def test_an_empty_segment_that_is_not_last_goes():
    assert plan(facts((0, 0), (5, NOW_MS)), retention_ms=1) == 1


def test_a_compacted_topic_keeps_all_but_what_is_below_the_log_start():
    segments = facts((5, 0), (5, 0), (5, 0))
    assert plan(segments, cleanup_policy="compact", retention_ms=0, retention_bytes=0) == 0
    assert plan(segments, cleanup_policy="compact", log_start_offset=10) == 1
    assert plan(segments, cleanup_policy="", retention_ms=0, retention_bytes=0) == 0
    assert plan(segments, cleanup_policy="", log_start_offset=10) == 1
    assert plan(segments, cleanup_policy="compact,delete", retention_ms=0) == 3


# Carried out


def test_by_time_of_the_records(tmp_path):
    log = open_log(tmp_path / "t-0", retention_ms=1000)
    add_segments(log, 2)
    log._context.clock.advance(1001)
    add_segments(log, 1)
    assert log.enforce_retention(dry_run=True) == 2
    assert log.enforce_retention() == 2
    assert offsets_of(log) == [2]
    assert log.log_start_offset == 2


def test_without_timestamps_the_files_time_counts(tmp_path):
    log = open_log(tmp_path / "t-0", retention_ms=1000)
    for base in range(2):
        log.append_replicated(batch(b"a", base_offset=base, timestamp_ms=-1))
        log.roll()
        path = tmp_path / "t-0" / f"{base:020}.log"
        os.utime(path, (0, (START_MS - 2000 * (1 - base)) / 1000))
    assert log.enforce_retention() == 1


def test_by_size(tmp_path):
    log = open_log(tmp_path / "t-0", retention_bytes=200)
    add_segments(log, 6)
    one = log.writer.core.segments[0].size_bytes
    log.enforce_retention()
    assert 200 <= log.size_bytes < 200 + one


def test_if_all_qualify_the_log_rolls_first_and_keeps_its_end(tmp_path):
    log = open_log(tmp_path / "t-0", retention_ms=0)
    add_batches(log, 3)
    log._context.clock.advance(1)
    assert log.enforce_retention() == 1
    assert bases_of(log) == [3]
    assert log.log_start_offset == log.log_end_offset == 3
    assert log.enforce_retention() == 0
    crash(log)
    assert add(open_log(tmp_path / "t-0"), b"next") == range(3, 4)


def test_a_record_that_gathers_keeps_the_segment_it_belongs_to(tmp_path):
    log = open_log(tmp_path / "t-0", retention_ms=10_000)
    add(log, b"old")
    log._context.clock.advance(20_000)
    log.append(b"young")
    assert log.enforce_retention(dry_run=True) == 0
    log.append(b"younger")
    assert log.enforce_retention() == 0
    assert values_of(log) == [b"old", b"young", b"younger"]


def test_the_log_start_is_stored_before_files_go(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, retention_bytes=0)
    add_segments(log, 2)
    files.operations.clear()
    log.enforce_retention()
    stored = files.operations.index(("rename", "log-start-offset-checkpoint.tmp"))
    assert stored < files.operations.index(("rename", f"{0:020}.log"))


def test_files_are_renamed_and_removed_after_the_delay(tmp_path):
    log = open_log(tmp_path / "t-0", retention_bytes=0, file_delete_delay_ms=60_000)
    add_segments(log, 1)
    log.enforce_retention()
    assert names_in(log, "*.deleted") == [f"{0:020}.{kind}.deleted" for kind in ("index", "log", "timeindex")]
    check_gone_after(log, 60_000)


def test_closing_removes_them_at_once(tmp_path):
    log = open_log(tmp_path / "t-0", retention_bytes=0)
    add_segments(log, 1)
    log.enforce_retention()
    log.close()
    assert names_in(log, "*.deleted") == []


def test_opening_removes_what_a_crash_left(tmp_path):
    log = open_log(tmp_path / "t-0", retention_bytes=0)
    add_segments(log, 1)
    log.enforce_retention()
    crash(log)
    assert names_in(open_log(tmp_path / "t-0"), "*.deleted") == []


def test_a_dry_run_changes_nothing(tmp_path):
    log = open_log(tmp_path / "t-0", retention_bytes=0)
    add_segments(log, 2)
    assert log.enforce_retention(dry_run=True) == 2
    assert bases_of(log) == [0, 1, 2]


def test_retention_makes_room_on_a_full_disk_while_records_wait(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, retention_bytes=0)
    add_segments(log, 2)
    log.append(b"waiting")
    files.refuse("write", ".log", errno.ENOSPC)
    assert log.enforce_retention() == 2
    files.heal()
    assert offsets_of(log) == [2]


@pytest.mark.parametrize("flush", [False, True])
def test_on_a_disk_without_a_byte_the_indexes_of_what_goes_make_room(tmp_path, flush):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, retention_bytes=0)
    add_segments(log, 3)
    if flush:
        log.flush()

    before = files.count("remove", ".index")

    def full(operation, path):
        is_full = files.count("remove", ".index") == before
        return errno.ENOSPC if is_full and operation in ("write", "create") else None

    files.fault = full
    assert log.enforce_retention() == 3
    assert bases_of(log) == [3]
    log.flush()
    log.close()


def test_a_disk_that_stays_full_leaves_a_log_that_is_flushed_and_opened_again(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, retention_bytes=0)
    add_segments(log, 3)
    files.fill()
    with pytest.raises(StorageError):
        log.enforce_retention()
    assert names_in(log, "*index") == [f"{3:020}.index", f"{3:020}.timeindex"]
    log.flush()
    assert log.durable_offset == 3
    files.heal()
    log.checkpoint()
    crash(log)
    log = open_log(tmp_path / "t-0", retention_bytes=0)
    assert offsets_of(log) == [0, 1, 2]
    assert log.enforce_retention() == 3


def test_a_full_disk_refuses_retention_and_it_can_be_tried_again(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, retention_bytes=0)
    add_segments(log, 2)
    files.fill()
    with pytest.raises(StorageError):
        log.enforce_retention()
    files.heal()
    assert log.enforce_retention() == 2
    add(log, b"a")
