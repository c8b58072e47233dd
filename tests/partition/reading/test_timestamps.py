"""Lookups by time (section 3.5 of the storage rules)."""

import pytest

from logstore.errors import UsageError
from logstore.format.batch import encode_records_batch
from logstore.format.header import decode_header
from logstore.model import OffsetAndTimestamp, Record
from tests.partition.helpers_rules import (
    START_MS,
    add,
    batch,
    crash,
    identity,
    open_log,
)


def write(log, *timestamps, **options):
    """One batch at the log end, with these timestamps."""
    base = log.log_end_offset
    values = [b"%d" % offset for offset in range(base, base + len(timestamps))]
    log.append_replicated(batch(*values, base_offset=base, timestamp_ms=list(timestamps), **options))


@pytest.fixture
def timed(tmp_path):
    """Timestamps 10, 30, 20 | 40, 50, 45 | 60, in three segments, every batch of them indexed."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    write(log, 10)
    write(log, 30, 20)
    log.roll()
    write(log, 40)
    write(log, 50, 45)
    log.roll()
    write(log, 60)
    return log


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"),
    [
        (0, 0),
        (10, 0),
        (11, 1),
        (20, 1),
        (30, 1),
        (31, 3),
        (41, 4),
        (46, 4),
        (50, 4),
        (51, 6),
        (60, 6),
        (61, None),
    ],
)
def test_the_first_record_at_or_after_the_time(timed, timestamp_ms, offset):
    assert timed.offset_at(timestamp_ms) == offset


def test_the_answer_after_reopening_is_the_same(timed):
    expected = [timed.offset_at(ms) for ms in range(70)]
    timed.close()
    again = open_log(timed.directory)
    assert [again.offset_at(ms) for ms in range(70)] == expected
    crash(again)
    again = open_log(timed.directory)
    assert [again.offset_at(ms) for ms in range(70)] == expected


def test_the_answer_tells_timestamp_and_epoch(log):
    write(log, 5, partition_leader_epoch=3)
    write(log, 9, partition_leader_epoch=-1)
    assert log.find_timestamp(1) == OffsetAndTimestamp(0, 5, 3)
    assert log.find_timestamp(6) == OffsetAndTimestamp(1, 9, None)


def test_records_below_the_log_start_are_not_found(timed):
    timed.delete_before(2)
    assert timed.find_timestamp(0) == OffsetAndTimestamp(2, 20, None)
    timed.delete_before(3)
    assert timed.offset_at(0) == 3


def test_records_without_a_timestamp_are_not_found(log):
    write(log, -1, -1)
    assert log.offset_at(0) is None
    write(log, 5)
    assert log.offset_at(0) == 2


def test_an_empty_log_has_no_time(log):
    assert log.offset_at(0) is None
    assert log.find_max_timestamp() is None


def test_what_is_gathered_is_found(log):
    log.append(b"a", timestamp_ms=7)
    assert log.offset_at(7) == 0


def test_an_older_record_behind_a_newer_one_does_not_hide_it(log):
    write(log, 100)
    write(log, 5)
    write(log, 101)
    assert log.offset_at(6) == 0
    assert log.offset_at(101) == 2


def test_after_gaps_of_compaction(tmp_path):
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    like = decode_header(batch(*[b""] * 10, timestamp_ms=list(range(10, 20))))
    log.append_replicated(encode_records_batch([Record(4, 14, b"k", b"v")], like=like))
    emptied = decode_header(batch(*[b""] * 5, base_offset=10, timestamp_ms=99))
    log.append_replicated(encode_records_batch([], like=emptied))
    write(log, 30)
    assert log.offset_at(10) == 4
    assert log.offset_at(15) == 15
    assert log.find_max_timestamp() == OffsetAndTimestamp(15, 30, None)


# The largest timestamp


def test_the_largest_timestamp_is_found_at_its_first_record(timed):
    assert timed.find_max_timestamp() == OffsetAndTimestamp(6, 60, None)
    write(timed, 60)
    assert timed.find_max_timestamp().offset == 6
    write(timed, 12, 70, 70)
    assert timed.find_max_timestamp() == OffsetAndTimestamp(9, 70, None)


def test_the_largest_timestamp_may_be_in_an_old_segment(log):
    write(log, 100, 90)
    log.roll()
    write(log, 50)
    assert log.find_max_timestamp() == OffsetAndTimestamp(0, 100, None)


def test_only_missing_timestamps_have_no_largest(log):
    write(log, -1)
    assert log.find_max_timestamp() is None


def test_a_marker_is_no_record_with_a_timestamp(log):
    add(log, b"a", producer=identity(0, transactional=True))
    log._context.clock.advance(1000)
    log.append_end_marker(7, 0, committed=True)
    assert log.offset_at(START_MS + 1) is None
    assert log.find_max_timestamp() == OffsetAndTimestamp(0, START_MS, 0)


def test_the_largest_timestamp_below_the_log_start_does_not_count(log):
    write(log, 100, 50, 60)
    write(log, 55)
    log.delete_before(1)
    assert log.find_max_timestamp() == OffsetAndTimestamp(2, 60, None)


def test_the_largest_timestamp_of_an_emptied_log_is_none(log):
    write(log, 100)
    log.delete_before(1)
    assert log.find_max_timestamp() is None


def test_under_log_append_time_the_batch_has_the_time(tmp_path):
    log = open_log(tmp_path / "t-0", message_timestamp_type="LogAppendTime")
    log.append(b"a", timestamp_ms=1)
    log.extend([(None, b"b", 5), (None, b"c", 6)])
    assert [record.timestamp_ms for record in log] == [START_MS] * 3
    assert log.offset_at(START_MS) == 0
    assert log.offset_at(START_MS + 1) is None


@pytest.mark.parametrize("timestamp_ms", [-1, True, 1.5, "1", None])
def test_a_time_must_be_whole_milliseconds(log, timestamp_ms):
    with pytest.raises(UsageError, match="timestamp_ms"):
        log.offset_at(timestamp_ms)
