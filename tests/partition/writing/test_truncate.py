"""Dropping the end of a log (section 3.6 of the storage rules)."""

import errno

import pytest

from logstore.errors import OffsetOutOfRangeError, ReopenRequiredError, StorageError, UsageError
from logstore.model import Isolation, Role
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
    identity,
    names_in,
    offsets_of,
    open_log,
    values_of,
)


@pytest.fixture
def segments(log):
    """Two batches of two records in each of three segments: offsets 0 to 11."""
    for number in range(6):
        add(log, b"%d" % (2 * number), b"%d" % (2 * number + 1))
        if number in (1, 3):
            log.roll()
    return log


@pytest.mark.parametrize("offset", [0, 2, 4, 6, 8, 10])
def test_at_a_batch_everything_from_there_goes(segments, offset):
    assert segments.truncate_to(offset)
    assert segments.log_end_offset == offset
    assert offsets_of(segments) == list(range(offset))
    assert add(segments, b"next") == range(offset, offset + 1)


@pytest.mark.parametrize("offset", [1, 3, 5, 7, 9, 11])
def test_inside_a_batch_the_whole_batch_goes_and_leaves_a_gap(segments, offset):
    assert segments.truncate_to(offset)
    assert segments.log_end_offset == offset
    assert offsets_of(segments) == list(range(offset - 1))
    assert add(segments, b"next") == range(offset, offset + 1)
    assert offsets_of(segments) == [*range(offset - 1), offset]


@pytest.mark.parametrize("offset", range(12))
def test_a_truncated_log_survives_closing_and_crashing(segments, offset):
    segments.truncate_to(offset)
    kept = offsets_of(segments)
    crash(segments)
    log = open_log(segments.directory)
    assert (offsets_of(log), log.log_end_offset) == (kept, offset)
    log.close()
    log = open_log(segments.directory)
    assert (offsets_of(log), log.log_end_offset) == (kept, offset)


@pytest.mark.parametrize("offset", [12, 13, 2**62])
def test_at_or_past_the_end_nothing_is_dropped(segments, offset):
    assert not segments.truncate_to(offset)
    assert segments.log_end_offset == 12


def test_past_the_end_only_epochs_without_records_go(log):
    log.assign_leader_epoch(1)
    add(log, b"a")
    log.assign_leader_epoch(2)
    assert not log.truncate_to(5)
    assert [tuple(entry) for entry in log.epoch_entries] == [(1, 0)]
    add(log, b"b")
    assert [tuple(entry) for entry in log.epoch_entries] == [(1, 0), (2, 1)]


def test_below_the_first_segment_the_log_is_emptied(tmp_path):
    log = open_log(tmp_path / "t-0")
    log.truncate_fully_and_start_at(10)
    add(log, b"a", b"b")
    assert log.truncate_to(4)
    assert (log.log_start_offset, log.log_end_offset, bases_of(log)) == (4, 4, [4])
    assert add(log, b"c") == range(4, 5)


def test_the_log_start_comes_down_with_the_end(segments):
    segments.delete_before(3)
    segments.truncate_to(2)
    assert (segments.log_start_offset, segments.log_end_offset) == (2, 2)
    crash(segments)
    assert open_log(segments.directory).log_start_offset == 2


def test_files_of_dropped_segments_go_after_the_delay(tmp_path):
    log = open_log(tmp_path / "t-0", file_delete_delay_ms=500)
    add_segments(log, 3)
    log.truncate_to(1)
    assert names_in(log, "*.log") == [f"{0:020}.log", f"{1:020}.log"]
    assert f"{2:020}.log.deleted" in names_in(log)
    check_gone_after(log, 500)


def test_epochs_above_the_end_go(log):
    for base, epoch in ((0, 1), (1, 2), (2, 3)):
        log.append_replicated(batch(b"a", base_offset=base, partition_leader_epoch=epoch))
    log.truncate_to(2)
    assert [tuple(entry) for entry in log.epoch_entries] == [(1, 0), (2, 1)]


def test_the_high_watermark_is_clamped(log):
    log.set_role(Role.LEADER)
    add_batches(log, 5)
    log.update_high_watermark(4)
    log.truncate_to(2)
    assert log.high_watermark == 2


def test_producers_are_as_of_the_new_end(log):
    for sequence in range(3):
        add(log, b"a", producer=identity(sequence))
    log.truncate_to(1)
    assert add(log, b"again", producer=identity(1)) == range(1, 2)


def test_the_largest_timestamp_is_as_of_the_new_end(tmp_path):
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    for offset, timestamp_ms in enumerate((10, 30, 20, 90)):
        log.append_replicated(batch(b"a", base_offset=offset, timestamp_ms=timestamp_ms))
    log.truncate_to(3)
    assert log.find_max_timestamp()[:2] == (1, 30)
    log.truncate_to(1)
    assert log.find_max_timestamp()[:2] == (0, 10)


def test_emptying_a_segment_resets_its_time(tmp_path):
    log = open_log(tmp_path / "t-0", segment_ms=1000)
    log.append_replicated(batch(b"a", timestamp_ms=START_MS))
    log.truncate_to(0)
    log.append_replicated(batch(b"b", timestamp_ms=START_MS + 5000))
    log.append_replicated(batch(b"c", base_offset=1, timestamp_ms=START_MS + 5001))
    assert bases_of(log) == [0]


def test_the_sealed_segment_that_becomes_active_can_grow(segments):
    segments.truncate_to(6)
    assert bases_of(segments) == [0, 4]
    add_batches(segments, 3)
    assert offsets_of(segments) == list(range(9))


def test_a_truncation_is_durable_when_it_returns(segments):
    segments.truncate_to(6)
    assert segments.durable_offset == 6
    assert offsets_of(segments, isolation=Isolation.DURABLE) == list(range(6))


def test_what_is_appended_after_a_truncation_is_durable_only_after_its_own_flush(segments):
    segments.flush()
    segments.truncate_to(4)
    add(segments, b"new", b"new")
    assert segments.durable_offset == 4
    add(segments, b"newer", flush=True)
    assert segments.durable_offset == 7


def test_the_stored_recovery_point_comes_down_first(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add_batches(log, 4)
    log.checkpoint()
    files.operations.clear()
    log.truncate_to(2)
    names = [name for _, name in files.operations]
    assert names.index("recovery-point-offset-checkpoint.tmp") < names.index(f"{0:020}.log")


def test_a_recovery_point_that_cannot_be_lowered_stops_the_truncation(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add_batches(log, 4)
    log.checkpoint()
    files.fill()
    with pytest.raises(StorageError):
        log.truncate_to(2)
    files.heal()
    assert offsets_of(log) == [0, 1, 2, 3]
    assert log.truncate_to(2)
    assert offsets_of(log) == [0, 1]


def test_a_truncation_that_fails_half_way_needs_a_reopen(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add_batches(log, 4)
    files.refuse("truncate", ".log", errno.EIO)
    with pytest.raises(StorageError):
        log.truncate_to(2)
    assert log.needs_reopen
    files.heal()
    with pytest.raises(ReopenRequiredError):
        log.close()
    log = open_log(tmp_path / "t-0")
    assert offsets_of(log) in ([0, 1], [0, 1, 2, 3])


def test_what_is_gathered_is_truncated_too(log):
    log.append(b"a")
    log.append(b"b")
    log.append(b"c")
    assert log.truncate_to(1)
    assert log.log_end_offset == 1


# Starting anew


def test_start_at_drops_everything(segments):
    segments.truncate_fully_and_start_at(50)
    assert (segments.log_start_offset, segments.log_end_offset, segments.high_watermark) == (50, 50, 50)
    assert segments.epoch_entries == ()
    assert names_in(segments, "*.snapshot") == []
    assert add(segments, b"a") == range(50, 51)


def test_start_at_forgets_the_producers(log):
    add(log, b"a", producer=identity(0))
    log.truncate_fully_and_start_at(0)
    assert add(log, b"a", producer=identity(0)) == range(1)
    assert values_of(log) == [b"a"]


def test_start_at_may_keep_a_lower_log_start(log):
    log.truncate_fully_and_start_at(50, log_start_offset=40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 50)
    assert offsets_of(log, 45) == []


@pytest.mark.parametrize("log_start_offset", [51, -1, True])
def test_the_log_start_given_must_be_an_offset_at_or_below_the_end(log, log_start_offset):
    with pytest.raises(UsageError, match="log_start_offset"):
        log.truncate_fully_and_start_at(50, log_start_offset=log_start_offset)


def test_start_at_survives_a_crash(segments):
    segments.truncate_fully_and_start_at(3)
    add(segments, b"new")
    crash(segments)
    log = open_log(segments.directory)
    assert (log.log_start_offset, values_of(log)) == (3, [b"new"])


def test_a_negative_offset_is_refused(segments):
    for call in (segments.truncate_to, segments.truncate_fully_and_start_at):
        with pytest.raises(OffsetOutOfRangeError):
            call(-1)


@pytest.mark.parametrize("end", [3, 4, 6])
def test_deleted_segments_that_a_crash_brought_back_do_not_come_back_with_the_offsets(tmp_path, end):
    """Segments 0, 4 and 8; the first two are deleted, and a power cut loses the rename of the second."""
    log = open_log(tmp_path / "t-0")
    for _ in range(2):
        add(log, *[b"deleted"] * 4)
        log.roll()
    add(log, b"kept")
    log.flush()
    log.delete_before(8)
    crash(log)
    for name in names_in(log, f"{4:020}.*.deleted"):
        (tmp_path / "t-0" / name).rename(tmp_path / "t-0" / name.removesuffix(".deleted"))
    log = open_log(tmp_path / "t-0")
    assert values_of(log) == [b"kept"]
    assert log.truncate_to(end)
    add(log, *[b"new"] * (8 - end))
    log.close()
    log = open_log(tmp_path / "t-0")
    assert log.recovery.was_clean
    assert offsets_of(log) == list(range(end, 8))
    assert set(values_of(log)) == {b"new"}
